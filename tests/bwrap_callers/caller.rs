//! The surroundings of a program that calls bubblewrap, with ours as the first `bwrap` on its PATH.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::shop::SEARCH;
use crate::support::{Ran, World, bwrap_in};

/// Longer than any of them takes. Who reaches it hangs, and is ended with this exit code.
const PATIENCE: &str = "60";

pub(crate) struct Caller {
    pub(crate) world: World,
    /// The folder that is searched for `bwrap` before all others.
    first: PathBuf,
}

impl Caller {
    pub(crate) fn new() -> Self {
        let world = World::new();
        for name in ["bin", "scratch", "tmp", "outside"] {
            std::fs::create_dir(world.path(name)).unwrap();
        }
        let bwrap = bwrap_in(&world.path("bin"));
        let first = bwrap.parent().unwrap().to_owned();
        Self { world, first }
    }

    /// The same caller, but the first `bwrap` it finds never starts anything.
    pub(crate) fn with_a_bwrap_that_fails(mut self) -> Self {
        self.first = self.world.path("broken");
        std::fs::create_dir(&self.first).unwrap();
        std::os::unix::fs::symlink("/bin/false", self.first.join("bwrap")).unwrap();
        self
    }

    pub(crate) fn bwrap(&self) -> PathBuf {
        self.first.join("bwrap")
    }

    /// A folder that no rule allows to write to.
    pub(crate) fn outside(&self) -> PathBuf {
        self.world.path("outside")
    }

    /// A command of this caller's in the folder it works on, with an end to its patience and
    /// nothing of the tests' own environment.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["-k", "5", PATIENCE])
            .arg(program.as_ref())
            .env_clear()
            .env("HOME", self.world.path("home"))
            .env("PATH", format!("{}:{SEARCH}", self.first.display()))
            .env("LANG", "C.UTF-8")
            .env("TMPDIR", self.world.path("tmp"))
            .env("CLAUDE_CODE_TMPDIR", self.world.path("scratch"))
            .current_dir(self.world.work())
            .stdin(Stdio::null());
        command
    }

    /// The same script without a sandbox: what it does when nothing stops it.
    pub(crate) fn control(&self, script: &str) -> Ran {
        Ran::of(self.command("bash").args(["-c", script]))
    }
}
