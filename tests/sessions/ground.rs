//! A world whose sessions end with it.

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::{Ran, World, binary};

/// Much longer than anything takes; reached only when something hangs. `COWORK_TEST_PATIENCE` is for
/// machines on which everything takes longer.
pub fn patience() -> Duration {
    let given = std::env::var("COWORK_TEST_PATIENCE").ok();
    let seconds = given.and_then(|text| text.parse().ok()).unwrap_or(30);
    Duration::from_secs(seconds)
}

/// A state directory and a runtime directory, and all sessions in them.
#[derive(Debug)]
pub struct Ground {
    pub world: World,
}

impl Ground {
    pub fn new() -> Self {
        let world = World::new();
        std::fs::create_dir(world.path("run")).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(world.path("run"), private).unwrap();
        Self { world }
    }

    pub fn runtime(&self) -> PathBuf {
        self.world.path("run/cowork-linux")
    }

    pub fn socket(&self, id: &str) -> PathBuf {
        self.runtime().join(format!("{id}.sock"))
    }

    pub fn folder(&self, id: &str) -> PathBuf {
        self.world
            .path(&format!("state/cowork-linux/sessions/{id}"))
    }

    pub fn record(&self, id: &str) -> PathBuf {
        self.folder(id).join("record.json")
    }

    pub fn journal(&self, id: &str) -> PathBuf {
        self.world
            .path(&format!("state/cowork-linux/journals/{id}.jsonl"))
    }

    /// `cowork-linux` under a time limit, so that no test waits for ever.
    pub fn cowork(&self) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["--foreground", "-k", "1"])
            .arg(patience().as_secs().to_string())
            .arg(binary());
        self.surround(&mut command);
        command
    }

    /// Without the time limit in between, for those who are killed themselves.
    pub fn bare(&self) -> Command {
        let mut command = Command::new(binary());
        self.surround(&mut command);
        command
    }

    pub fn surround(&self, command: &mut Command) {
        command
            .env_clear()
            .env("HOME", self.world.path("home"))
            .env("XDG_STATE_HOME", self.world.path("state"))
            .env("XDG_RUNTIME_DIR", self.world.path("run"))
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .current_dir(self.world.path(""))
            .stdin(Stdio::null());
        // Where a user's systemd can be asked for a cgroup.
        if let Some(bus) = std::env::var_os("DBUS_SESSION_BUS_ADDRESS") {
            command.env("DBUS_SESSION_BUS_ADDRESS", bus);
        }
    }

    pub fn say<S: AsRef<OsStr>>(&self, words: &[S]) -> Ran {
        Ran::of(self.cowork().args(words))
    }

    /// `run -d -q FLAGS --mount W -- PROGRAM`, which must start; the id.
    #[track_caller]
    pub fn start(&self, flags: &[&str], program: &[&str]) -> String {
        let ran = self.try_start(flags, program).ok();
        ran.out.trim_end().to_owned()
    }

    pub fn try_start(&self, flags: &[&str], program: &[&str]) -> Ran {
        let mut command = self.cowork();
        command.args(["run", "-d", "-q"]).args(flags).arg("--mount");
        command.arg(self.world.work());
        if !program.is_empty() {
            command.arg("--").args(program);
        }
        Ran::of(&mut command)
    }

    /// Something that runs until it is told otherwise.
    #[track_caller]
    pub fn sleeper(&self, name: &str) -> String {
        self.start(&["--name", name], &["sleep", "1000"])
    }

    pub fn exec(&self, id: &str, program: &[&str]) -> Ran {
        let mut command = self.cowork();
        Ran::of(command.args(["exec", id, "--"]).args(program))
    }

    pub fn exec_sh(&self, id: &str, script: &str) -> Ran {
        self.exec(id, &["sh", "-c", script])
    }

    /// One that goes on in front of the test.
    pub fn spawn<S: AsRef<OsStr>>(&self, words: &[S]) -> Child {
        let mut command = self.bare();
        command.args(words).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    pub fn json(&self, words: &[&str]) -> Value {
        let said = self.say(words).ok();
        serde_json::from_str(&said.out).unwrap()
    }

    /// The state that `ls -a` gives a session.
    #[track_caller]
    pub fn state(&self, id: &str) -> String {
        let list = self.json(&["ls", "-a", "--json"]);
        let list = list.as_array().unwrap();
        let found = list.iter().find(|known| known["id"] == id);
        found.map_or("none".into(), |known| {
            known["state"].as_str().unwrap().to_owned()
        })
    }

    /// Waits until `ls -a` gives it this state.
    #[track_caller]
    pub fn becomes(&self, id: &str, state: &str) {
        eventually(state, || self.state(id) == state);
    }

    pub fn supervisor(&self, id: &str) -> i32 {
        let seen = self.json(&["inspect", id]);
        seen["record"]["supervisor"]["pid"].as_i64().unwrap() as i32
    }

    /// The box's first process, as the host numbers it.
    pub fn first(&self, id: &str) -> i32 {
        let seen = self.json(&["inspect", id]);
        seen["seen"]["pid"].as_i64().unwrap() as i32
    }

    /// Processes whose environment names this world, and who are not the test's own.
    pub fn processes(&self) -> Vec<i32> {
        let mark = self.world.path("state").display().to_string();
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_here = |pid: &i32| {
            let env = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            String::from_utf8_lossy(&env).contains(&mark)
        };
        pids.filter(is_here).collect()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let ids = self.say(&["ls", "-a", "-q"]).out;
        for id in ids.lines() {
            self.say(&["rm", "-f", "--outputs", id]);
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut left = self.processes();
        while !left.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
            left = self.processes();
        }
        for pid in &left {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        assert!(
            left.is_empty() || std::thread::panicking(),
            "processes stayed: {left:?}"
        );
    }
}

/// Asks again and again; for what nothing tells of by itself.
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience();
    while !is_so() {
        assert!(Instant::now() < deadline, "not so in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs with this on its standard input, which then ends.
pub fn fed(command: &mut Command, input: &[u8]) -> std::process::Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeding = std::thread::spawn(move || {
        let _ = to.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    output
}

/// How long it took.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (work(), start.elapsed())
}
