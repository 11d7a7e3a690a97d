//! What these tests share: which programs there are, and a box to run them in.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Ran, World, project};

/// Where a program is found without a box.
pub(crate) const SEARCH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Whether the host has these programs. A feature listed in `COWORK_TEST_REQUIRE` has to be
/// there; without it the test that asks is skipped, and says so.
pub(crate) fn has(feature: &str, programs: &[&str]) -> bool {
    let missing = programs.iter().find(|name| find(name).is_none());
    if let Some(missing) = missing {
        excuse(feature, missing);
    }
    missing.is_none()
}

/// A program as `packaging/test-setup.sh` installs it from npm.
pub(crate) fn from_npm(feature: &str, name: &str) -> Option<PathBuf> {
    let folder = project().join(".build/npm/node_modules/.bin");
    if !folder.join(name).is_file() {
        excuse(feature, name);
        return None;
    }
    Some(std::fs::canonicalize(folder).unwrap().join(name))
}

#[allow(clippy::print_stderr)]
fn excuse(feature: &str, missing: &str) {
    let required = std::env::var("COWORK_TEST_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|name| name == feature),
        "{missing} is missing, and COWORK_TEST_REQUIRE asks for {feature}"
    );
    eprintln!("SKIPPED: {missing} is missing (packaging/test-setup.sh installs it)");
}

pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let folders = std::env::split_paths(SEARCH);
    folders
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// A file that can be run.
pub(crate) fn program(path: &Path, content: &str) -> PathBuf {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_owned()
}

impl World {
    /// Runs a script in the box; any command of it that fails ends it.
    pub(crate) fn script(&self, flags: &[&str], script: &str) -> Ran {
        self.run(flags, &["sh", "-ec", script])
    }

    /// `run -q --mount W` to add to, with this `PATH` and the caller's real home.
    pub(crate) fn at_home(&self, home: &Path, search: &Path) -> Command {
        let mut command = self.cowork();
        command
            .env("HOME", home)
            .env("PATH", format!("{}:{SEARCH}", search.display()))
            .args(["run", "-q", "--mount"])
            .arg(self.work());
        command
    }

    pub(crate) fn read(&self, name: &str) -> String {
        let path = self.work().join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}
