//! Clients that mean harm, or are merely broken: each is refused, what is around it is not touched, and
//! everybody else is served as before.

use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use crate::client::{LONGEST, frame};
use crate::ground::{Ground, eventually, mount, private, with, within};
use crate::support::exists;

/// Another session whose program has to come through all of it unharmed.
pub(crate) struct Bystander {
    app: crate::client::App,
}

impl Bystander {
    pub(crate) fn of(ground: &Ground) -> Self {
        let mut app = ground.app();
        let name = json!({"name": ground.other("bystander")});
        app.line.spawn(with(
            ground.sh("bystander", "while read x; do echo $x; done"),
            name,
        ));
        Self { app }
    }

    #[track_caller]
    pub(crate) fn is_served(&mut self) {
        within(10, "the bystander", || {
            let word = format!("word-{}\n", crate::ground::fresh());
            self.app
                .line
                .ok("writeStdin", json!({"id": "bystander", "data": word}));
            self.app.events.says("bystander", &word);
        });
    }
}

#[test]
fn bytes_that_mean_nothing() {
    let ground = Ground::booted();
    let mut bystander = Bystander::of(&ground);
    let noise: Vec<u8> = (0..50_000u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let letters = "GET / HTTP/1.1\r\nHost: x\r\n\r\n".as_bytes().to_vec();
    let zeroes = vec![0; 4096];
    let ones = vec![0xff; 4096];
    for bytes in [noise, letters, zeroes, ones] {
        let mut stream = UnixStream::connect(ground.socket()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let _ = stream.write_all(&bytes);
        // It is answered and closed, or waited for; either way it does not go on.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        bystander.is_served();
    }
    eventually("all are let go", || ground.descriptors() < 60);
}

#[test]
fn the_slow_and_the_silent() {
    let ground = Ground::booted();
    let mut bystander = Bystander::of(&ground);
    let request = frame(b"{\"method\":\"isRunning\",\"id\":1}");
    let mut slow: Vec<UnixStream> = (0..20)
        .map(|_| UnixStream::connect(ground.socket()).unwrap())
        .collect();
    for byte in &request {
        for line in &mut slow {
            line.write_all(&[*byte]).unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
        bystander.is_served();
    }
    for line in slow {
        let mut line = crate::client::Line::over(line);
        assert_eq!(line.hear().unwrap()["result"], json!({"running": true}));
    }
    // One that asks and never reads its answers: it waits by itself.
    let mut deaf = UnixStream::connect(ground.socket()).unwrap();
    deaf.set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let before = ground.memory().0;
    let many = request.repeat(1000);
    for _ in 0..200 {
        if deaf.write_all(&many).is_err() {
            break;
        }
    }
    bystander.is_served();
    let after = ground.memory().0;
    assert!(after < before + 64 * 1024, "{before} KiB, then {after} KiB");
}

#[test]
fn thousands_of_connections() {
    let ground = Ground::booted();
    let mut bystander = Bystander::of(&ground);
    bystander.is_served();
    let before = ground.descriptors();
    let mut held = Vec::new();
    // As many as one process may have, whoever's limit is met first.
    for at in 0..4000 {
        let Ok(mut stream) = UnixStream::connect(ground.socket()) else {
            break;
        };
        if at % 2 == 0 {
            let _ = stream.write_all(&frame(b"{\"method\":\"isRunning\"}"));
        }
        held.push(stream);
    }
    assert!(held.len() > 900, "{}", held.len());
    bystander.is_served();
    drop(held);
    ground.has_at_most(before, "all are let go");
    assert!(ground.line().is_connected());
    bystander.is_served();
}

#[test]
fn the_largest_requests_of_all_at_once() {
    let ground = Ground::booted();
    let mut bystander = Bystander::of(&ground);
    let mut text = b"{\"method\":\"isRunning\",\"id\":1,\"x\":\"".to_vec();
    text.resize(LONGEST - 2, b'y');
    text.extend(b"\"}");
    let bytes = frame(&text);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut line = ground.line();
                line.put(&bytes);
                assert_eq!(line.hear().unwrap()["success"], true);
            });
        }
        bystander.is_served();
    });
    // What it took for them is given back, or at least not taken again.
    let mut line = ground.line();
    for _ in 0..3 {
        line.put(&bytes);
        assert_eq!(line.hear().unwrap()["success"], true);
    }
    let most = ground.memory().1;
    assert!(most < 300 * 1024, "{most} KiB");
}

#[test]
fn a_socket_directory_that_is_a_link_or_open_to_others() {
    let mut ground = Ground::bare();
    let elsewhere = ground.world.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    private(&elsewhere);
    let refuses = |ground: &Ground, socket: PathBuf, about: &str| {
        let mut command = ground.cowork();
        command.args(["helper", "-socket"]).arg(&socket);
        let mut helper = ground.launch(&mut command);
        assert!(!helper.ends().success(), "{about}");
        assert!(!exists(&socket), "{about}");
        let log = ground.log();
        assert!(
            log.contains(socket.parent().unwrap().to_str().unwrap()),
            "{about}: {log}"
        );
    };
    symlink(&elsewhere, ground.world.path("linked")).unwrap();
    refuses(&ground, ground.world.path("linked/x.sock"), "a link");
    let open = ground.world.path("open");
    std::fs::create_dir(&open).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&open, mode).unwrap();
    refuses(&ground, open.join("x.sock"), "open to all");
    refuses(&ground, ground.world.path("missing/x.sock"), "missing");
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
    ground.start(&[]);
}

#[test]
fn more_sessions_and_processes_than_anybody_wants() {
    let ground = Ground::booted();
    let mut bystander = Bystander::of(&ground);
    let folder = ground.folder("w");
    let mut line = ground.line();
    // A list of mounts longer than any app has.
    let mut mounts = json!({});
    for at in 0..3000 {
        mounts[format!("m{at}")] = mount(&folder.join("missing"), "ro");
    }
    let params = with(
        ground.sh("many", "true"),
        json!({"additionalMounts": mounts}),
    );
    line.ask("spawn", params);
    bystander.is_served();
    // A list of names, none of which is.
    let names: Vec<String> = (0..20_000).map(|at| format!("no-such-{at}")).collect();
    line.ask("deleteSessionDirs", json!({"names": names}));
    bystander.is_served();
    let domains: Vec<String> = (0..20_000).map(|at| format!("h{at}.test")).collect();
    line.ask(
        "spawn",
        with(
            ground.sh("domains", "true"),
            json!({"allowedDomains": domains}),
        ),
    );
    bystander.is_served();
}
