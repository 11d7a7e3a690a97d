//! What a supervisor writes down while it leads a session. A journal that cannot be written costs
//! its entries, never the session.

use std::time::Duration;

use super::manner::Manner;
use super::network::object;
use super::outcome::Outcome;
use super::record::{Record, RecordedMount};
use super::refusals::{Refusals, Refused};
use crate::egress::{Connection, Request};
use crate::journal::{BY_USER, Journal, MountNote, RefusalKind, What, words};
use crate::plan::{Guarding, Landlock, Plan, Seccomp};
use crate::policy::Isolation;
use crate::sandbox::RefusedCall;

#[derive(Debug)]
pub(super) struct Diary {
    journal: Option<Journal>,
    by: &'static str,
    /// Also for the caller, at the end.
    pub(super) refusals: Refusals,
}

impl Diary {
    /// A session that nobody keeps and nobody can ask about later has no journal: what it did is
    /// said in front of its caller.
    pub(super) fn begin(plan: &Plan, manner: &Manner) -> Self {
        let session = plan.session.as_ref();
        // Who could reach the network is asked about it later.
        let session = session.filter(|session| session.kept || plan.egress.is_some());
        let journal = session.map(|session| Journal::create(&manner.journals, &session.id));
        if let (Some(Err(error)), Some(say)) = (&journal, manner.say) {
            say(&format!("no journal is kept: {error}"));
        }
        let mut diary = Self {
            journal: journal.and_then(Result::ok),
            by: "program",
            refusals: Refusals::default(),
        };
        let record = Record::of(plan, false);
        let mounts = record.mounts.into_iter().map(|mount| MountNote {
            source: mount.source,
            place: mount.place,
            mode: mount.mode,
        });
        diary.write(&What::Start {
            program: words(&plan.program.argv),
            mounts: mounts.collect(),
            network: record.network,
            profile: None,
            supervisor: record.supervisor.pid,
            layers: layers(plan),
        });
        diary
    }

    fn write(&mut self, what: &What) {
        if let Some(journal) = &mut self.journal {
            let _ = journal.append(what);
        }
    }

    pub(super) fn executed(&mut self, exec: u32, program: Vec<String>) {
        let program = words(&program);
        self.write(&What::Exec {
            exec,
            program,
            cwd: None,
        });
    }

    /// `not_executed` is the kernel's number for a program that never was.
    pub(super) fn ended(&mut self, exec: u32, status: i32, not_executed: Option<i32>) {
        let signal = Some(status & 0x7f).filter(|signal| *signal != 0);
        let code = Some(status >> 8 & 0xff).filter(|_| signal.is_none());
        self.write(&What::Exit {
            exec,
            code,
            signal,
            not_executed,
        });
    }

    /// A guard's word: the rule, a tab, the path.
    pub(super) fn refused(&mut self, what: &str, source: Option<&str>) {
        let refused = self.refusals.by_guard(what, source);
        self.write_refusal(refused, 1);
    }

    pub(super) fn refused_call(&mut self, plan: &Plan, told: &RefusedCall) {
        let refused = self.refusals.by_filter(plan, told);
        self.write_refusal(refused, told.times);
    }

    fn write_refusal(&mut self, refused: Refused, count: u64) {
        self.write(&What::Refusal {
            kind: refused.kind,
            object: refused.object,
            rule: refused.rule,
            allow: refused.allow,
            program: refused.program,
            count,
        });
    }

    /// A connection that is over. What a rule refused is a refusal.
    pub(super) fn connected(&mut self, connection: Connection) {
        let object = object(&connection.host, connection.port);
        match connection.refused {
            Some(refused) if refused.is_by_rule => self.write(&What::Refusal {
                kind: RefusalKind::Network,
                object,
                rule: refused.rule.unwrap_or(refused.word),
                allow: refused.flag.unwrap_or_default(),
                program: connection.program,
                count: 1,
            }),
            refused => self.write(&What::Connection {
                began: connection.began,
                milliseconds: connection.milliseconds,
                door: connection.door,
                program: connection.program,
                host: connection.host,
                port: connection.port,
                address: connection.address.map(|address| address.to_string()),
                sent: connection.sent,
                received: connection.received,
                rule: connection.rule,
                error: refused.map(|refused| refused.because),
            }),
        }
    }

    pub(super) fn requested(&mut self, request: Request) {
        self.write(&What::Request {
            began: request.began,
            milliseconds: request.milliseconds,
            method: request.method,
            url: request.url,
            status: request.status,
            size: request.size,
            error: request.error,
        });
    }

    /// More of the network was to be told than could be taken.
    pub(super) fn missed(&mut self, entries: u64) {
        self.write(&What::Lost { entries });
    }

    pub(super) fn mounted(
        &mut self,
        mount: &RecordedMount,
        overlaps: Option<String>,
        replaces: Option<String>,
    ) {
        self.write(&What::Mount {
            source: mount.source.clone(),
            place: mount.place.clone(),
            mode: mount.mode.clone(),
            overlaps,
            replaces,
        });
    }

    pub(super) fn unmounted(&mut self, place: &str) {
        let place = place.to_owned();
        self.write(&What::Unmount { place });
    }

    pub(super) fn signalled(&mut self, signal: i32) {
        let by = BY_USER.to_owned();
        self.write(&What::Signal { signal, by });
    }

    pub(super) fn let_go(&mut self) {
        self.by = "holder";
    }

    pub(super) fn asked_to_stop(&mut self) {
        self.by = BY_USER;
    }

    pub(super) fn limited(&mut self, limit: &str, what: &str, happened: &str) {
        if happened == "ended the session" {
            self.by = "limit";
        }
        self.write(&What::Limit {
            limit: limit.to_owned(),
            value: what.to_owned(),
            happened: happened.to_owned(),
        });
    }

    pub(super) fn changed(&mut self, of: &str, from: Option<String>, to: String) {
        let of = of.to_owned();
        self.write(&What::Change { of, from, to });
    }

    pub(super) fn timed_out(&mut self, limit: Option<Duration>) {
        self.by = "limit";
        let value = limit.map(humantime::format_duration);
        self.write(&What::Limit {
            limit: "timeout".to_owned(),
            value: value.map_or(String::new(), |value| value.to_string()),
            happened: "ended the session".to_owned(),
        });
    }

    /// The last entry. The program's own end is told before it, unless it was told long ago.
    pub(super) fn end(&mut self, outcome: &Outcome, has_program: bool) {
        if has_program {
            let not_executed = match outcome {
                Outcome::NotExecuted(errno) => Some(*errno),
                _ => None,
            };
            self.ended(0, outcome.status(), not_executed);
        }
        let text = match outcome {
            Outcome::Exited(code) => format!("exit code {code}"),
            Outcome::Killed(signal) => format!("signal {signal}"),
            Outcome::TimedOut => "the time limit".to_owned(),
            Outcome::LetGo => "whoever held it open is gone".to_owned(),
            Outcome::OverLimit(what) => what.clone(),
            Outcome::NotExecuted(_) => "the program could not be run".to_owned(),
        };
        let by = self.by.to_owned();
        self.write(&What::Stop { outcome: text, by });
        if let Some(journal) = &mut self.journal {
            let _ = journal.flush();
        }
    }
}

/// The walls that stand, in a word each.
fn layers(plan: &Plan) -> Vec<String> {
    let mut layers = Vec::new();
    if plan.isolation == Isolation::Namespaces {
        layers.push("namespaces".to_owned());
    }
    match &plan.lock.seccomp {
        Seccomp::BuiltIn { name, .. } => layers.push(format!("seccomp {name}")),
        Seccomp::Profile { path, .. } => layers.push(format!("seccomp {}", path.display())),
        Seccomp::Given(_) | Seccomp::Excused(_) => {}
    }
    if let Landlock::Enforced { abi, .. } = &plan.lock.landlock {
        layers.push(format!("landlock abi {abi}"));
    }
    if let Guarding::On { .. } = &plan.lock.guarding {
        layers.push("guard".to_owned());
    }
    layers
}
