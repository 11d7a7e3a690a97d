//! What the app writes to a program's standard input (S12 to S16).

use std::time::Duration;

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::ground::{Ground, within};

#[test]
fn s12_many_writes_in_order() {
    let ground = Ground::booted();
    let mut app = ground.app();
    app.line.spawn(ground.sh("c", "head -n 1000"));
    let numbers: Vec<u64> = (0..1000)
        .map(|at| {
            app.line
                .request("writeStdin", json!({"id": "c", "data": format!("{at}\n")}))
        })
        .collect();
    for number in numbers {
        assert_eq!(app.line.reply(number)["success"], true);
    }
    let expected: String = (0..1000).map(|at| format!("{at}\n")).collect();
    assert_eq!(app.events.finished("c").ok(), expected);
}

#[test]
fn s13_nobody_there_to_read() {
    let ground = Ground::booted();
    let mut app = ground.app();
    app.run(ground.sh("gone", "true"));
    let why = app
        .line
        .refused("writeStdin", json!({"id": "gone", "data": "x"}));
    assert!(why.contains("gone") && why.contains("has exited"), "{why}");
    let why = app
        .line
        .refused("writeStdin", json!({"id": "nobody", "data": "x"}));
    assert!(why.contains("nobody") && why.contains("not found"), "{why}");
}

#[test]
fn s14_a_program_that_never_reads() {
    let ground = Ground::booted();
    let mut app = ground.app();
    app.line.spawn(ground.sh("deaf", "echo up; sleep 1000"));
    app.events.says("deaf", "up");
    let before = ground.memory().0;
    let mib = "x".repeat(1 << 20);
    // From many lines, so that the socket of one is not what holds them back.
    let mut lines: Vec<_> = (0..40).map(|_| ground.line()).collect();
    let mut asked = Vec::new();
    for line in &mut lines {
        line.stream
            .set_write_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let body = json!({"method": "writeStdin", "id": 1, "params": {"id": "deaf", "data": mib}});
        let bytes = crate::client::frame(body.to_string().as_bytes());
        // One that it does not even read is held back as well.
        asked.push(std::io::Write::write_all(&mut line.stream, &bytes).is_ok());
    }
    assert!(
        asked.iter().filter(|asked| **asked).count() >= 10,
        "{asked:?}"
    );
    for _ in 0..20 {
        within(2, "a ping", || assert!(app.line.is_connected()));
    }
    // The last one that was taken waits, and then it is told.
    let last = asked.iter().rposition(|asked| *asked).unwrap();
    let reply = lines[last].hear().expect("an answer");
    assert_eq!(reply["success"], false, "{reply}");
    assert!(
        reply["error"].as_str().unwrap().contains("-32002"),
        "{reply}"
    );
    let after = ground.memory().0;
    // Four times what the contract says is the frames themselves: forty of them are read at once here.
    assert!(after < before + 96 * 1024, "{before} KiB, then {after} KiB");
    app.line
        .ok("kill", json!({"id": "deaf", "signal": "SIGKILL"}));
    app.events.finished("deaf").ended(137, Some("SIGKILL"));
}

#[test]
fn s15_every_byte_as_it_is() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let odd = "nul \0 cr \r lf \n tab \t \u{1f600} \u{7f} \u{ffff} end".to_owned();
    let nine = "0123456789abcde\u{e9}".repeat((9 << 20) / 17);
    for (id, data) in [("odd", odd), ("nine", nine)] {
        let script = format!("head -c {} | sha256sum", data.len());
        app.line.spawn(ground.sh(id, &script));
        app.line.ok("writeStdin", json!({"id": id, "data": data}));
        let sum: String = Sha256::digest(data.as_bytes())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(app.events.finished(id).ok(), format!("{sum}  -\n"), "{id}");
    }
}

#[test]
fn s16_one_shots_have_nothing_to_read() {
    let ground = Ground::booted();
    let mut app = ground.app();
    assert_eq!(
        app.run(ground.sh("oneshot-2", "cat; echo done")).ok(),
        "done\n"
    );
    let asked = crate::ground::with(
        ground.sh("plain", "cat; echo done"),
        json!({"oneShot": true}),
    );
    assert_eq!(app.run(asked).ok(), "done\n");
}
