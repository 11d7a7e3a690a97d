//! A session that takes too much, another one that minds its own business, and the host around them.

use std::io::Write;
use std::process::Command;

use serde_json::Value;

use crate::ground::{Ground, eventually};
use crate::support::Ran;

/// Which of the two holds the limits here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    ByKernel,
    BySupervisor,
}

pub(crate) struct Scene {
    pub(crate) ground: Ground,
}

/// What every program in Python here starts with.
const PRELUDE: &str = "
import os, sys, time, errno, resource
def say(*words): os.write(1, (' '.join(map(str, words)) + '\\n').encode())
M = 1 << 20
";

pub(crate) fn python(program: &str) -> [String; 4] {
    ["python3", "-u", "-c", &format!("{PRELUDE}{program}")].map(str::to_owned)
}

impl Scene {
    /// With a neighbour that has nothing to do with it.
    pub(crate) fn new() -> Self {
        let ground = Ground::new();
        ground.start(
            &["--name", "neighbour", "--memory", "400M"],
            &["sleep", "1000"],
        );
        Self { ground }
    }

    /// Starts a session in the background that does this.
    #[track_caller]
    pub(crate) fn start(&self, name: &str, flags: &[&str], program: &str) {
        let program = python(program);
        let program: Vec<&str> = program.iter().map(String::as_str).collect();
        let flags = [&["--name", name][..], flags].concat();
        self.ground.start(&flags, &program);
    }

    /// Who holds the limits of a session; with `COWORK_TEST_REQUIRE=cgroup` it must be the kernel.
    #[track_caller]
    pub(crate) fn held(&self, id: &str) -> Held {
        let seen = self.ground.json(&["inspect", id]);
        let way = seen["seen"]["limits"][0].as_str().unwrap_or_default();
        let required = std::env::var("COWORK_TEST_REQUIRE").unwrap_or_default();
        let is_required = required.split(',').any(|name| name == "cgroup");
        match way.contains("by the cgroup") {
            true => Held::ByKernel,
            false => {
                assert!(!is_required, "{way}");
                assert!(way.contains("by supervision"), "{seen}");
                Held::BySupervisor
            }
        }
    }

    /// The neighbour's limits are held the same way as anybody's.
    pub(crate) fn way(&self) -> Held {
        self.held("neighbour")
    }

    /// What the journal says of limits that were met: which, and what happened.
    pub(crate) fn met(&self, id: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.ground.journal(id)).unwrap_or_default();
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        lines
            .filter(|entry: &Value| entry["what"] == "limit")
            .collect()
    }

    /// Waits until the journal names this limit with these words.
    #[track_caller]
    pub(crate) fn is_named(&self, id: &str, limit: &str, words: &str) {
        eventually(&format!("{words} in the journal of {id}"), || {
            self.met(id).iter().any(|entry| {
                entry["limit"] == limit && entry["value"].as_str().unwrap().contains(words)
            })
        });
    }

    /// What a session's program has said.
    pub(crate) fn said(&self, id: &str) -> String {
        self.ground.say(&["logs", id]).out
    }

    /// Waits until the program of a session has said this.
    #[track_caller]
    pub(crate) fn says(&self, id: &str, words: &str) {
        eventually(&format!("{id} says {words}"), || {
            self.said(id).contains(words)
        });
    }

    /// How a session ended, as it is told.
    #[track_caller]
    pub(crate) fn ended_by(&self, id: &str, words: &str) {
        self.ground.becomes(id, "ended");
        let seen = self.ground.say(&["inspect", id]).ok();
        assert!(seen.out.contains(words), "{}", seen.out);
    }

    /// The neighbour still runs and can be entered, and the host still does what hosts do.
    #[track_caller]
    pub(crate) fn others_are_well(&self) {
        assert_eq!(self.ground.state("neighbour"), "running");
        let own = self.ground.exec(
            "neighbour",
            &["sh", "-c", "echo in && : > /tmp/x && echo out"],
        );
        own.ok().says("in\nout");
        assert_eq!(self.met("neighbour"), Vec::<Value>::new());
        let host =
            Ran::of(Command::new("sh").args(["-c", "for i in 1 2 3 4 5; do sh -c : & done; wait"]));
        host.ok();
        let mut files: Vec<_> = (0..20).map(|_| tempfile::tempfile().unwrap()).collect();
        files
            .iter_mut()
            .for_each(|file| file.write_all(&[1; 4096]).unwrap());
        let held = vec![1u8; 32 << 20];
        assert_eq!(
            held.iter().map(|byte| u64::from(*byte)).sum::<u64>(),
            32 << 20
        );
    }
}
