use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use serde_json::{Value, json};

use super::disk::{Pruning, Sizes};
use super::reading_tests::{make_session, seal};
use crate::policy::SessionId;
use crate::session::Places;

struct Ground {
    dir: tempfile::TempDir,
    places: Places,
    sizes: Sizes,
}

const ALL: Pruning = Pruning {
    only_if_free_below: 0,
    include_tmp: true,
    tmp_older_than: Duration::ZERO,
};

impl Ground {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir(top.join("mine")).unwrap();
        fs::write(top.join("mine/work"), "work").unwrap();
        Self {
            places: Places {
                state: top.join("state"),
                runtime: top.join("run"),
            },
            sizes: Sizes::default(),
            dir,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.dir.path()).unwrap().join(name)
    }

    /// A session that ended, with a cache and work in its home, and links to the user's folder.
    fn session(&self, name: &str) -> PathBuf {
        let folder = make_session(&self.places.state, name);
        let home = folder.join("inner/home");
        for name in [".cache/deep/er", ".npm/_cacache", "work", ".local/share"] {
            fs::create_dir_all(home.join(name)).unwrap();
        }
        fs::create_dir_all(folder.join("outputs")).unwrap();
        fs::create_dir_all(folder.join("tmp")).unwrap();
        for name in [
            ".cache/deep/er/x",
            ".npm/_cacache/x",
            "work/x",
            ".npm/config",
        ] {
            fs::write(home.join(name), vec![1; 100_000]).unwrap();
        }
        fs::write(folder.join("outputs/report"), "mine").unwrap();
        fs::write(folder.join("tmp/left"), "x").unwrap();
        symlink(self.path("mine"), home.join(".local/share/Trash")).unwrap();
        symlink(self.path("mine"), home.join("go")).unwrap();
        seal(&folder);
        folder
    }

    fn open(&self, folder: &Path) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let inner = folder.join("inner");
        fs::set_permissions(inner, fs::Permissions::from_mode(0o700)).unwrap();
        folder.join("inner/home")
    }

    fn info(&self) -> Value {
        serde_json::to_value(self.sizes.info(&self.places, 0)).unwrap()
    }

    fn prune(&self, how: Pruning) -> Value {
        let done = self.sizes.prune(&self.places, how, |_| false);
        serde_json::to_value(done).unwrap()
    }

    fn delete(&self, names: &[&str], running: &str) -> Value {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let is_running = |id: &SessionId| id.as_str() == running;
        let done = self.sizes.delete(&self.places, &names, is_running);
        serde_json::to_value(done).unwrap()
    }

    fn work_is_there(&self) {
        assert_eq!(fs::read_to_string(self.path("mine/work")).unwrap(), "work");
    }
}

/// Held as by the supervisor of a session that runs.
fn hold(folder: &Path) -> Flock<fs::File> {
    let lock = fs::File::open(folder.join("lock")).unwrap();
    Flock::lock(lock, FlockArg::LockExclusiveNonblock).unwrap()
}

#[test]
fn m31_sizes_are_of_the_sessions_alone_and_the_disk_is_told_truly() {
    let ground = Ground::new();
    let empty = ground.info();
    assert_eq!(empty["sessions"], json!([]));
    assert!(empty["totalBytes"].as_u64() > Some(0));
    ground.session("one");
    ground.session("two");
    fs::write(ground.path("mine/big"), vec![1; 5_000_000]).unwrap();
    let info = ground.info();
    assert!(info["freeBytes"].as_u64() <= info["totalBytes"].as_u64());
    let sessions = info["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 2);
    for (session, name) in sessions.iter().zip(["one", "two"]) {
        assert_eq!(session["name"], name);
        let size = session["sizeBytes"].as_u64().unwrap();
        assert!((400_000..2_000_000).contains(&size), "{size}");
    }
}

#[test]
fn counting_ends_when_its_time_is_up() {
    let ground = Ground::new();
    let folder = ground.session("one");
    let home = ground.open(&folder);
    for number in 0..200 {
        fs::write(home.join(format!("work/{number}")), "x").unwrap();
    }
    let id = SessionId::parse("one").unwrap();
    let none = ground.places.size(&id, Instant::now()).unwrap();
    let soon = Instant::now() + Duration::from_secs(60);
    let all = ground.places.size(&id, soon).unwrap();
    assert!(!none.is_whole && all.is_whole);
    assert!(none.bytes < all.bytes);
}

#[test]
fn a_tree_too_deep_to_name_is_counted_as_far_as_it_goes() {
    let ground = Ground::new();
    let folder = ground.session("one");
    let home = ground.open(&folder);
    let mut at = fs::File::open(home.join("work")).unwrap();
    for _ in 0..1500 {
        nix::sys::stat::mkdirat(&at, "dd", nix::sys::stat::Mode::S_IRWXU).unwrap();
        let flags = nix::fcntl::OFlag::O_DIRECTORY;
        let next = nix::fcntl::openat(&at, "dd", flags, nix::sys::stat::Mode::empty());
        at = next.unwrap().into();
    }
    let id = SessionId::parse("one").unwrap();
    let soon = Instant::now() + Duration::from_secs(60);
    let size = ground.places.size(&id, soon).unwrap();
    assert!(!size.is_whole && size.bytes >= 400_000);
    assert_eq!(ground.delete(&["one"], "")["deleted"], json!(["one"]));
    assert!(!folder.exists());
}

#[test]
fn m31_what_runs_stays_and_what_is_deleted_takes_nothing_along() {
    let ground = Ground::new();
    let one = ground.session("one");
    let two = ground.session("two");
    let three = ground.session("three");
    let lock = hold(&three);
    let names = ["one", "two", "three", "../x", "", "a/b", "nope", "..", "."];
    let done = ground.delete(&names, "two");
    assert_eq!(done["deleted"], json!(["one", "nope"]));
    let errors = done["errors"].as_object().unwrap();
    for name in ["two", "three"] {
        assert_eq!(errors[name], "session has a running process", "{name}");
    }
    for name in ["../x", "", "a/b", "..", "."] {
        let why = errors[name].as_str().unwrap();
        assert!(why.contains("not a session name"), "{name} {why}");
    }
    assert!(!one.exists() && two.exists() && three.exists());
    drop(lock);
    let done = ground.delete(&["two", "three"], "");
    assert_eq!(done, json!({"deleted": ["two", "three"], "errors": {}}));
    ground.work_is_there();
    assert!(ground.places.state.exists());
}

#[test]
fn a_link_in_the_place_of_a_session_is_not_followed() {
    let ground = Ground::new();
    let folder = ground.session("one");
    ground.open(&folder);
    fs::remove_dir_all(&folder).unwrap();
    symlink(ground.path("mine"), &folder).unwrap();
    assert_eq!(ground.info()["sessions"][0]["sizeBytes"], 0);
    let pruned = ground.prune(ALL);
    assert_eq!(pruned["prunedSessions"], json!([]));
    assert_eq!(pruned["errors"].as_object().unwrap().len(), 1);
    ground.delete(&["one"], "");
    ground.work_is_there();
}

#[test]
fn m32_caches_and_old_files_go_and_everything_else_stays() {
    let ground = Ground::new();
    let folder = ground.session("one");
    let done = ground.prune(ALL);
    let freed = done["freedBytes"].as_u64().unwrap();
    assert!((200_000..1_000_000).contains(&freed), "{freed}");
    let rest = json!({"prunedSessions": ["one"], "skippedSessions": [], "freedBytes": freed, "errors": {}});
    assert_eq!(done, rest);
    assert!(!folder.join("pruned").exists() && !folder.join("tmp/left").exists());
    assert!(folder.join("outputs/report").exists());
    let home = ground.open(&folder);
    for gone in [".cache", ".npm/_cacache"] {
        assert!(!home.join(gone).exists(), "{gone}");
    }
    for stays in ["work/x", ".npm/config", ".local/share/Trash", "go", "mnt"] {
        assert!(home.join(stays).exists(), "{stays}");
    }
    ground.work_is_there();
}

#[test]
fn links_in_the_place_of_caches_lead_nowhere() {
    let ground = Ground::new();
    let folder = ground.session("one");
    let home = ground.open(&folder);
    fs::create_dir_all(ground.path("mine/_cacache")).unwrap();
    fs::create_dir_all(ground.path("mine/pkg/mod/cache")).unwrap();
    for name in [".cache", ".npm"] {
        fs::remove_dir_all(home.join(name)).unwrap();
        symlink(ground.path("mine"), home.join(name)).unwrap();
    }
    fs::remove_dir_all(folder.join("tmp")).unwrap();
    symlink(ground.path("mine"), folder.join("tmp")).unwrap();
    symlink(ground.path("mine"), folder.join("pruned")).unwrap();
    ground.prune(ALL);
    fs::remove_file(folder.join("pruned")).unwrap();
    assert_eq!(ground.prune(ALL)["freedBytes"], 0);
    ground.work_is_there();
    for name in ["_cacache", "pkg/mod/cache"] {
        assert!(ground.path("mine").join(name).exists(), "{name}");
    }
    assert!(home.join(".cache").is_symlink());
}

#[test]
fn a_session_that_runs_is_skipped() {
    let ground = Ground::new();
    let one = ground.session("one");
    ground.session("two");
    let lock = hold(&one);
    let done = ground
        .sizes
        .prune(&ground.places, ALL, |id| id.as_str() == "two");
    let done = serde_json::to_value(done).unwrap();
    assert_eq!(done["skippedSessions"], json!(["one", "two"]));
    assert_eq!(done["prunedSessions"], json!([]));
    drop(lock);
    assert_eq!(ground.prune(ALL)["prunedSessions"], json!(["one", "two"]));
}

#[test]
fn the_disk_and_the_age_decide() {
    let ground = Ground::new();
    let folder = ground.session("one");
    let enough = Pruning {
        only_if_free_below: 1,
        ..ALL
    };
    let nothing =
        json!({"prunedSessions": [], "skippedSessions": [], "freedBytes": 0, "errors": {}});
    assert_eq!(ground.prune(enough), nothing);
    for (include_tmp, age, is_left) in [(false, 0, true), (true, 3600, true), (true, 0, false)] {
        let how = Pruning {
            only_if_free_below: u64::MAX,
            include_tmp,
            tmp_older_than: Duration::from_secs(age),
        };
        assert_eq!(ground.prune(how)["prunedSessions"], json!(["one"]));
        assert_eq!(
            folder.join("tmp/left").exists(),
            is_left,
            "{include_tmp} {age}"
        );
    }
}

#[test]
fn what_an_earlier_removal_was_killed_over_goes_with_the_next() {
    let ground = Ground::new();
    let folder = ground.session("one");
    fs::create_dir_all(folder.join("pruned/1-1/deep")).unwrap();
    fs::create_dir_all(folder.join("pruned/.removing-3/deep")).unwrap();
    assert_eq!(ground.prune(ALL)["errors"], json!({}));
    assert!(!folder.join("pruned").exists());
}
