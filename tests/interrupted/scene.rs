//! A session to be interrupted in, and what must hold whatever was interrupted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::ground::{Ground, eventually};
use crate::support::exists;
use crate::tracer::{Moment, Struck};
use crate::watch::{Watch, children, descendants};

/// How many calls of an operation are tried in the suite.
const USUAL: usize = 4;

/// Which of so many calls to die at: the first, the last, and some between.
fn moments(calls: u64) -> Vec<Moment> {
    let wanted = match std::env::var("COWORK_TEST_MOMENTS").as_deref() {
        Ok("all") => calls as usize,
        Ok(number) => number.parse().unwrap(),
        Err(_) => USUAL,
    };
    let wanted = (wanted as u64).clamp(2, calls.max(2));
    // The very last ones are made when the caller has been answered, or later.
    let last = if wanted == calls {
        calls
    } else {
        calls - calls / 20
    };
    let mut all: Vec<_> = (0..wanted)
        .map(|step| 1 + step * (last - 1) / (wanted - 1))
        .collect();
    all.dedup();
    all.into_iter().map(Moment::Call).collect()
}

/// Does it once to the end, to count, and then once for each moment.
#[track_caller]
pub fn at_each_moment(mut strike: impl FnMut(Moment) -> Struck) {
    let whole = strike(Moment::Never);
    assert!(!whole.was_killed && whole.calls > 10, "{whole:?}");
    let mut hits = 0;
    let moments = moments(whole.calls);
    for moment in &moments {
        hits += usize::from(strike(*moment).was_killed);
    }
    // How many calls there are depends a little on what else the machine has to do.
    assert!(hits * 2 >= moments.len(), "{hits} of {moments:?}");
}

/// A box that stays, over a folder; and another folder to be shown later.
pub struct Scene {
    pub ground: Ground,
    pub id: String,
    pub supervisor: i32,
    first: i32,
    descriptors: usize,
    folders: BTreeMap<PathBuf, String>,
}

impl Scene {
    pub fn new() -> Self {
        Self::over(Ground::new())
    }

    pub fn over(ground: Ground) -> Self {
        for folder in ["w", "more"] {
            ground.world.write(&format!("{folder}/file"), folder);
            ground
                .world
                .write(&format!("{folder}/deep/er/file"), "deep");
        }
        let id = ground.start(&["--keep", "--name", "s"], &[]);
        let seen = ground.json(&["inspect", &id]);
        let number = |value: &Value| value.as_i64().unwrap() as i32;
        let supervisor = number(&seen["record"]["supervisor"]["pid"]);
        let first = number(&seen["seen"]["pid"]);
        // Answered once, it has read all that it reads only once.
        ground.exec(&id, &["true"]).ok();
        let mut scene = Self {
            descriptors: 0,
            folders: BTreeMap::new(),
            ground,
            id,
            supervisor,
            first,
        };
        scene.descriptors = scene.open_files();
        scene.folders = scene.contents();
        scene
    }

    pub fn more(&self) -> PathBuf {
        self.ground.world.path("more")
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = self.ground.bare();
        command.args(words);
        command
    }

    fn open_files(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.supervisor);
        std::fs::read_dir(folder).map_or(0, Iterator::count)
    }

    /// Everything in the two folders.
    fn contents(&self) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        for folder in ["w", "more"] {
            read_all(&self.ground.world.path(folder), &mut found);
        }
        found
    }

    #[track_caller]
    pub fn folders_are_whole(&self) {
        assert_eq!(self.contents(), self.folders);
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let ours = self.ground.world.path("");
        assert!(!mounts.contains(ours.to_str().unwrap()), "{mounts}");
    }

    /// What the supervisor says is shown besides, after checking that it is what is seen inside.
    #[track_caller]
    pub fn shown(&self) -> Vec<String> {
        let seen = self.ground.json(&["inspect", &self.id]);
        let told = seen["seen"]["mounted"].as_array().unwrap().iter();
        let told: Vec<_> = told
            .map(|mount| mount["place"].as_str().unwrap().to_owned())
            .collect();
        let mounts = self.ground.exec(&self.id, &["cat", "/proc/self/mountinfo"]);
        let list = self.ground.exec(&self.id, &["ls", "/sessions/s/mnt"]).ok();
        let is_seen = mounts.ok().out.contains(" /sessions/s/mnt/more ");
        assert_eq!(is_seen, !told.is_empty(), "{seen}");
        assert_eq!(list.out.contains("more"), is_seen, "{}", list.out);
        told
    }

    /// The session goes on as if nothing had been.
    #[track_caller]
    pub fn goes_on(&self) {
        let list = self.ground.say(&["ls"]).ok();
        assert!(list.out.contains("running"), "{}", list.out);
        self.ground.say(&["gc"]).ok();
        let inside =
            || children(self.first).is_empty() && children(self.supervisor) == [self.first];
        eventually("only the box is left", inside);
        eventually("nothing stays open", || {
            self.open_files() <= self.descriptors
        });
        self.folders_are_whole();
    }

    /// Everybody in the box and the supervisor.
    pub fn all(&self) -> Watch {
        Watch::over(&[&descendants(self.supervisor)[..], &[self.supervisor]].concat())
    }

    /// The session is over, and what it left is told of and goes.
    #[track_caller]
    pub fn ends(self) -> Ground {
        eventually("nobody is left", || self.ground.processes().is_empty());
        is_cleared(&self.ground);
        self.folders_are_whole();
        self.ground
    }
}

/// What is left of the session is told of and goes, and its name can be used again.
#[track_caller]
pub fn is_cleared(ground: &Ground) {
    for words in [
        &["ls", "-a"][..],
        &["ls", "-a", "--json"],
        &["gc"],
        &["status"],
        &["history"],
        &["history", "--verify"],
    ] {
        ground.say(words).ok();
    }
    assert!(!exists(&ground.socket("s")), "gc left its socket");
    let list = ground.json(&["ls", "-a", "--json"]);
    let known = list.as_array().unwrap().iter().any(|it| it["id"] == "s");
    assert_eq!(known, exists(&ground.folder("s")), "{list}");
    if known {
        ground.json(&["inspect", "s"]);
        ground.say(&["rm", "s"]).ok();
    }
    assert!(!exists(&ground.folder("s")));
    let left = std::fs::read_dir(ground.world.path("state/cowork-linux/sessions"));
    let left: Vec<_> = left.into_iter().flatten().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

fn read_all(folder: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        match entry.file_type().unwrap().is_dir() {
            true => {
                read_all(&path, found);
                found.insert(path, "a folder".to_owned());
            }
            false => {
                let text = std::fs::read_to_string(&path).unwrap();
                found.insert(path, text);
            }
        }
    }
}
