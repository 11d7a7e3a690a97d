//! What is asked of a running session, and done by its supervisor.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::changes::noted;
use super::control::Control;
use super::idlers::{NO_ANSWER, does_not_listen};
use super::supervise::Life;
use super::talk::{Say, Seen};
use super::wish::Wish;
use crate::plan::Place;
use crate::policy::egress::{HostPattern, Rule, Rules};
use crate::sandbox::Running;

/// Nobody waits longer than a day for a program to end.
const MOST_GRACE_MS: u64 = 24 * 3600 * 1000;
/// What is shown in one piece to whoever attaches.
const PIECE: usize = 32 << 10;

impl Life<'_> {
    pub(super) fn tell(&mut self, exec: u32, say: &Say) {
        if let Some(control) = &mut self.control {
            control.tell(exec, say);
        }
    }

    /// Those who ask something are answered, and what they wish is done.
    pub(super) fn serve(&mut self, asked: &[bool], running: &Running) -> io::Result<()> {
        let Some(control) = &mut self.control else {
            return Ok(());
        };
        self.limits.touch();
        for wish in control.serve(asked, self.plan, running)? {
            match wish {
                Wish::Inspect(client) => self.show_to(client, running),
                Wish::Signal(client, _) if !self.has_program => {
                    let why = "no program of its own runs there".to_owned();
                    self.answer(client, &Say::Refused { why });
                }
                Wish::Signal(client, signal) => {
                    self.diary.signalled(signal);
                    // A box that is gone by now says so itself.
                    let done = match does_not_listen(&running.signal(signal)) {
                        true => Err(NO_ANSWER.to_owned()),
                        false => Ok(None),
                    };
                    self.answer_done(client, done);
                }
                Wish::Stop { grace_ms } => self.stop(running, grace_ms),
                Wish::Attach(client) => self.attach(client),
                Wish::Limit(client, wanted) => {
                    let done = self.limit(&wanted, running);
                    self.answer_done(client, done);
                }
                Wish::Pause { client, paused } => {
                    let done = self.pause(paused, running).map(|()| None);
                    self.answer_done(client, done);
                }
                Wish::Host {
                    client,
                    pattern,
                    allow,
                } => self.change_hosts(client, pattern, allow),
                Wish::Rules { client, rules } => self.change_rules(client, rules),
                Wish::Secret {
                    client,
                    name,
                    value,
                } => {
                    let done = self.network.renew(&name, value);
                    if done.is_ok() {
                        let what = format!("the secret {name} has another value");
                        self.diary.changed("secret", None, what);
                    }
                    self.answer_done(client, done.map(|()| None));
                }
                Wish::Mount {
                    client,
                    mount,
                    replace,
                } => self.mount(client, mount, replace, running),
                Wish::Unmount {
                    client,
                    name,
                    force,
                } => self.unmount(client, &name, force, running),
                Wish::Input(bytes) => {
                    self.outputs.iter_mut().for_each(|it| it.type_in(&bytes));
                }
                Wish::Resize { rows, columns } => {
                    self.outputs.iter().for_each(|it| it.resize(rows, columns));
                }
                Wish::Executed { exec, program } => self.diary.executed(exec, program),
            }
        }
        Ok(())
    }

    fn answer_done(&mut self, client: usize, done: Result<Option<String>, String>) {
        let say = match done {
            Ok(None) => Say::Done,
            Ok(Some(note)) => Say::Noted { note },
            Err(why) => Say::Refused { why },
        };
        self.answer(client, &say);
    }

    fn change_hosts(&mut self, client: usize, pattern: HostPattern, allow: bool) {
        let verb = if allow { "allow" } else { "deny" };
        let said = format!("{verb} {pattern}");
        let rule = Rule::new(pattern, said.clone());
        let done = self.network.change(rule, allow);
        if done.is_ok() {
            self.diary.changed("network", None, said);
        }
        self.answer_done(client, done.map(|()| None));
    }

    fn change_rules(&mut self, client: usize, rules: Rules) {
        let before = self.network.rules().map(in_words);
        let after = in_words(&rules);
        let done = self.network.replace_rules(rules);
        if done.is_ok() && before.as_ref() != Some(&after) {
            self.diary.changed("network", before, after);
        }
        self.answer_done(client, done.map(|()| None));
    }

    fn attach(&mut self, client: usize) {
        let (Some(outputs), Some(control)) = (&self.outputs, &mut self.control) else {
            let why = "its program is in front of whoever started it".to_owned();
            return self.answer(client, &Say::Refused { why });
        };
        let terminal = outputs.has_terminal();
        control.answer(client, &Say::Attached { terminal });
        for (stream, bytes) in outputs.recent() {
            for piece in bytes.chunks(PIECE) {
                control.show(client, stream, piece);
            }
        }
    }

    /// Keeps what can be known when nobody is there to ask; a session in a room leaves nothing.
    pub(super) fn write_record(&self, folder: &Path) -> io::Result<()> {
        let place = self.plan.session.as_ref().map(|session| &session.place);
        match place {
            Some(Place::Own(_)) => self.record.write(folder),
            _ => Ok(()),
        }
    }

    pub(super) fn answer(&mut self, client: usize, say: &Say) {
        if let Some(control) = &mut self.control {
            control.answer(client, say);
        }
    }

    fn show_to(&mut self, client: usize, running: &Running) {
        let network = self.network.totals(running, &mut self.diary);
        let Some(control) = &mut self.control else {
            return;
        };
        let seen = Seen {
            network,
            rules: self.network.rules().cloned(),
            record: Some(self.record.clone()),
            pid: running.pid().as_raw(),
            execs: control.execs(),
            plan: serde_json::to_value(self.plan).unwrap_or_default(),
            refused: self.diary.refusals.all().to_vec(),
            mounted: self.mounted.iter().map(noted).collect(),
            paused: self.limits.is_paused,
            limits: self.limits.told(),
            limited_to: self.limits.in_words(self.plan),
        };
        control.inspected(client, seen);
    }

    /// Asks what runs to end; what has not by then is ended.
    pub(super) fn stop(&mut self, running: &Running, grace_ms: u64) {
        self.is_stopping = true;
        self.diary.asked_to_stop();
        let until = Instant::now() + Duration::from_millis(grace_ms.min(MOST_GRACE_MS));
        self.end_at = Some(self.end_at.map_or(until, |at| at.min(until)));
        // A box that is gone by now says so itself.
        let execs = self.control.iter().flat_map(Control::execs);
        for exec in execs {
            let _ = running.signal_exec(exec.exec, libc::SIGTERM);
        }
        if self.has_program {
            let _ = running.signal(libc::SIGTERM);
        }
        self.stop_if_asked(running);
    }

    /// A box that stays has to be told when its last program has ended.
    pub(super) fn stop_if_asked(&mut self, running: &Running) {
        let has_execs = self.control.as_ref().is_some_and(Control::has_execs);
        if self.is_stopping && !self.has_program && !has_execs {
            let _ = running.stop();
        }
    }
}

/// Hosts that are named in one line of the journal.
const MOST_NAMED: usize = 40;

/// Rules as they are said on a command line.
fn in_words(rules: &Rules) -> String {
    let kinds = [("allow", &rules.allow), ("deny", &rules.deny)];
    let all = kinds.iter().flat_map(|(kind, rules)| {
        let rules = rules.iter();
        rules.map(move |rule| format!("{kind} {}", rule.pattern))
    });
    let all: Vec<String> = all.collect();
    match all.len() {
        0 => "no host".to_owned(),
        count if count > MOST_NAMED => {
            let named = all[..MOST_NAMED].join(", ");
            format!("{named} and {} more", count - MOST_NAMED)
        }
        _ => all.join(", "),
    }
}
