//! The two launchers, a probe to run in their sandboxes, and what can be seen from outside.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::support::{self, DISTRIBUTION_BWRAP, Ran, World};

pub(crate) const SEARCH: &str = "/usr/local/bin:/usr/bin:/bin";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Launcher {
    /// The control.
    Distribution,
    Ours,
}

impl Launcher {
    pub(crate) fn program(self, world: &World) -> PathBuf {
        match self {
            Self::Distribution => DISTRIBUTION_BWRAP.into(),
            Self::Ours => support::bwrap_in(&world.path("")),
        }
    }

    /// A start of it. What root mounts stays out of the host's sight, whatever the launcher does.
    pub(crate) fn command(self, world: &World) -> Command {
        let mut command = plain(world, "unshare");
        if support::is_root() {
            command.args(["-m", "--propagation", "private"]);
            command.arg(self.program(world));
            command
        } else {
            plain(world, &self.program(world).display().to_string())
        }
    }

    pub(crate) fn run(self, world: &World, arguments: &[&str]) -> Ran {
        Ran::of(self.command(world).args(arguments))
    }

    /// Runs a script on a host of its own: a mount namespace whose mounts are shared among
    /// themselves, as under systemd, and with nobody else. `$BWRAP` is the launcher. An ordinary
    /// user is root there, by a user namespace.
    pub(crate) fn on_a_host(self, world: &World, script: &str) -> Command {
        // A launcher that fails must not leave the script waiting for it.
        let mut command = plain(world, "timeout");
        command.args(["20", "unshare"]);
        if !support::is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "--propagation", "private", "bash", "-ec"]);
        command.arg(format!("mount --make-rshared /\n{script}"));
        command.env("BWRAP", self.program(world));
        command
    }

    /// Runs a script that opens what the launcher is to find open. `$BWRAP` is the launcher.
    pub(crate) fn by_bash(self, world: &World, script: &str) -> Command {
        let mut command = plain(world, "bash");
        // Whoever runs the tests may have left something open.
        let tidy =
            "for fd in /proc/self/fd/*; do fd=${fd##*/}; ((fd <= 2)) || eval \"exec $fd<&-\"; done";
        command.args(["-ec", &format!("{tidy}\n{script}")]);
        let mut launcher = self.program(world).display().to_string();
        if support::is_root() {
            launcher = format!("unshare -m --propagation private {launcher}");
        }
        command.env("BWRAP", launcher);
        command
    }
}

fn plain(world: &World, program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", SEARCH)
        .env("HOME", world.path("home"))
        .env("W", world.work())
        .env(
            "TOP",
            world
                .path("")
                .as_os_str()
                .to_str()
                .unwrap()
                .trim_end_matches('/'),
        )
        .env("LC_ALL", "C")
        .current_dir(world.path(""))
        .stdin(Stdio::null());
    command
}

/// Whether the distribution's bubblewrap is from before 0.12, which closed several of these holes.
/// Controls that need them open are left out with a line that says so.
#[allow(clippy::print_stderr)]
pub(crate) fn distribution_has_old_holes() -> bool {
    let version = Ran::of(Command::new(DISTRIBUTION_BWRAP).arg("--version")).ok();
    let minor = version.out.trim().split('.').nth(1).map(str::parse::<u32>);
    let old = version.out.starts_with("bubblewrap 0.") && matches!(minor, Some(Ok(..12)));
    if !old {
        eprintln!(
            "SKIPPED the control: {} has no such hole",
            version.out.trim()
        );
    }
    old
}

/// Whether a program is there. One that `COWORK_TEST_REQUIRE` lists has to be.
#[allow(clippy::print_stderr)]
pub(crate) fn has(program: &str) -> bool {
    let mut folders = std::env::split_paths(SEARCH);
    if folders.any(|folder| folder.join(program).is_file()) {
        return true;
    }
    let required = std::env::var("COWORK_TEST_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|name| name == program),
        "{program} is missing, and COWORK_TEST_REQUIRE asks for it"
    );
    eprintln!("SKIPPED: {program} is missing (packaging/test-setup.sh installs it)");
    false
}

/// The program that tries things in a sandbox and prints `what=0` or `what=ERROR`. Compiled once.
pub(crate) fn probe(world: &World) -> String {
    static PROGRAM: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = PROGRAM.get_or_init(|| {
        let world = World::new();
        std::fs::read(support::compile(&world, "probe", include_str!("probe.c"))).unwrap()
    });
    let path = world.path("probe");
    // Another process writes it: a program this one holds open for writing could not be run by
    // a test that forks at the same moment.
    let mut copy = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    copy.stdin.take().unwrap().write_all(bytes).unwrap();
    assert!(copy.wait().unwrap().success());
    path.to_str().unwrap().to_owned()
}

/// What the probe answered.
#[derive(Debug)]
pub(crate) struct Answers(pub(crate) BTreeMap<String, String>);

impl Answers {
    #[track_caller]
    pub(crate) fn of(ran: &Ran) -> Self {
        let pairs = ran.out.lines().filter_map(|line| line.rsplit_once('='));
        let pairs = pairs.map(|(name, answer)| (name.to_owned(), answer.to_owned()));
        let list: BTreeMap<_, _> = pairs.collect();
        assert!(!list.is_empty(), "nothing was tried: {ran:?}");
        Self(list)
    }

    #[track_caller]
    pub(crate) fn get(&self, name: &str) -> &str {
        let answer = self.0.get(name);
        answer.unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    #[track_caller]
    pub(crate) fn worked(&self, name: &str) {
        assert_eq!(self.get(name), "0", "{name} of {self:?}");
    }

    #[track_caller]
    pub(crate) fn refused(&self, name: &str, with: &[&str]) {
        let answer = self.get(name);
        assert!(with.contains(&answer), "{name}={answer}, not {with:?}");
    }
}

/// Waits until there is nothing to complain about; what the complaint is when there is no end to
/// it. A launcher's own processes may come to rest a moment after the command has started.
#[track_caller]
pub(crate) fn comes_to_rest(mut complaint: impl FnMut() -> Option<String>) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while let Some(text) = complaint() {
        assert!(Instant::now() < deadline, "{text}");
    }
}

/// Every entry of a tree with all that a change would leave a trace in.
pub(crate) fn tree(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(path) = waiting.pop() {
        let meta = path.symlink_metadata().unwrap();
        let mut content = Vec::new();
        if meta.is_dir() {
            let entries = std::fs::read_dir(&path).unwrap();
            waiting.extend(entries.map(|entry| entry.unwrap().path()));
        } else if meta.is_file() {
            content = std::fs::read(&path).unwrap_or_default();
        }
        let target = std::fs::read_link(&path).unwrap_or_default();
        let changed = (meta.ctime(), meta.ctime_nsec(), meta.dev(), meta.ino());
        let what = (meta.mode(), meta.nlink(), changed, content, target);
        found.insert(path, format!("{what:?}"));
    }
    found
}
