//! A plan in words: sentences for people, one line for the start of a run, JSON by serde.

use std::ffi::OsString;
use std::fmt;

use serde::Serializer;
use serde::ser::SerializeSeq;

use super::{
    BuildStep, Capabilities, Guarding, Landlock, Namespaces, Place, Plan, Seccomp, Session, Stdio,
    Tcp,
};
use crate::policy::{Isolation, NetMode};

/// Prints a plan as numbered sentences, one to a line whatever the names in it contain.
#[derive(Debug)]
pub struct Sentences<'a>(pub &'a Plan);

impl fmt::Display for Sentences<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.0;
        let mut number = 0;
        let mut line = |f: &mut fmt::Formatter<'_>, text: &dyn fmt::Display| {
            number += 1;
            writeln!(f, "{number:3}  {}", one_to_a_line(&text.to_string()))
        };
        if let Some(session) = &plan.session {
            line(f, &format_args!("{}", open(session)))?;
        }
        line(f, &format_args!("{}", start(plan)))?;
        for step in &plan.build {
            line(f, step)?;
        }
        for step in &plan.inside {
            line(f, step)?;
        }
        for sentence in plan.egress.iter().flat_map(|it| it.sentences(plan.network)) {
            line(f, &sentence)?;
        }
        line(f, &format_args!("{}", capabilities(plan.lock.capabilities)))?;
        line(f, &format_args!("{}", landlock(&plan.lock.landlock)))?;
        line(f, &format_args!("{}", seccomp(&plan.lock.seccomp)))?;
        line(f, &format_args!("{}", guarding(&plan.lock.guarding)))?;
        if plan.stdio.contains(&Stdio::Terminal) {
            line(f, &"give the program a terminal of its own")?;
        }
        if let Some(limit) = plan.timeout {
            line(
                f,
                &format_args!("end it after {}", humantime::format_duration(limit)),
            )?;
        }
        for step in &plan.ready {
            line(f, step)?;
        }
        let words: Vec<_> = plan
            .program
            .argv
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        line(f, &format_args!("run {}", words.join(" ")))?;
        for note in &plan.notes {
            writeln!(f, "note: {}", one_to_a_line(note))?;
        }
        Ok(())
    }
}

fn capabilities(what: Capabilities) -> String {
    match what {
        Capabilities::None | Capabilities::Only { set: 0, .. } => {
            "never gain privileges, drop every capability".to_owned()
        }
        Capabilities::Only { changed: false, .. } => {
            "never gain privileges, keep root's capabilities".to_owned()
        }
        Capabilities::Only { set, .. } => {
            format!("never gain privileges, keep only the capabilities {set:#x}")
        }
    }
}

fn open(session: &Session) -> String {
    let id = &session.id;
    match &session.place {
        Place::Own(directory) => format!("open the session {id} in {}", directory.display()),
        Place::Room(_) => format!("open the session {id} with an empty home, gone at the end"),
    }
}

/// A name may hold a line break; whoever prints a line makes the rest of it visible.
fn one_to_a_line(text: &str) -> String {
    text.replace('\n', "\\n")
}

fn start(plan: &Plan) -> String {
    let id = &plan.identity;
    match plan.isolation {
        Isolation::Namespaces => format!(
            "make new {} as {} (uid {} inside, {} outside)",
            namespaces(plan.namespaces),
            id.name,
            id.uid,
            id.host_uid
        ),
        Isolation::Landlock => format!(
            "start a process as {} (uid {}) without namespaces",
            id.name, id.uid
        ),
    }
}

fn namespaces(which: Namespaces) -> String {
    let all = [
        (which.user, "user"),
        (which.mount, "mount"),
        (which.pid, "pid"),
        (which.net, "network"),
        (which.ipc, "ipc"),
        (which.uts, "uts"),
        (which.cgroup, "cgroup"),
    ];
    let names: Vec<_> = all
        .iter()
        .filter(|(new, _)| *new)
        .map(|(_, name)| *name)
        .collect();
    match names.split_last() {
        Some((last, [])) => format!("{last} namespace"),
        Some((last, rest)) => format!("{} and {last} namespaces", rest.join(", ")),
        None => "nothing".to_owned(),
    }
}

fn landlock(wall: &Landlock) -> String {
    match wall {
        Landlock::Excused(because) => format!("go without Landlock: {because}"),
        Landlock::Enforced { abi, files, tcp } => {
            let mut text = format!("put up Landlock (ABI {abi}):");
            if files.is_empty() {
                text.push_str(" no file rules");
            }
            for (index, rule) in files.iter().enumerate() {
                text.push_str(if index == 0 { " " } else { ", " });
                text.push_str(&format!("{} {}", rule.rights, rule.path));
            }
            text.push_str(match tcp {
                Tcp::Free => "",
                Tcp::NoListening => "; no TCP port to listen on",
                Tcp::None => "; no TCP",
            });
            if *abi >= 6 {
                text.push_str("; no abstract sockets or signals beyond the box");
            }
            text
        }
    }
}

fn seccomp(wall: &Seccomp) -> String {
    let inet = |yes: bool| if yes { " and no-inet" } else { "" };
    match wall {
        Seccomp::BuiltIn { name, and_no_inet } => {
            format!(
                "allow only the system calls of `{name}`{}",
                inet(*and_no_inet)
            )
        }
        Seccomp::Profile { path, and_no_inet } => {
            format!(
                "allow only the system calls of {}{}",
                path.display(),
                inet(*and_no_inet)
            )
        }
        Seccomp::Given(0) => "go without seccomp: not asked for".to_owned(),
        Seccomp::Given(1) => "load one system call filter".to_owned(),
        Seccomp::Given(number) => format!("load {number} system call filters"),
        Seccomp::Excused(because) => format!("go without seccomp: {because}"),
    }
}

fn guarding(guard: &Guarding) -> String {
    match guard {
        Guarding::Off(because) => format!("guard nothing: {because}"),
        Guarding::On { rules, doors } => {
            let mut doors: Vec<_> = doors.iter().map(ToString::to_string).collect();
            if doors.is_empty() {
                doors.push("what is mounted later".to_owned());
            }
            let git = if rules.git {
                "git hooks, git configuration that runs programs, "
            } else {
                ""
            };
            format!(
                "keep as they are in {}: {git}{}",
                doors.join(", "),
                rules.names.join(", ")
            )
        }
    }
}

/// The one line printed at the start of a run.
pub fn one_line(plan: &Plan) -> String {
    let mounts: Vec<_> = plan
        .build
        .iter()
        .filter_map(|step| match step {
            BuildStep::Bind { from, mode, .. } => {
                Some(format!("{} ({})", from.display(), mode.word()))
            }
            _ => None,
        })
        .collect();
    let mounts = if mounts.is_empty() {
        "no folders".to_owned()
    } else {
        mounts.join(", ")
    };
    let network = match (&plan.egress, plan.network) {
        (Some(egress), mode) => egress.summary(mode),
        (None, NetMode::Host) => "THE HOST'S NETWORK".to_owned(),
        (None, NetMode::None | NetMode::Allow) => "no network".to_owned(),
    };
    let walls = match (&plan.isolation, &plan.lock.landlock, &plan.lock.seccomp) {
        (Isolation::Landlock, ..) => "Landlock and seccomp only (weaker)",
        (_, Landlock::Enforced { .. }, Seccomp::BuiltIn { .. } | Seccomp::Profile { .. }) => {
            "namespaces, seccomp, Landlock"
        }
        (_, Landlock::Excused(_), Seccomp::BuiltIn { .. } | Seccomp::Profile { .. }) => {
            "namespaces, seccomp (no Landlock)"
        }
        (_, Landlock::Enforced { .. }, _) => "namespaces, Landlock (no seccomp)",
        (_, Landlock::Excused(_), _) => "namespaces only",
    };
    let id = plan
        .session
        .as_ref()
        .map_or("none", |session| session.id.as_str());
    format!("session {id}: {mounts}; {network}; {walls}")
}

pub(super) fn os_strings<S: Serializer>(
    list: &[OsString],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(list.iter().map(|text| text.to_string_lossy()))
}

/// Names only: a value handed on may be a secret, and plans end up in logs.
pub(super) fn environment<S: Serializer>(
    env: &[(OsString, OsString)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut seq = serializer.serialize_seq(Some(env.len()))?;
    for (name, _) in env {
        seq.serialize_element(&name.to_string_lossy())?;
    }
    seq.end()
}
