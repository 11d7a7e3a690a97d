//! A home, a folder to share and its sessions, on the host of the tests' world.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Ran, World as Scratch, binary, exists, project};
use crate::world::world;

/// Much longer than anything takes; reached only when something hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const SEARCH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/go/bin";

#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) scratch: Scratch,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let scratch = Scratch::new();
        std::fs::create_dir(scratch.path("run")).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(scratch.path("run"), private).unwrap();
        let ground = Self { scratch };
        std::fs::copy(world().authorities(), ground.scratch.work().join("ca.pem")).unwrap();
        for name in ["knock.py", "load.py"] {
            let from = project().join("tests/egress/probes").join(name);
            std::fs::copy(from, ground.scratch.work().join(name)).unwrap();
        }
        ground
    }

    /// A program on the host, under a time limit, with the surroundings of this ground.
    pub(crate) fn on_the_host(&self) -> Command {
        let mut command = world().on_the_host(&self.scratch.work());
        command.args(["timeout", "--foreground", "-k", "1", "200"]);
        self.surround(&mut command);
        command
    }

    pub(crate) fn surround(&self, command: &mut Command) {
        command
            .env_clear()
            .env("HOME", self.scratch.path("home"))
            .env("XDG_STATE_HOME", self.scratch.path("state"))
            .env("XDG_RUNTIME_DIR", self.scratch.path("run"))
            .env("PATH", SEARCH)
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::null());
    }

    pub(crate) fn cowork(&self) -> Command {
        let mut command = self.on_the_host();
        command.arg(binary());
        command
    }

    /// Says these words to `cowork-linux`.
    pub(crate) fn say<S: AsRef<OsStr>>(&self, words: &[S]) -> Ran {
        Ran::of(self.cowork().args(words))
    }

    /// `run -q --network allow FLAGS --mount W --` to add a program to.
    pub(crate) fn running(&self, flags: &[&str]) -> Command {
        let mut command = self.cowork();
        command
            .args(["run", "-q", "--network", "allow"])
            .args(flags);
        command.arg("--mount").arg(self.scratch.work()).arg("--");
        command
    }

    /// Runs a program in a box, which has to start; how the program ends is its own affair.
    #[track_caller]
    pub(crate) fn run<S: AsRef<OsStr>>(&self, flags: &[&str], program: &[S]) -> Ran {
        let ran = Ran::of(self.running(flags).args(program));
        assert!(![-1, 124, 125].contains(&ran.code), "no box: {ran:?}");
        ran
    }

    #[track_caller]
    pub(crate) fn sh(&self, flags: &[&str], script: &str) -> Ran {
        self.run(flags, &["sh", "-c", script])
    }

    /// The same on the host, without a box.
    pub(crate) fn control(&self, script: &str) -> Ran {
        Ran::of(self.on_the_host().args(["sh", "-c", script]))
    }

    /// `run -d -q --network allow FLAGS --mount W -- PROGRAM`, which must start; the id.
    #[track_caller]
    pub(crate) fn start(&self, flags: &[&str], program: &[&str]) -> String {
        let mut command = self.cowork();
        command
            .args(["run", "-d", "-q", "--network", "allow"])
            .args(flags)
            .arg("--mount")
            .arg(self.scratch.work())
            .arg("--")
            .args(program);
        Ran::of(&mut command).ok().out.trim_end().to_owned()
    }

    pub(crate) fn exec(&self, id: &str, program: &[&str]) -> Ran {
        Ran::of(self.cowork().args(["exec", id, "--"]).args(program))
    }

    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let said = self.say(words).ok();
        serde_json::from_str(&said.out).unwrap()
    }

    /// Processes of the box, as the host numbers them.
    pub(crate) fn processes_of(&self, id: &str) -> Vec<u32> {
        let seen = self.json(&["inspect", id]);
        let question = json!({"ask": "members", "first": seen["seen"]["pid"]});
        serde_json::from_value(world().host(&question)).unwrap()
    }

    /// The session's gateway: the child of its supervisor that is not in the box.
    #[track_caller]
    pub(crate) fn gateway(&self, id: &str) -> u32 {
        let found = self.gateways(id);
        assert_eq!(found.len(), 1, "one gateway");
        found[0]
    }

    pub(crate) fn gateways(&self, id: &str) -> Vec<u32> {
        let seen = self.json(&["inspect", id]);
        let supervisor = seen["record"]["supervisor"]["pid"].as_u64().unwrap();
        let inside = seen["seen"]["pid"].as_u64().unwrap();
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_its_child = |pid: &u32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
            status.is_ok_and(|text| {
                text.contains(&format!("PPid:\t{supervisor}\n")) && !text.contains("State:\tZ")
            })
        };
        pids.filter(|pid| u64::from(*pid) != inside && is_its_child(pid))
            .collect()
    }

    pub(crate) fn work(&self) -> std::path::PathBuf {
        self.scratch.work()
    }

    pub(crate) fn waits_for(&self, path: &Path) {
        eventually(&format!("{} is there", path.display()), || exists(path));
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let ids = self.say(&["ls", "-a", "-q"]).out;
        for id in ids.lines() {
            self.say(&["rm", "-f", "--outputs", id]);
        }
    }
}

/// Asks again and again; for what nothing tells of by itself.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not so in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
