//! Plans for hosts that are not this one: facts and a policy in, sentences out.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use cowork_linux::plan::{
    self, EtcEntry, Facts, PlanError, Request, Seen, Sentences, Source, Stdio, SystemEntry,
};
use cowork_linux::policy::{
    Access, InsidePath, Isolation, Layer, NetMode, Policy, SessionId, Sources, resolve,
};

/// A Debian with a merged /usr and a new kernel, as an ordinary user sees it.
fn merged() -> Facts {
    let link = |name: &str| SystemEntry::Link {
        at: inside(&format!("/{name}")),
        to: PathBuf::from(format!("usr/{name}")),
    };
    let mut system = vec![SystemEntry::Folder(inside("/usr"))];
    system.extend(["bin", "sbin", "lib", "lib64"].map(link));
    Facts {
        uid: 1234,
        gid: 1234,
        user: "person".to_owned(),
        umask: 0o022,
        landlock_abi: 7,
        seccomp_notify: true,
        system,
        etc: vec![
            EtcEntry::Shown {
                name: "ssl".to_owned(),
                is_folder: true,
            },
            EtcEntry::Copied {
                name: "services".to_owned(),
                content: b"ssh 22/tcp\n".to_vec(),
            },
            EtcEntry::Link {
                name: "localtime".to_owned(),
                to: "/usr/share/zoneinfo/UTC".into(),
            },
        ],
        stdio: [Stdio::Direct; 3],
        state_directory: "/home/person/.local/state/cowork-linux".into(),
        shell: "/bin/bash".into(),
        env: vec![("LANG".into(), "C.UTF-8".into())],
        git_identity: None,
        resolver: String::new(),
    }
}

fn inside(path: &str) -> InsidePath {
    InsidePath::new(path).unwrap()
}

fn folders(names: &[&str]) -> Vec<SystemEntry> {
    let folder = |name: &&str| SystemEntry::Folder(inside(name));
    names.iter().map(folder).collect()
}

fn policy() -> Policy {
    let sources = Sources {
        profile: None,
        project_dir: None,
        flags: Default::default(),
        env: &|_| None,
    };
    resolve(&sources).unwrap().policy
}

/// `run --name fixed --mount /home/person/project -- agent`
fn request() -> Request {
    Request {
        id: SessionId::parse("fixed").unwrap(),
        detached: None,
        limits: Vec::new(),
        kept: true,
        mounts: vec![Source {
            path: "/home/person/project".into(),
            seen: Seen::default(),
            place: None,
            name: "project".into(),
            access: Access::Write,
        }],
        needed: Vec::new(),
        path: Vec::new(),
        argv: vec!["agent".into()],
        workdir: None,
        hostname: None,
        env: Vec::new(),
    }
}

fn sentences(policy: &Policy, facts: &Facts) -> String {
    let plan = plan::build(policy, facts, &request()).unwrap();
    Sentences(&plan).to_string()
}

/// Only the lines that differ from the plan for the usual host.
fn difference(policy: &Policy, facts: &Facts) -> String {
    let words = |line: &str| {
        line.trim_start_matches([' ', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'])
            .to_owned()
    };
    let usual: Vec<_> = sentences(&self::policy(), &merged())
        .lines()
        .map(words)
        .collect();
    let other: Vec<_> = sentences(policy, facts).lines().map(words).collect();
    let gone = usual
        .iter()
        .filter(|line| !other.contains(line))
        .map(|line| format!("- {line}"));
    let new = other
        .iter()
        .filter(|line| !usual.contains(line))
        .map(|line| format!("+ {line}"));
    gone.chain(new).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_merged_system() {
    insta::assert_snapshot!(sentences(&policy(), &merged()));
}

#[test]
fn an_unmerged_system() {
    let facts = Facts {
        system: folders(&["/usr", "/bin", "/sbin", "/lib", "/lib64"]),
        ..merged()
    };
    insta::assert_snapshot!(difference(&policy(), &facts));
}

#[test]
fn a_system_without_lib64() {
    let mut facts = merged();
    facts.system.pop();
    insta::assert_snapshot!(difference(&policy(), &facts), @"- make the link /lib64 to usr/lib64");
}

#[test]
fn started_by_root() {
    let facts = Facts {
        uid: 0,
        gid: 0,
        user: "root".to_owned(),
        ..merged()
    };
    insta::assert_snapshot!(difference(&policy(), &facts));
}

#[test]
fn an_old_landlock() {
    let facts = Facts {
        landlock_abi: 1,
        ..merged()
    };
    insta::assert_snapshot!(difference(&policy(), &facts));
}

#[test]
fn no_landlock_is_an_error_until_it_is_excused() {
    let facts = Facts {
        landlock_abi: 0,
        ..merged()
    };
    let mut policy = policy();
    let refused = plan::build(&policy, &facts, &request()).unwrap_err();
    let missing = Layer::Landlock;
    assert!(matches!(&refused, PlanError::MissingLayer { layer, .. } if *layer == missing));
    assert!(refused.help().unwrap().contains("--allow-missing landlock"));
    policy.lock.allow_missing.insert(Layer::Landlock);
    insta::assert_snapshot!(difference(&policy, &facts));
}

#[test]
fn no_seccomp_notification_is_an_error_until_it_is_excused() {
    let facts = Facts {
        seccomp_notify: false,
        ..merged()
    };
    let mut policy = policy();
    let refused = plan::build(&policy, &facts, &request());
    let missing = Layer::Guard;
    assert!(matches!(refused, Err(PlanError::MissingLayer { layer, .. }) if layer == missing));
    policy.lock.allow_missing.insert(Layer::Guard);
    insta::assert_snapshot!(difference(&policy, &facts));
}

#[test]
fn nesting_and_the_hosts_network() {
    let mut policy = policy();
    policy.lock.nesting = true;
    policy.net.mode = NetMode::Host;
    let facts = Facts {
        resolver: "nameserver 192.0.2.1\n".to_owned(),
        ..merged()
    };
    insta::assert_snapshot!(difference(&policy, &facts));
}

#[test]
fn without_namespaces() {
    let mut policy = policy();
    policy.lock.isolation = Isolation::Landlock;
    policy.guard.enabled = false;
    insta::assert_snapshot!(sentences(&policy, &merged()));
}
