//! Two ordinary users on one host, and one has a session. Homes are open, so that only our own walls
//! and the kernel's are between them. Needs root to be two users.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::{Ran, binary, is_root};

const OWNER: u32 = 61_001;
const STRANGER: u32 = 61_002;
const SECRET: &str = "told-to-nobody-7f3a";

struct Host {
    dir: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        let open = std::fs::Permissions::from_mode(0o755);
        let mut dir = tempfile::Builder::new();
        let dir = dir.prefix("cowork-two-").tempdir_in("/var/tmp").unwrap();
        std::fs::set_permissions(dir.path(), open.clone()).unwrap();
        let host = Self { dir };
        std::fs::copy(binary(), host.path("cowork-linux")).unwrap();
        std::fs::set_permissions(host.path("cowork-linux"), open.clone()).unwrap();
        for user in [OWNER, STRANGER] {
            for name in ["", "/state", "/run", "/work"] {
                let folder = host.path(&format!("{user}{name}"));
                std::fs::create_dir(&folder).unwrap();
                std::fs::set_permissions(&folder, open.clone()).unwrap();
                chown(folder, Some(user), Some(user)).unwrap();
            }
        }
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Something that a user does, with the directories of one of them.
    fn as_user(&self, user: u32, whose: u32, words: &[&str]) -> Ran {
        let mut command = Command::new("timeout");
        let number = user.to_string();
        command.args(["20", "setpriv", "--reuid", &number, "--regid", &number]);
        command.args(["--clear-groups", "--"]).args(words);
        let folder = self.path(&whose.to_string());
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &folder)
            .env("XDG_STATE_HOME", folder.join("state"))
            .env("XDG_RUNTIME_DIR", folder.join("run"))
            .current_dir(folder.join("work"));
        Ran::of(&mut command)
    }

    fn cowork(&self, user: u32, whose: u32, words: &[&str]) -> Ran {
        let program = self.path("cowork-linux");
        self.as_user(user, whose, &[&[program.to_str().unwrap()], words].concat())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.cowork(OWNER, OWNER, &["rm", "-f", "--outputs", "private"]);
    }
}

/// What of a process only its user may read, and how.
const OF_A_PROCESS: [(&str, &str); 11] = [
    ("cat", "environ"),
    ("cat", "maps"),
    ("cat", "auxv"),
    ("cat", "io"),
    ("cat", "syscall"),
    ("head -c1", "mem"),
    ("ls", "fd/"),
    ("ls", "cwd/"),
    ("ls", "root/"),
    ("readlink", "exe"),
    ("readlink", "ns/mnt"),
];

#[test]
fn a_stranger_neither_reaches_nor_reads_nor_signals_a_session() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let secret = format!("TOKEN={SECRET}");
    let start = ["run", "-d", "-q", "--name", "private", "--env", &secret];
    let program = [
        "--mount",
        ".",
        "--",
        "sh",
        "-c",
        "echo said; exec sleep 1000",
    ];
    host.cowork(OWNER, OWNER, &[&start[..], &program].concat())
        .ok();
    let seen = host.cowork(OWNER, OWNER, &["inspect", "private"]).ok().out;
    let seen: Value = serde_json::from_str(&seen).unwrap();
    let supervisor = seen["record"]["supervisor"]["pid"].as_i64().unwrap();
    let first = seen["seen"]["pid"].as_i64().unwrap();
    let inside = crate::watch::children(first as i32)[0];

    // In its own directories it sees nothing, in the other's it finds nothing.
    for whose in [STRANGER, OWNER] {
        for words in [
            &["ls", "-a"][..],
            &["ls", "-a", "-q"],
            &["ls", "-a", "--json"],
            &["gc"],
            &["status"],
            &["stats"],
            &["history"],
            &["history", "--verify"],
            &["why", ".mcp.json"],
        ] {
            let ran = host.cowork(STRANGER, whose, words);
            let said = format!("{}{}", ran.out, ran.err);
            assert!(
                !said.contains("private") && !said.contains("sleep"),
                "{words:?}: {said}"
            );
        }
        for words in [
            &["exec", "private", "--", "true"][..],
            &["logs", "private"],
            &["inspect", "private"],
            &["attach", "private"],
            &["stop", "private"],
            &["kill", "private"],
            &["rm", "-f", "private"],
            &["mount", "private", "."],
            &["pause", "private"],
            &["limit", "private", "--pids", "1"],
        ] {
            let ran = host.cowork(STRANGER, whose, words);
            assert_ne!(ran.code, 0, "{words:?}: {ran:?}");
            assert_eq!(ran.out, "", "{words:?}: {ran:?}");
            assert!(ran.err.contains("error: "), "{words:?}: {ran:?}");
        }
    }
    // What the kernel shows of its processes, and what reaches them.
    for pid in [supervisor, first, inside as i64] {
        for (how, name) in OF_A_PROCESS {
            let script = format!("{how} /proc/{pid}/{name}");
            let ran = host.as_user(STRANGER, STRANGER, &["sh", "-c", &script]);
            assert_eq!(ran.out, "", "{script}");
            assert_ne!(ran.code, 0, "{script}");
        }
        for signal in ["0", "STOP", "TERM", "KILL"] {
            let script = format!("kill -{signal} {pid}");
            let ran = host.as_user(STRANGER, STRANGER, &["sh", "-c", &script]);
            ran.failed_with(1).complains("not permitted");
        }
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        let words = String::from_utf8_lossy(&words).into_owned();
        assert!(
            !words.contains(SECRET) && !words.contains("private"),
            "{words}"
        );
    }
    // Its owner can do all of that: it was the other user who could not.
    host.cowork(OWNER, OWNER, &["ls"]).ok().says("private");
    host.cowork(OWNER, OWNER, &["logs", "private"])
        .ok()
        .says("said");
    host.cowork(OWNER, OWNER, &["exec", "private", "--", "true"])
        .ok();
    for (how, name) in OF_A_PROCESS {
        let script = format!("{how} /proc/{supervisor}/{name}");
        let ran = host.as_user(OWNER, OWNER, &["sh", "-c", &script]);
        // There is nothing to read at the beginning of a memory.
        assert!(name == "mem" || !ran.out.is_empty(), "{script}: {ran:?}");
    }
    let script = format!("kill -0 {supervisor}");
    host.as_user(OWNER, OWNER, &["sh", "-c", &script]).ok();
}
