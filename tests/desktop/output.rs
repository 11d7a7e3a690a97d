//! What programs print, to the letter (O1 to O13).

use std::io::Read;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;

use crate::client::Line;
use crate::ground::{Ground, eventually, patience, within};

/// As much as a program prints in the cases about much; `COWORK_TEST_OUTPUT` says how much.
fn much() -> usize {
    let given = std::env::var("COWORK_TEST_OUTPUT").ok();
    given
        .and_then(|text| text.parse().ok())
        .unwrap_or(100_000_000)
}

/// The bound is the contract's: what the helper may have in memory at any time, in KiB.
const MOST_MEMORY: u64 = 64 * 1024;

#[test]
fn o1_o3_o5_o11_bytes_become_text() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let mut says = |id: &str, script: &str| app.run(ground.sh(id, script)).ok();
    assert_eq!(says("o1", "printf 'no newline'"), "no newline");
    assert_eq!(
        says("o3", r"printf '\xff\xfeA\x80'; printf ' goes on'"),
        "\u{fffd}\u{fffd}A\u{fffd} goes on"
    );
    let cut = says("o5", r"printf 'a\xe2\x82'");
    assert!(
        ["a\u{fffd}", "a\u{fffd}\u{fffd}"].contains(&cut.as_str()),
        "{cut:?}"
    );
    let all: String = (0..0x20).map(char::from).collect();
    let script = r"for i in $(seq 0 31); do printf \\$(printf %03o $i); done";
    assert_eq!(says("o11", script), all);
}

#[test]
fn o2_what_is_printed_is_heard_before_the_next_is() {
    let ground = Ground::booted();
    let mut app = ground.app();
    app.line
        .spawn(ground.sh("o2", "printf a; read word; printf b"));
    app.events.says("o2", "a");
    assert_eq!(app.events.of("o2").out, "a");
    app.line.ok("writeStdin", json!({"id": "o2", "data": "\n"}));
    assert_eq!(app.events.finished("o2").ok(), "ab");
}

#[test]
fn o4_a_character_in_two_pieces() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let script = r"printf 'x\xe2'; sleep 0.3; printf '\x82\xac'; sleep 0.3; printf '\xf0\x9f'; sleep 0.3; printf '\x98\x80'";
    assert_eq!(app.run(ground.sh("o4", script)).ok(), "x\u{20ac}\u{1f600}");
}

#[test]
fn o6_a_hundred_thousand_lines_in_order() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let done = app.run(ground.sh("o6", "seq 100000")).ok();
    let expected: String = (1..=100_000).map(|at| format!("{at}\n")).collect();
    assert!(done == expected, "{} bytes", done.len());
}

#[test]
fn o7_a_line_longer_than_a_frame() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let script = r"head -c 12000000 /dev/zero | tr '\0' '\001'; printf '\nend\n'";
    // The listener refuses frames that are too long.
    let done = app.run(ground.sh("o7", script)).ok();
    assert_eq!(done.len(), 12_000_005);
    assert!(done.ends_with("\u{1}\nend\n"));
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(default, borrow)]
    data: std::borrow::Cow<'a, str>,
}

/// Reads a line of events until the one process that there is has ended: how many letters it printed.
#[track_caller]
fn letters(line: &mut Line) -> usize {
    let mut count = 0;
    loop {
        let body = line.body().expect("an event, and not the end");
        let event: Event = serde_json::from_slice(&body).unwrap();
        match event.kind {
            "stdout" => {
                assert!(event.data.bytes().all(|byte| byte == b'x'));
                count += event.data.len();
            }
            "exit" => return count,
            _ => {}
        }
    }
}

fn subscribed(ground: &Ground) -> Line {
    let mut line = ground.line();
    line.say(&json!({"method": "subscribeEvents", "params": {}}));
    assert_eq!(line.hear().unwrap()["success"], true);
    line
}

fn prints(much: usize) -> String {
    format!("head -c {much} /dev/zero | tr '\\0' x")
}

#[test]
fn o8_much_output_and_little_memory() {
    let ground = Ground::booted();
    let mut events = subscribed(&ground);
    let mut line = ground.line();
    within(60, "all of it", || {
        line.spawn(ground.sh("o8", &prints(much())));
        assert_eq!(letters(&mut events), much());
    });
    let most = ground.memory().1;
    assert!(most < MOST_MEMORY, "{most} KiB");
}

#[test]
fn o9_who_never_reads_is_let_go_and_costs_nobody_anything() {
    let ground = Ground::booted();
    let mut stalled = subscribed(&ground);
    let mut reading = subscribed(&ground);
    let mut line = ground.line();
    line.spawn(ground.sh("o9", &prints(much())));
    assert_eq!(letters(&mut reading), much());
    let most = ground.memory().1;
    assert!(most < MOST_MEMORY, "{most} KiB");
    // What was sent before is there still, and then the end.
    let mut some = vec![0; 1 << 16];
    let deadline = Instant::now() + patience();
    let mut got = 0;
    loop {
        match stalled.stream.read(&mut some) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error}"),
        }
        assert!(Instant::now() < deadline, "it was not let go");
    }
    assert!(got < much(), "it was not let go");
    assert!(line.is_connected());
}

#[test]
fn o10_nobody_listens_and_the_program_waits() {
    let ground = Ground::booted();
    let mut line = ground.line();
    line.spawn(ground.sh("o10", &prints(much())));
    // It is stopped by its pipe: the helper has nothing to do any more.
    let mut before = u64::MAX;
    eventually("nothing moves", || {
        std::thread::sleep(Duration::from_millis(300));
        let now = ground.ticks();
        let is_still = now == before;
        before = now;
        is_still
    });
    let running = line.ok("isProcessRunning", json!({"id": "o10"}));
    assert_eq!(running, json!({"running": true}));
    assert!(ground.memory().1 < MOST_MEMORY, "{:?}", ground.memory());
    let mut events = subscribed(&ground);
    assert_eq!(letters(&mut events), much());
    assert!(ground.memory().1 < MOST_MEMORY, "{:?}", ground.memory());
}

#[test]
fn o12_two_programs_and_two_streams() {
    let ground = Ground::booted();
    let mut app = ground.app();
    for id in ["a", "b"] {
        let script = format!("for i in $(seq 500); do echo {id}o$i; echo {id}e$i >&2; done");
        app.line.spawn(ground.sh(id, &script));
    }
    for id in ["a", "b"] {
        let done = app.events.finished(id);
        let lines =
            |kind: &str| -> String { (1..=500).map(|at| format!("{id}{kind}{at}\n")).collect() };
        assert_eq!((done.out, done.err), (lines("o"), lines("e")));
    }
}

#[test]
fn o13_a_closed_stream_is_no_end() {
    let ground = Ground::booted();
    let mut app = ground.app();
    app.line
        .spawn(ground.sh("o13", "echo last; exec >&- 2>&-; read word; exit 7"));
    app.events.says("o13", "last\n");
    app.events.listen(Duration::from_millis(700));
    assert!(
        app.events.of("o13").exit.is_none(),
        "it ended with its streams"
    );
    app.line
        .ok("writeStdin", json!({"id": "o13", "data": "\n"}));
    app.events.finished("o13").ended(7, None);
}
