//! Programs that have their user's number and are confined: a session's socket in front of them is
//! no way out. Each asks for a folder of keys to be shown in a box.

use std::process::Command;

use serde_json::Value;

use crate::ground::Ground;
use crate::support::{DISTRIBUTION_BWRAP, Ran, is_root};

/// Connects to the socket named first and asks for the folder named second; says what it heard.
const ASKING: &str = r#"
import json, os, socket, sys

device, inode = (int(sys.argv[3].split(":")[0]), int(sys.argv[3].split(":")[1]))
line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
line.connect(sys.argv[1])
try:
    line.send(json.dumps({"ask": "mount", "source": sys.argv[2], "device": device, "inode": inode,
                          "uid": os.getuid(), "gid": os.getgid(), "is_folder": True,
                          "mode": "ro", "place": "keys"}).encode())
except OSError:
    pass
for _ in range(2):
    try:
        print(line.recv(100000).decode())
        break
    except ConnectionResetError:
        continue
"#;

struct Keys {
    ground: Ground,
    id: String,
    words: Vec<String>,
}

impl Keys {
    fn new() -> Self {
        let ground = Ground::new();
        ground.world.write("keys/id", "secret");
        let id = ground.start(&["--keep"], &[]);
        let folder = ground.world.path("keys");
        let found = std::fs::metadata(&folder).unwrap();
        use std::os::unix::fs::MetadataExt;
        let words = vec![
            folder.to_str().unwrap().to_owned(),
            format!("{}:{}", found.dev(), found.ino()),
        ];
        Self { ground, id, words }
    }

    fn socket(&self) -> String {
        self.ground.socket(&self.id).to_str().unwrap().to_owned()
    }

    /// What is in the box, as its supervisor tells from the outside.
    fn mounted(&self) -> Value {
        self.ground.json(&["inspect", &self.id])["seen"]["mounted"].clone()
    }

    #[track_caller]
    fn refused(&self, ran: &Ran, why: &str) {
        assert!(
            ran.out.contains("refused") && ran.out.contains(why),
            "{ran:?}"
        );
        assert_eq!(self.mounted(), serde_json::json!([]));
    }

    fn asking(&self, command: &mut Command, socket: &str) -> Ran {
        Ran::of(
            command
                .args(["python3", "-c", ASKING, socket])
                .args(&self.words),
        )
    }
}

#[test]
fn the_users_own_command_may_ask() {
    let keys = Keys::new();
    let ran = keys.asking(Command::new("timeout").arg("20"), &keys.socket());
    assert!(ran.out.contains("\"done\""), "{ran:?}");
    assert_eq!(keys.mounted().as_array().unwrap().len(), 1);
}

#[test]
fn a_program_in_a_box_may_not_though_it_sees_the_socket() {
    let keys = Keys::new();
    let runtime = keys.ground.runtime();
    let mut command = keys.ground.world.cowork();
    let place = format!("{}:rt", runtime.to_str().unwrap());
    command.args(["run", "-q", "--mount", &place, "--"]);
    let socket = format!("/workspace/{}.sock", keys.id);
    let ran = keys.asking(&mut command, &socket);
    match is_root() {
        // Root's boxes have nobody's number, for whom the socket is closed already.
        true => assert!(ran.err.contains("PermissionError") || ran.out.contains("refused")),
        false => keys.refused(&ran, "in a box"),
    }
    assert_eq!(keys.mounted(), serde_json::json!([]));
}

#[test]
fn a_program_in_somebody_elses_sandbox_may_not() {
    let keys = Keys::new();
    let mut command = Command::new(DISTRIBUTION_BWRAP);
    command.args(["--ro-bind", "/", "/", "--dev", "/dev"]);
    let ran = keys.asking(&mut command, &keys.socket());
    keys.refused(&ran, "in a box");
}

#[test]
fn a_program_that_can_gain_no_privileges_may_not_use_one_that_can() {
    let keys = Keys::new();
    let mut command = Command::new("setpriv");
    command.arg("--no-new-privs");
    let ran = keys.asking(&mut command, &keys.socket());
    keys.refused(&ran, "confined more narrowly");
}
