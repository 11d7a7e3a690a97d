//! Asking systemd over a real message bus: what is said there, and what is made of the answers.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use cowork_linux::limits::{Address, scope};

use crate::support::project;

const DAEMON: &str = "/usr/bin/dbus-daemon";
const CONFIGURATION: &str = r#"<busconfig>
  <type>session</type>
  <listen>unix:path=SOCKET</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*"/>
    <allow receive_sender="*"/>
    <allow own="*"/>
  </policy>
</busconfig>
"#;

/// A bus with somebody on it who says that he is systemd.
struct Bus {
    daemon: Child,
    systemd: Child,
    said: BufReader<ChildStdout>,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Bus {
    /// None where there is no daemon to be had, which is said.
    #[allow(clippy::print_stderr)]
    fn with(mood: &str) -> Option<Self> {
        if !std::path::Path::new(DAEMON).exists() {
            let required = std::env::var("COWORK_TEST_REQUIRE").unwrap_or_default();
            assert!(!required.split(',').any(|name| name == "dbus"));
            eprintln!("SKIPPED: dbus-daemon is missing");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("bus");
        let configuration = folder.path().join("configuration");
        let text = CONFIGURATION.replace("SOCKET", socket.to_str().unwrap());
        std::fs::write(&configuration, text).unwrap();
        let mut daemon = Command::new(DAEMON)
            .args([
                "--nofork",
                "--nopidfile",
                "--print-address=1",
                "--config-file",
            ])
            .arg(&configuration)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It prints its address once it listens.
        let mut line = String::new();
        let out = daemon.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        assert!(line.starts_with("unix:path="), "{line}");
        let mut systemd = Command::new("/usr/bin/python3")
            .arg(project().join("tests/limits/systemd.py"))
            .arg(&socket)
            .arg(mood)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut bus = Self {
            said: BufReader::new(systemd.stdout.take().unwrap()),
            daemon,
            systemd,
            socket,
            _folder: folder,
        };
        assert_eq!(bus.hear(), "ready");
        Some(bus)
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn ask(&self, patience: Duration) -> std::io::Result<()> {
        let address = Address::Path(self.socket.clone());
        scope::start(&address, "cowork-a-1.scope", 4321, patience)
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        for child in [&mut self.systemd, &mut self.daemon] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_scope_is_asked_for_in_words_that_others_understand() {
    let Some(mut bus) = Bus::with("good") else {
        return;
    };
    bus.ask(LONG).unwrap();
    let asked: serde_json::Value = serde_json::from_str(&bus.hear()).unwrap();
    assert_eq!(asked["path"], "/org/freedesktop/systemd1");
    assert_eq!(asked["interface"], "org.freedesktop.systemd1.Manager");
    let expected = serde_json::json!([
        "cowork-a-1.scope",
        "fail",
        [
            ["Description", "a box of cowork-linux"],
            ["Delegate", true],
            ["CollectMode", "inactive-or-failed"],
            ["PIDs", [4321]],
        ],
        [],
    ]);
    assert_eq!(asked["arguments"], expected);
}

#[test]
fn a_job_that_fails_and_a_refusal_are_told_in_systemds_words() {
    if let Some(bus) = Bus::with("failed") {
        let error = bus.ask(LONG).unwrap_err().to_string();
        assert_eq!(error, "the job ended as `failed`");
    }
    if let Some(bus) = Bus::with("refuse") {
        let error = bus.ask(LONG).unwrap_err().to_string();
        assert_eq!(error, "Unit is there already.");
    }
}

#[test]
fn a_systemd_that_does_not_answer_is_not_waited_for() {
    let Some(bus) = Bus::with("silent") else {
        return;
    };
    let start = Instant::now();
    let error = bus.ask(Duration::from_millis(300)).unwrap_err().to_string();
    assert_eq!(error, "it did not answer in time");
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_bus_without_systemd_says_so() {
    let Some(mut bus) = Bus::with("good") else {
        return;
    };
    bus.systemd.kill().unwrap();
    bus.systemd.wait().unwrap();
    let error = bus.ask(LONG).unwrap_err().to_string();
    assert!(error.contains("org.freedesktop.systemd1"), "{error}");
}
