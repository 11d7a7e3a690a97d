//! What this host offers, what that means for a box, and what to do about it: rows of data. Every
//! attempt is made in a child that is gone afterwards; nothing on the host is changed.

mod cgroup;
mod child;
mod desktop;
mod evidence;
mod explain;
mod files;
mod inside;
mod kernel;
mod namespaces;
mod remedy;

use std::ffi::OsString;
use std::io;

use serde::Serialize;

use crate::policy::{Isolation, Layer, NetMode, Policy};
use crate::sys::process::SingleThreaded;

pub use desktop::{Answering, Desk, SOCKETS, answering, desktop, full_vm_required_by};
use evidence::Evidence;
pub use inside::{Measured, measure};
pub use remedy::{NewFile, Remedy};

/// One thing about this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    pub name: &'static str,
    pub state: State,
    pub found: String,
    pub means: String,
    pub remedy: Option<Remedy>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Good,
    /// The box works, with less than it could have.
    Weaker,
    /// The box does not work without it.
    Missing,
    /// Neither good nor bad.
    Info,
}

impl Row {
    fn new(name: &'static str, state: State, found: impl Into<String>, means: &str) -> Self {
        Self {
            name,
            state,
            found: found.into(),
            means: means.to_owned(),
            remedy: None,
        }
    }

    fn fix(self, remedy: Remedy) -> Self {
        Self {
            remedy: Some(remedy),
            ..self
        }
    }
}

/// What the policy that `run` would use asks of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    pub namespaces: bool,
    pub network: bool,
    pub landlock: bool,
    pub seccomp: bool,
    pub keyring: bool,
    pub nesting: bool,
}

impl Wanted {
    /// What a box promises when nothing is taken back.
    pub const EVERYTHING: Self = Self {
        namespaces: true,
        network: true,
        landlock: true,
        seccomp: true,
        keyring: true,
        nesting: false,
    };

    pub fn by(policy: &Policy) -> Self {
        let lock = &policy.lock;
        let required = |layer| !lock.allow_missing.contains(&layer);
        Self {
            namespaces: lock.isolation == Isolation::Namespaces,
            network: policy.net.mode != NetMode::Host,
            landlock: lock.isolation == Isolation::Landlock || required(Layer::Landlock),
            seccomp: lock.seccomp != "none" || required(Layer::Seccomp),
            keyring: required(Layer::Keyring),
            nesting: lock.nesting,
        }
    }
}

/// The rows, and whether `run` works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    pub works: bool,
    pub because: Option<String>,
    pub rows: Vec<Row>,
}

/// Looks at everything, and starts one real box. `before` are rows that are known already.
pub fn examine(
    before: Vec<Row>,
    wanted: &Wanted,
    env: &dyn Fn(&str) -> Option<OsString>,
) -> io::Result<Diagnosis> {
    let proof = SingleThreaded::prove()?;
    let evidence = Evidence::gather();
    let mut rows = vec![kernel::version(&evidence)];
    let (namespaces, work) = namespaces::row(&proof, &evidence, wanted);
    rows.push(namespaces);
    rows.push(namespaces::proc(&proof, &evidence, wanted, work));
    rows.push(kernel::mount_api(&evidence, wanted));
    rows.push(kernel::landlock(&evidence, wanted));
    rows.push(kernel::seccomp(&evidence, wanted));
    rows.push(kernel::keyring(&proof, &evidence, wanted));
    rows.push(kernel::redirection(&proof, &evidence, work));
    rows.push(files::overlay(&proof, &evidence, work));
    rows.push(files::owners(&proof, &evidence, wanted, env));
    rows.push(cgroup::row());
    rows.push(files::state(env));
    rows.push(files::sub_ids());
    rows.extend(before);
    let room = inside::landlock_room_here(&proof);
    let the_box = inside::row(wanted, room, &evidence);
    let works = the_box.state != State::Missing;
    let because = (!works).then(|| reason(&rows, &the_box));
    rows.push(the_box);
    Ok(Diagnosis {
        works,
        because,
        rows,
    })
}

/// A row that says what is missing explains more than how the box failed.
fn reason(rows: &[Row], the_box: &Row) -> String {
    let missing = rows.iter().find(|row| row.state == State::Missing);
    let row = missing.unwrap_or(the_box);
    format!("{}: {}", row.name, row.found)
}

/// The row about the policy, which is read before the host is looked at.
pub fn policy_row(read: Result<&str, (String, Option<String>)>) -> Row {
    match read {
        Ok(name) => Row::new(
            "policy",
            State::Good,
            name,
            "what `run` asks of the box without flags",
        ),
        Err((error, help)) => {
            let row = Row::new("policy", State::Missing, error, "`run` stops at it");
            match help {
                Some(help) => row.fix(Remedy::say(help)),
                None => row,
            }
        }
    }
}

/// Missing if the policy insists on it, else weaker.
fn unless(wanted: bool) -> State {
    match wanted {
        true => State::Missing,
        false => State::Weaker,
    }
}
