//! What every test of the binary needs: the binary, a scratch world, a verdict.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The binary under test: `COWORK_BIN`, or the one cargo built.
pub fn binary() -> PathBuf {
    std::env::var_os("COWORK_BIN")
        .map(PathBuf::from)
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_cowork-linux")))
}

/// A link called `bwrap` in the given folder, as a caller of bubblewrap would find it on PATH.
/// `COWORK_TEST_BWRAP` names another program instead, to try a test on a real bubblewrap.
pub fn bwrap_in(folder: &Path) -> PathBuf {
    if let Some(other) = std::env::var_os("COWORK_TEST_BWRAP") {
        return other.into();
    }
    let link = folder.join("bwrap");
    if !exists(&link) {
        std::os::unix::fs::symlink(binary(), &link).unwrap();
    }
    link
}

/// The bubblewrap that the distribution ships.
pub const DISTRIBUTION_BWRAP: &str = "/usr/bin/bwrap";

/// The project's files, wherever the tests run.
pub fn project() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR")
        .map(PathBuf::from)
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")))
}

pub fn is_root() -> bool {
    nix::unistd::getuid().is_root()
}

/// A home, a state directory and a folder to share, of one test alone.
#[derive(Debug)]
pub struct World {
    dir: tempfile::TempDir,
}

impl World {
    pub fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("cowork-test-")
            .tempdir()
            .unwrap();
        let world = Self { dir };
        for name in ["home", "state", "w"] {
            std::fs::create_dir(world.path(name)).unwrap();
        }
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        std::fs::canonicalize(self.dir.path()).unwrap().join(name)
    }

    /// The folder that tests share with the box.
    pub fn work(&self) -> PathBuf {
        self.path("w")
    }

    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// `cowork-linux` with this world's home and nothing of the caller's environment.
    pub fn cowork(&self) -> Command {
        let mut command = Command::new(binary());
        command
            .env_clear()
            .env("HOME", self.path("home"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs `run -q [flags] --mount W -- program`.
    pub fn run<S: AsRef<OsStr>>(&self, flags: &[&str], program: &[S]) -> Ran {
        let mut command = self.cowork();
        command
            .args(["run", "-q"])
            .args(flags)
            .arg("--mount")
            .arg(self.work())
            .arg("--");
        Ran::of(command.args(program))
    }

    /// Opens what is closed around the home of a session with a name, to look into it.
    pub fn open_home(&self, session: &str) -> PathBuf {
        let inner = self.path(&format!("state/cowork-linux/sessions/{session}/inner"));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&inner, mode).unwrap();
        inner.join("home")
    }

    /// Runs a shell script in the box, over the shared folder.
    pub fn sh(&self, script: &str) -> Ran {
        self.run(&[], &["sh", "-c", script])
    }

    /// The same script without a box: what the attack does when nothing stops it.
    pub fn control(&self, script: &str) -> Ran {
        Ran::of(
            Command::new("sh")
                .args(["-c", script])
                .env("HOME", self.path("home"))
                .current_dir(self.work())
                .stdin(Stdio::null()),
        )
    }
}

/// How a command ended, with what it said.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn of(command: &mut Command) -> Self {
        let Output {
            status,
            stdout,
            stderr,
        } = command.output().expect("the command starts");
        Self {
            code: status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&stdout).into_owned(),
            err: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }

    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "out: {}\nerr: {}", self.out, self.err);
        self
    }

    #[track_caller]
    pub fn failed_with(self, code: i32) -> Self {
        assert_eq!(self.code, code, "out: {}\nerr: {}", self.out, self.err);
        self
    }

    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(
            self.out.contains(text),
            "no `{text}` in out: {}\nerr: {}",
            self.out,
            self.err
        );
        self
    }

    #[track_caller]
    pub fn says_not(self, text: &str) -> Self {
        assert!(!self.out.contains(text), "`{text}` in out: {}", self.out);
        self
    }

    #[track_caller]
    pub fn complains(self, text: &str) -> Self {
        assert!(
            self.err.contains(text),
            "no `{text}` in err: {}\nout: {}",
            self.err,
            self.out
        );
        self
    }
}

/// Compiles a small C program; static, so that it runs anywhere in a box.
pub fn compile(world: &World, name: &str, source: &str) -> PathBuf {
    let c = world.write(&format!("{name}.c"), source);
    let out = world.work().join(name);
    let made = Ran::of(
        Command::new("gcc")
            .args(["-O1", "-static", "-o"])
            .arg(&out)
            .arg(&c),
    );
    assert_eq!(made.code, 0, "gcc: {}", made.err);
    out
}

pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
