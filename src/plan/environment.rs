//! The program's environment: starts empty, gets what a program cannot do without, then what
//! the policy passes or sets, then what was asked for on the command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::{Facts, OwnFolder, Request, Session};
use crate::policy::{InsidePath, Isolation, Policy};

const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(super) fn variables(
    policy: &Policy,
    facts: &Facts,
    request: &Request,
    session: &Session,
    first_mount: Option<&InsidePath>,
) -> Vec<(OsString, OsString)> {
    let mut env = Variables(Vec::with_capacity(24));
    let (_, _, user) = super::build::inside_identity(facts);
    env.set("PATH", search_path(request, session));
    env.set("HOME", session.home.as_path());
    env.set("USER", &user);
    env.set("LOGNAME", &user);
    env.set("SHELL", &facts.shell);
    if policy.lock.isolation == Isolation::Landlock {
        env.set("TMPDIR", session.on_the_host(OwnFolder::Tmp));
        // A system-wide configuration that is there and cannot be read stops git.
        env.set("GIT_CONFIG_NOSYSTEM", "1");
    }
    for (name, value) in &facts.env {
        if policy.env.pass.iter().any(|pattern| matches(pattern, name)) {
            env.set(name, value);
        }
    }
    if let (true, Some((name, email))) = (policy.env.git_identity, &facts.git_identity) {
        for role in ["AUTHOR", "COMMITTER"] {
            env.set(format!("GIT_{role}_NAME"), name);
            env.set(format!("GIT_{role}_EMAIL"), email);
        }
    }
    for (name, value) in &policy.env.set {
        env.set(name, value);
    }
    env.set("IS_SANDBOX", "1");
    env.set("COWORK_SESSION", session.id.as_str());
    if let Some(first) = first_mount {
        env.set("PWD", first.as_path());
    }
    for (name, value) in &request.env {
        env.set(name, value);
    }
    env.0
}

fn search_path(request: &Request, session: &Session) -> OsString {
    let mut path = OsString::new();
    for dir in &request.path {
        path.push(dir);
        path.push(":");
    }
    path.push(SYSTEM_PATH);
    path.push(":");
    path.push(session.home.as_path().join(".local/bin"));
    path
}

fn matches(pattern: &str, name: &OsStr) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.as_bytes().starts_with(start.as_bytes()),
        None => name.as_bytes() == pattern.as_bytes(),
    }
}

struct Variables(Vec<(OsString, OsString)>);

impl Variables {
    fn set(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) {
        let (name, value) = (name.as_ref(), value.as_ref().to_owned());
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some(slot) => slot.1 = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }
}
