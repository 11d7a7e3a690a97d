//! A day of work: an app that boots, opens sessions, runs command after command in them, gets more folders,
//! stops what takes too long, loses its helper, is lost itself, and goes on. Afterwards there is nothing left
//! of it but what the sessions keep.
//!
//! `make desktop-test` runs it with 50 sessions and 2 000 commands.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::client::App;
use crate::ground::{Ground, eventually, from_root, mount, with};
use crate::support::exists;

fn number(variable: &str, otherwise: usize) -> usize {
    let given = std::env::var(variable).ok();
    given
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

/// One conversation of the app's.
struct Session {
    name: String,
    proj: PathBuf,
    extra: PathBuf,
    /// What its commands have counted so far.
    commands: usize,
}

impl Session {
    fn mounts(&self) -> Value {
        json!({"proj": mount(&self.proj, "rw"), "outputs": mount(&self.extra, "rw")})
    }

    fn params(&self, ground: &Ground, id: &str, script: &str) -> Value {
        let more = json!({"name": self.name, "additionalMounts": self.mounts(), "isResume": self.commands > 0});
        with(ground.sh(id, script), more)
    }
}

/// All paths below a folder; how many.
fn count(folder: &Path) -> usize {
    let found = std::process::Command::new("find")
        .arg(folder)
        .output()
        .unwrap();
    found.stdout.iter().filter(|byte| **byte == b'\n').count()
}

fn boots(ground: &Ground) -> App {
    let mut app = ground.app();
    app.line.ok("startVM", json!({}));
    let sdk = json!({"sdkSubpath": "no/such/place", "version": "1.0.0"});
    app.line.ok("installSdk", sdk);
    app
}

/// Every session has its long-lived program, which answers.
fn opens(ground: &Ground, app: &mut App, sessions: &[Session]) {
    for session in sessions {
        let id = format!("claude-{}", session.name);
        let script = "while read word; do echo $word; done";
        let failed = app.line.spawn(session.params(ground, &id, script));
        assert!(failed.is_empty(), "{failed:?}");
    }
    talks(app, sessions);
}

fn talks(app: &mut App, sessions: &[Session]) {
    for session in sessions {
        let id = format!("claude-{}", session.name);
        let word = format!("word-{}\n", crate::ground::fresh());
        app.line.ok("writeStdin", json!({"id": id, "data": word}));
        app.events.says(&id, &word);
    }
}

/// Commands one after the other and four at a time, as the app has them, spread over the sessions.
fn works(ground: &Ground, app: &mut App, sessions: &mut [Session], commands: usize) {
    const AT_ONCE: usize = 4;
    let mut at = 0;
    while at < commands {
        let mut going = Vec::new();
        for _ in 0..AT_ONCE.min(commands - at) {
            let session = &mut sessions[at % sessions.len()];
            let id = format!("oneshot-{}-{}", session.name, session.commands);
            let script = format!("echo {id}; cat mnt/proj/file; echo . >> ~/count");
            going.push((
                app.line
                    .request("spawn", session.params(ground, &id, &script)),
                id,
            ));
            session.commands += 1;
            at += 1;
        }
        for (number, id) in going {
            let reply = app.line.reply(number);
            assert_eq!(reply["result"]["failedMounts"], json!([]), "{reply}");
            assert_eq!(
                app.events.finished(&id).ok(),
                format!("{id}\nof the user\n")
            );
        }
        if at % 40 == 0 {
            assert!(app.line.is_connected());
        }
    }
}

/// A folder in the middle of it, seen by the next command of a session that runs.
fn shares(ground: &Ground, app: &mut App, sessions: &[Session]) {
    for session in sessions.iter().step_by(3) {
        let params = json!({
            "processId": format!("claude-{}", session.name), "subpath": from_root(&session.extra),
            "mountName": "late", "mode": "ro",
        });
        let result = app.line.ok("mountPath", params);
        assert_eq!(
            result["guestPath"],
            format!("/sessions/{}/mnt/late", session.name)
        );
        let id = format!("oneshot-late-{}", session.name);
        let params = session.params(ground, &id, "cat mnt/late/file");
        let mut params = params;
        params["additionalMounts"]["late"] = mount(&session.extra, "ro");
        assert_eq!(app.run(params).ok(), "of the user\n");
    }
}

/// Commands that take too long, as the app ends them.
fn stops(ground: &Ground, app: &mut App, sessions: &[Session]) {
    for session in sessions.iter().step_by(2) {
        let id = format!("oneshot-long-{}", session.name);
        app.line
            .spawn(session.params(ground, &id, "echo up; sleep 1000 & sleep 1000"));
        app.events.says(&id, "up");
        app.line.ok("kill", json!({"id": id, "signal": "SIGTERM"}));
        app.events.finished(&id).ended(143, Some("SIGTERM"));
    }
}

/// Every home is as its commands left it.
fn remembers(ground: &Ground, app: &mut App, sessions: &[Session]) {
    for session in sessions {
        let id = format!("oneshot-count-{}", session.name);
        let said = app
            .run(session.params(ground, &id, "cat ~/count 2>/dev/null | wc -l"))
            .ok();
        assert_eq!(
            said.trim(),
            session.commands.to_string(),
            "{}",
            session.name
        );
    }
}

#[test]
fn a_day_from_morning_to_night() {
    let sessions = number("COWORK_TEST_DESKTOP_SESSIONS", 5);
    let commands = number("COWORK_TEST_DESKTOP_COMMANDS", 100);
    let mut ground = Ground::new();
    let mut sessions: Vec<Session> = (0..sessions)
        .map(|at| Session {
            name: ground.other(&at.to_string()),
            proj: ground.folder(&format!("proj-{at}")),
            extra: ground.folder(&format!("extra-{at}")),
            commands: 0,
        })
        .collect();

    let mut app = boots(&ground);
    opens(&ground, &mut app, &sessions);
    works(&ground, &mut app, &mut sessions, commands / 4);
    // What there is now is what there is in the evening: nothing grows by commands.
    let descriptors = ground.descriptors();
    let files = count(&ground.world.path("state"));
    let (memory, _) = ground.memory();
    works(&ground, &mut app, &mut sessions, commands / 4);
    shares(&ground, &mut app, &sessions);
    stops(&ground, &mut app, &sessions);
    talks(&mut app, &sessions);
    remembers(&ground, &mut app, &sessions);
    ground.has_at_most(descriptors, "no descriptor is kept");
    let more = count(&ground.world.path("state"));
    assert!(more <= files + sessions.len(), "{files} files, then {more}");
    let (later, _) = ground.memory();
    assert!(later < memory + 16 * 1024, "{memory} KiB, then {later} KiB");

    // The app dies, and with it everything; tomorrow it is here again.
    let watch = ground.boxed();
    assert!(watch.len() >= 2 * sessions.len());
    drop(app);
    let mut helper = ground.helper.take().unwrap();
    drop(helper.app.take());
    helper.ends();
    watch.all_gone();
    assert!(!exists(&ground.socket()));
    ground.start(&[]);
    let mut app = boots(&ground);
    opens(&ground, &mut app, &sessions);
    works(&ground, &mut app, &mut sessions, commands / 4);
    remembers(&ground, &mut app, &sessions);

    // The helper dies; the app starts another.
    let watch = ground.boxed();
    ground.helper.as_mut().unwrap().crashes();
    watch.all_gone();
    drop(app);
    ground.start(&[]);
    assert!(!ground.line().is_connected());
    let mut app = boots(&ground);
    opens(&ground, &mut app, &sessions);
    works(
        &ground,
        &mut app,
        &mut sessions,
        commands - 3 * (commands / 4),
    );
    remembers(&ground, &mut app, &sessions);

    // Night: the app says so.
    app.line.ok("stopVM", json!({}));
    for session in &sessions {
        app.events.finished(&format!("claude-{}", session.name));
    }
    eventually("only the helper is left", || {
        ground.processes() == [ground.pid()]
    });
    let names: Vec<&str> = sessions
        .iter()
        .map(|session| session.name.as_str())
        .collect();
    let result = app.line.ok("deleteSessionDirs", json!({"names": names}));
    assert_eq!(
        result["deleted"].as_array().unwrap().len(),
        names.len(),
        "{result}"
    );
    drop(app);
    drop(ground.helper.take());
    let left = count(&ground.world.path("state"));
    assert!(left < 20 + 4 * sessions.len(), "{left} files are left");
    assert!(!exists(&ground.socket()));
    let sockets = std::process::Command::new("find")
        .arg(ground.world.path("run"))
        .args(["-type", "s"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&sockets.stdout), "");
}
