//! Many connections, many questions, bad guests: the gateway goes on, and its memory stays bounded.
//!
//! `COWORK_TEST_CONNECTIONS` and `COWORK_TEST_QUESTIONS` ask for more than a test of every day does.

use serde_json::{Value, json};

use crate::ground::{Ground, eventually};
use crate::support::Ran;
use crate::world::{fresh, world};

const ECHO: u16 = 7;
/// What a gateway may weigh more after work than before, in KiB: caches and the like, nothing that
/// grows with the number of connections.
const GROWTH: u64 = 6 * 1024;

fn many(variable: &str, otherwise: u64) -> u64 {
    let asked = std::env::var(variable).ok();
    asked.map_or(otherwise, |text| text.parse().expect("a number"))
}

/// A session with a gateway, and a program that waits.
struct Busy {
    ground: Ground,
    id: String,
    name: String,
    address: String,
}

impl Busy {
    fn new(flags: &[&str]) -> Self {
        let ground = Ground::new();
        // An address of the web that nobody else uses.
        let address = format!("93.184.220.{}", fresh());
        let name = world().name_at("busy", &[&address]);
        let rule = format!("{name}:{ECHO},80,443");
        let flags = [&["--allow-host", rule.as_str()], flags].concat();
        let id = ground.start(&flags, &["sleep", "1000"]);
        Self {
            ground,
            id,
            name,
            address,
        }
    }

    #[track_caller]
    fn load(&self, words: &[&str]) -> Value {
        let words = [&["python3", "load.py"], words].concat();
        let ran = self.ground.exec(&self.id, &words).ok();
        serde_json::from_str(&ran.out).unwrap()
    }

    /// What the gateway weighs by itself, in KiB.
    fn weight(&self) -> u64 {
        let gateway = self.ground.gateway(&self.id);
        let question = json!({"ask": "run", "folder": "/", "words": ["cat", format!("/proc/{gateway}/smaps_rollup")]});
        let said = world().host(&question);
        let text = said["out"].as_str().unwrap();
        let line = text.lines().find(|line| line.starts_with("Pss:"));
        let line = line.unwrap_or_else(|| panic!("no gateway {gateway}: {said}"));
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    #[track_caller]
    fn still_works(&self) {
        let script = format!("curl -sS http://{}/echo", self.name);
        let ran: Ran = self.ground.exec(&self.id, &["sh", "-c", &script]);
        ran.ok().says("\"method\": \"GET\"");
    }
}

#[test]
fn a_thousand_connections_at_once() {
    let busy = Busy::new(&[]);
    let said = busy.load(&["at_once", &busy.name, "7", "1000"]);
    assert_eq!(said["same"], 1000);
    busy.still_works();
}

#[test]
fn connections_one_after_the_other_leave_nothing() {
    let busy = Busy::new(&[]);
    let count = many("COWORK_TEST_CONNECTIONS", 2000);
    busy.load(&["one_by_one", &busy.name, "7", "500"]);
    let before = busy.weight();
    let said = busy.load(&["one_by_one", &busy.name, "7", &count.to_string()]);
    assert_eq!(said["same"], count);
    let after = busy.weight();
    assert!(after < before + GROWTH, "{before} KiB, then {after} KiB");
    let left = [json!({"do": "connections", "address": busy.address})];
    eventually("connections are closed", || {
        busy.ground.knock_outside(&left)[0].heard() == 0
    });
    busy.still_works();
}

#[test]
fn a_flood_of_questions_is_answered_and_forgotten() {
    let busy = Busy::new(&["--allow-host", "*.wild.test"]);
    let count = many("COWORK_TEST_QUESTIONS", 20_000);
    busy.load(&["questions", "2000", "N.wild.test", "N.exfil.test"]);
    let before = busy.weight();
    let said = busy.load(&[
        "questions",
        &count.to_string(),
        "xN.wild.test",
        "xN.exfil.test",
    ]);
    assert_eq!(said["codes"]["0"].as_u64(), Some(count / 2), "{said}");
    assert_eq!(said["codes"]["3"].as_u64(), Some(count / 2), "{said}");
    // Names that were given addresses are remembered, up to a number.
    let after = busy.weight();
    assert!(
        after < before + 4 * GROWTH,
        "{before} KiB, then {after} KiB"
    );
    assert!(
        world()
            .questions("exfil.test")
            .iter()
            .all(|asked| !asked.starts_with('x'))
    );
    busy.still_works();
}

#[test]
fn bad_guests_are_shown_out_and_the_house_stands() {
    let busy = Busy::new(&[]);
    let before = busy.weight();
    let gateway = busy.ground.gateway(&busy.id);
    for seed in ["1", "2"] {
        busy.load(&["rude", seed, &busy.name]);
    }
    let after = busy.weight();
    assert!(
        after < before + 4 * GROWTH,
        "{before} KiB, then {after} KiB"
    );
    assert_eq!(busy.ground.gateway(&busy.id), gateway, "the same process");
    busy.still_works();
}

#[test]
fn whoever_never_comes_to_the_point_keeps_nobody_else_waiting() {
    let busy = Busy::new(&[]);
    let before = busy.weight();
    let mut slow = busy.ground.cowork();
    slow.args([
        "exec", &busy.id, "--", "python3", "load.py", "hold", "150", "3128", "1080", "53",
    ]);
    let mut slow = slow.spawn().unwrap();
    busy.ground.waits_for(&busy.ground.work().join("holding"));
    for _ in 0..3 {
        busy.still_works();
    }
    let after = busy.weight();
    assert!(
        after < before + 8 * GROWTH,
        "{before} KiB, then {after} KiB"
    );
    slow.kill().unwrap();
    slow.wait().unwrap();
    busy.still_works();
}
