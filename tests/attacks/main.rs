//! Attacks on a box, by the ids of the catalogue. A test shows that the attack works where nothing
//! stops it, makes it in the box, and looks from outside. Where the first is left out, for
//! everybody or for all but root, the test says so.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod ipc;
mod launching;
mod leaving;
mod mount_writes;
mod mounting;
mod planting;
mod processes;
mod reading;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use support::{Ran, World};

const SOURCE: &str = concat!(
    include_str!("common.c"),
    include_str!("namespaces.c"),
    include_str!("files.c"),
    include_str!("processes.c"),
);

/// The attacker's program, in the folder shared with the box. Compiled once.
fn attacker(world: &World) -> PathBuf {
    static PROGRAM: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = PROGRAM.get_or_init(|| {
        let world = World::new();
        std::fs::read(support::compile(&world, "attack", SOURCE)).unwrap()
    });
    let path = world.work().join("attack");
    // Another process writes it: a program this one holds open for writing could not be run by
    // a test that forks at the same moment.
    let mut copy = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    copy.stdin.take().unwrap().write_all(bytes).unwrap();
    assert!(copy.wait().unwrap().success());
    path
}

/// What the attacker's program said, probe by probe.
#[derive(Debug)]
struct Verdicts(BTreeMap<String, String>);

impl Verdicts {
    #[track_caller]
    fn of(ran: Ran) -> Self {
        let ran = ran.ok();
        let lines = ran.out.lines().filter_map(|line| line.split_once(": "));
        let list: BTreeMap<_, _> = lines.map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        assert!(!list.is_empty(), "nothing was tried: {ran:?}");
        Self(list)
    }

    /// The control: these attacks work.
    #[track_caller]
    fn done(&self, names: &[&str]) {
        for name in names {
            let verdict = self.0.get(*name).map(String::as_str);
            assert_eq!(verdict, Some("done"), "control of {name}: {self:?}");
        }
    }

    #[track_caller]
    fn refused(&self, names: &[&str]) {
        for name in names {
            let verdict = self.0.get(*name).map_or("", String::as_str);
            assert!(verdict.starts_with("refused"), "{name}: {self:?}");
        }
    }

    #[track_caller]
    fn all_refused_but(&self, spared: &[&str]) {
        let names: Vec<_> = self.0.keys().map(String::as_str).collect();
        let rest: Vec<_> = names.into_iter().filter(|n| !spared.contains(n)).collect();
        self.refused(&rest);
    }
}

/// `cowork-linux run -q --mount W -- program`, started by a shell that does `first` before.
fn run_after(world: &World, first: &str, program: &[&str]) -> Ran {
    let mut inner = world.cowork();
    inner.args(["run", "-q", "--mount"]).arg(world.work());
    inner.arg("--").args(program);
    let mut outer = Command::new("sh");
    outer.args(["-c", &format!("{first}\nexec \"$@\""), "sh"]);
    outer.arg(inner.get_program()).args(inner.get_args());
    outer.env_clear().stdin(Stdio::null());
    for (name, value) in inner.get_envs() {
        outer.env(name, value.unwrap_or_default());
    }
    Ran::of(outer.current_dir(world.path("home")))
}
