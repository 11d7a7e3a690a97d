//! Frames and envelopes (F1 to F20).

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{LONGEST, Line, frame, once};
use crate::ground::{Ground, with, within};

/// `{"method":"isRunning","id":1}`, with its length.
const ASKS: &str = "0000001d7b226d6574686f64223a22697352756e6e696e67222c226964223a317d";

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = (0..hex.len()).step_by(2).map(|at| &hex[at..at + 2]);
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

/// The connection is as good as new.
#[track_caller]
fn still_answers(line: &mut Line) {
    line.put(&bytes(ASKS));
    let reply = line.hear().expect("an answer");
    assert_eq!(
        reply,
        json!({"success": true, "result": {"running": false}, "id": 1})
    );
}

#[track_caller]
fn says_parse_error(reply: &Value) {
    assert_eq!(reply["success"], false, "{reply}");
    let error = reply["error"].as_str().unwrap();
    assert!(error.starts_with("parse error"), "{error}");
}

#[test]
fn f1_f3_the_smallest_exchange_at_once_and_byte_by_byte() {
    let ground = Ground::new();
    let mut line = ground.line();
    still_answers(&mut line);
    for byte in bytes(ASKS) {
        line.put(&[byte]);
        // The case is about bytes that arrive apart.
        std::thread::sleep(Duration::from_millis(5));
    }
    let reply = line.hear().unwrap();
    assert_eq!(reply["result"], json!({"running": false}));
}

#[test]
fn f2_one_request_without_a_number_and_then_silence() {
    let ground = Ground::new();
    let mut line = ground.line();
    line.put(&bytes(
        "000000167b226d6574686f64223a22697352756e6e696e67227d",
    ));
    line.says_no_more();
    let reply = line.hear().unwrap();
    assert_eq!(
        reply,
        json!({"success": true, "result": {"running": false}})
    );
    line.is_closed();
}

#[test]
fn f4_many_requests_in_one_write() {
    let ground = Ground::new();
    let mut line = ground.line();
    let mut all = Vec::new();
    for id in 1..=50 {
        let request = json!({"method": "isRunning", "id": id});
        all.extend(frame(request.to_string().as_bytes()));
    }
    line.put(&all);
    let replies = (1..=50).map(|_| line.hear().unwrap()["id"].as_u64().unwrap());
    let mut ids: Vec<u64> = replies.collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=50).collect::<Vec<u64>>());
}

#[test]
fn f5_numbers_come_back_as_they_are() {
    let ground = Ground::new();
    let mut line = ground.line();
    for id in [json!(0), json!("a"), json!(1.5), json!("")] {
        line.say(&json!({"method": "isRunning", "id": id}));
        assert_eq!(line.hear().unwrap()["id"], id);
    }
    line.say(&json!({"method": "isRunning", "id": null}));
    assert!(line.hear().unwrap().get("id").is_none());
}

#[test]
fn f6_to_f9_what_is_no_request_is_said_to_be_none_and_the_connection_stays() {
    let ground = Ground::new();
    let mut line = ground.line();
    for body in [
        &b"{\"method\":"[..],
        b"[1,2]",
        b"\xff\xfe",
        b"7",
        b"\"x\"",
        b"null",
    ] {
        line.put(&frame(body));
        says_parse_error(&line.hear().unwrap());
        still_answers(&mut line);
    }
    for body in [
        "{\"id\":7}",
        "{\"id\":7,\"method\":3}",
        "{\"id\":7,\"method\":null}",
    ] {
        line.put(&frame(body.as_bytes()));
        let reply = line.hear().unwrap();
        says_parse_error(&reply);
        assert_eq!(reply["id"], 7);
        still_answers(&mut line);
    }
}

#[test]
fn f10_to_f12_lengths_out_of_range_are_named_and_end_the_connection() {
    let ground = Ground::new();
    let mut other = ground.line();
    still_answers(&mut other);
    let before = ground.memory().0;
    for (length, more) in [(0u32, 0), (u32::MAX, 16), (LONGEST as u32 + 1, 0)] {
        within(5, "a refusal", || {
            let mut line = ground.line();
            line.put(&[&length.to_be_bytes()[..], &vec![b'x'; more]].concat());
            let reply = line.hear().expect("it says why");
            assert_eq!(reply["success"], false);
            let error = reply["error"].as_str().unwrap();
            assert!(error.contains(&length.to_string()), "{error}");
            assert!(error.contains("out of range"), "{error}");
            line.is_closed();
        });
    }
    // Nothing was set aside for what never came.
    let after = ground.memory().0;
    assert!(after < before + 5 * 1024, "{before} KiB, then {after} KiB");
    still_answers(&mut other);
}

#[test]
fn f13_the_longest_frame_there_may_be() {
    let ground = Ground::booted();
    let mut app = ground.app();
    app.line.spawn(ground.sh("sink", "cat > /dev/null"));
    let text = json!({"method": "writeStdin", "id": 9, "params": {"id": "sink", "data": "x"}});
    let mut text = text.to_string();
    let room = LONGEST - text.len();
    text.insert_str(1, &" ".repeat(room));
    app.line.put(&frame(text.as_bytes()));
    let reply = app.line.reply(9);
    assert_eq!(reply["success"], true, "{reply}");
    app.line.ok("kill", json!({"id": "sink"}));
    app.events.finished("sink");
}

#[test]
fn f14_half_a_frame_and_gone() {
    let ground = Ground::new();
    let mut other = ground.line();
    still_answers(&mut other);
    let before = ground.descriptors();
    let mut line = ground.line();
    line.put(&[&100u32.to_be_bytes()[..], b"{\"method\":"].concat());
    drop(line);
    still_answers(&mut other);
    ground.has_at_most(before, "it is let go");
    let log = ground.log();
    assert!(!log.to_lowercase().contains("error"), "{log}");
}

#[test]
fn f15_half_a_header_and_nothing_more() {
    let ground = Ground::new();
    let mut line = ground.line();
    line.put(&[0, 0]);
    let before = ground.ticks();
    // A loop without rest would show in this time.
    std::thread::sleep(Duration::from_millis(700));
    let used = ground.ticks() - before;
    assert!(used < 30, "{used} ticks while nothing happened");
    within(2, "another answer", || still_answers(&mut ground.line()));
}

#[test]
fn f16_a_method_that_nobody_knows() {
    let ground = Ground::new();
    let mut line = ground.line();
    line.put(&bytes(
        "000000177b226d6574686f64223a227a7a7a222c226964223a357d",
    ));
    assert_eq!(
        line.hear().unwrap(),
        json!({"success": false, "error": "unknown method: zzz", "id": 5})
    );
    drop((line, ground));

    let mut lenient = Ground::bare();
    lenient.start(&["--lenient-unknown"]);
    let reply = once(&lenient.socket(), "zzz", json!({}));
    assert_eq!(reply, json!({"success": true, "result": {}}));
}

#[test]
fn f17_params_may_be_missing() {
    let ground = Ground::new();
    let mut line = ground.line();
    for (at, method) in ["stopVM", "startVM", "isRunning", "getNetworkDrives"]
        .iter()
        .enumerate()
    {
        for params in ["", ",\"params\":null", ",\"params\":{}"] {
            line.put(&frame(
                format!("{{\"method\":\"{method}\",\"id\":{at}{params}}}").as_bytes(),
            ));
            let reply = line.hear().unwrap();
            assert_eq!(reply["success"], true, "{method} {params}: {reply}");
            assert_eq!(reply["id"], at);
        }
        line.put(&frame(
            format!("{{\"method\":\"{method}\",\"id\":77,\"params\":[]}}").as_bytes(),
        ));
        assert_eq!(line.hear().unwrap()["id"], 77);
    }
    line.ok("stopVM", json!({}));
}

#[test]
fn f18_fields_that_nobody_knows() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let more = json!({
        "newA": 1, "newB": "x", "newC": null, "newD": [1, [2]], "newE": {"a": {"b": 1}},
        "newF": true, "newG": 1.5, "newH": "", "sharedCwdPath": false, "mountConda": {"x": []},
    });
    let done = app.run(with(ground.sh("a", "echo fine"), more));
    assert_eq!(done.ok(), "fine\n");
    app.line
        .say(&json!({"method": "isRunning", "id": "q", "jsonrpc": "2.0", "trace": [1]}));
    assert_eq!(app.line.hear().unwrap()["id"], "q");
}

#[test]
fn f19_f20_deep_nesting_and_two_methods_in_one() {
    let ground = Ground::new();
    let mut line = ground.line();
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        line.put(&frame(
            format!("{{\"method\":\"spawn\",\"id\":3,\"params\":{deep}}}").as_bytes(),
        ));
        says_parse_error(&line.hear().unwrap());
        still_answers(&mut line);
    }
    line.put(&frame(
        b"{\"method\":\"isRunning\",\"method\":\"zzz\",\"id\":1}",
    ));
    line.hear().expect("one answer");
    still_answers(&mut line);
}

#[test]
fn a_frame_that_never_ends_is_no_burden() {
    // As long as a body may be, of which half comes, from many: what is waited for is not set aside.
    let ground = Ground::new();
    let before = ground.memory().0;
    let mut lines: Vec<UnixStream> = (0..50)
        .map(|_| UnixStream::connect(ground.socket()).unwrap())
        .collect();
    for line in &mut lines {
        line.write_all(&(LONGEST as u32).to_be_bytes()).unwrap();
        line.write_all(&[b' '; 1000]).unwrap();
    }
    still_answers(&mut ground.line());
    let after = ground.memory().0;
    assert!(after < before + 20 * 1024, "{before} KiB, then {after} KiB");
}
