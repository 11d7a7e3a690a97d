//! The scripts that put this program in Claude Desktop's hands, in a made-up system with a dpkg of its
//! own: what they change, what they leave, and that it can all be taken back.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;

use support::{Ran, World, binary, exists, project};

const HELPER: &str = "usr/lib/claude-desktop/resources/cowork-linux-helper";
const ENVIRONMENT: &str = "home/.config/claude-desktop-debian/environment";

/// A system below a root of its own.
struct System {
    world: World,
}

impl System {
    fn new() -> Self {
        let world = World::new();
        let link = world.path("cowork-linux");
        std::os::unix::fs::symlink(binary(), link).unwrap();
        fs::create_dir(world.path("root")).unwrap();
        Self { world }
    }

    fn root(&self, path: &str) -> PathBuf {
        self.world.path("root").join(path)
    }

    fn program(&self) -> String {
        self.world.path("cowork-linux").display().to_string()
    }

    fn command(&self, name: &str, words: &[&str]) -> Command {
        let mut command = Command::new("bash");
        command
            .arg(project().join("packaging/claude-desktop").join(name))
            .args(words)
            .arg("--root")
            .arg(self.world.path("root"))
            .env_clear()
            .env("HOME", self.world.path("home"))
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .current_dir(self.world.path("w"));
        command
    }

    fn install(&self, words: &[&str]) -> Ran {
        let program = self.program();
        let words = [words, &["--program", &program]].concat();
        Ran::of(&mut self.command("install.sh", &words))
    }

    fn uninstall(&self, words: &[&str]) -> Ran {
        Ran::of(&mut self.command("uninstall.sh", words))
    }

    fn environment(&self) -> String {
        fs::read_to_string(self.world.path(ENVIRONMENT)).unwrap()
    }

    /// Everything that is there, to see that nothing else came or went.
    fn everything(&self) -> Vec<(PathBuf, Vec<u8>)> {
        fn collect(folder: PathBuf, found: &mut Vec<(PathBuf, Vec<u8>)>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.symlink_metadata().unwrap().is_dir() {
                    true => collect(path, found),
                    false => found.push((path.clone(), fs::read(path).unwrap())),
                }
            }
        }
        let mut found = Vec::new();
        for folder in ["home", "root"] {
            collect(self.world.path(folder), &mut found);
        }
        found.sort();
        found
    }
}

#[test]
fn the_environment_file_gets_two_lines_and_keeps_the_others() {
    let system = System::new();
    let before = "# mine\nCLAUDE_USE_WAYLAND=1\n COWORK_VM_BACKEND = kvm\nCOWORK_NODE_PATH=/usr/bin/node\n# end\n";
    let file = system.world.write(ENVIRONMENT, before);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    system
        .install(&["unofficial", "--dry-run"])
        .ok()
        .says("would set");
    assert_eq!(system.environment(), before);
    system.install(&["unofficial"]).ok().says("done: set");
    let lines = format!(
        "COWORK_VM_BACKEND=bwrap\nCOWORK_NODE_PATH={}\n",
        system.program()
    );
    assert_eq!(
        system.environment(),
        format!("# mine\nCLAUDE_USE_WAYLAND=1\n# end\n{lines}")
    );
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o640);
    let after = system.everything();
    assert_eq!(after.len(), 2, "the file and what it was: {after:?}");
    // A second time there is nothing to do.
    system.install(&["unofficial"]).ok().says("nothing to do");
    assert_eq!(system.everything(), after);
    // What is changed meanwhile stays when it is taken back.
    fs::write(
        &file,
        format!("{}CLAUDE_DISABLE_GPU=1\n", system.environment()),
    )
    .unwrap();
    system
        .uninstall(&["unofficial", "--dry-run"])
        .ok()
        .says("would take");
    system.uninstall(&["unofficial"]).ok();
    let back = "# mine\nCLAUDE_USE_WAYLAND=1\n# end\nCLAUDE_DISABLE_GPU=1\nCOWORK_VM_BACKEND=kvm\nCOWORK_NODE_PATH=/usr/bin/node\n";
    assert_eq!(system.environment(), back);
    assert_eq!(system.everything().len(), 1);
    system.uninstall(&["unofficial"]).ok().says("not ours");
}

#[test]
fn a_file_that_was_not_there_is_not_there_afterwards() {
    let system = System::new();
    system.uninstall(&["unofficial"]).ok().says("nothing to do");
    system.install(&["unofficial"]).ok();
    let file = system.world.path(ENVIRONMENT);
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
    assert_eq!(system.everything().len(), 1);
    // The app and `doctor` read the same.
    system.world.write("root/usr/lib/x", "");
    system.uninstall(&["unofficial"]).ok();
    assert!(!exists(&file));
}

#[test]
fn a_link_to_settings_elsewhere_stays_a_link() {
    let system = System::new();
    let elsewhere = system.world.write("home/dotfiles/environment", "A=1\n");
    let file = system.world.path(ENVIRONMENT);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
    system.install(&["unofficial"]).ok();
    assert!(file.symlink_metadata().unwrap().is_symlink());
    assert!(
        fs::read_to_string(&elsewhere)
            .unwrap()
            .starts_with("A=1\nCOWORK_VM_BACKEND=bwrap\n")
    );
    system.uninstall(&["unofficial"]).ok();
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "A=1\n");
}

#[test]
fn what_makes_no_sense_is_refused_and_nothing_is_changed() {
    let system = System::new();
    let before = system.everything();
    let refused = |words: &[&str], why: &str| {
        Ran::of(&mut system.command("install.sh", words))
            .failed_with(1)
            .complains(why);
    };
    refused(&["--program", "/bin/true"], "no Claude Desktop");
    refused(
        &["unofficial", "--program", "/bin/true"],
        "is not cowork-linux",
    );
    refused(&["unofficial", "--program", "/no/such"], "is not a program");
    refused(
        &["unofficial", "--program", "cowork-linux"],
        "begins with a /",
    );
    refused(&["unofficial", "--program"], "begins with a /");
    refused(&["unofficial", "--force"], "`--force`");
    refused(&["unofficial", "official"], "two ways");
    let mut sudo = system.command(
        "install.sh",
        &["unofficial", "--program", &system.program()],
    );
    Ran::of(sudo.env("SUDO_USER", "u"))
        .failed_with(1)
        .complains("leave out sudo");
    assert_eq!(system.everything(), before);
    for app in ["claude-desktop", "claude-desktop-unofficial"] {
        fs::create_dir_all(system.root("usr/lib").join(app)).unwrap();
    }
    refused(&["--program", &system.program()], "both apps are installed");
}

/// The official app's package in some version, with a helper that says it.
fn package(system: &System, version: &str) -> PathBuf {
    let tree = system.world.path(&format!("package-{version}"));
    let control = format!(
        "Package: claude-desktop\nVersion: {version}\nArchitecture: all\nMaintainer: nobody <nobody@example.invalid>\n\
         Description: made up\n"
    );
    for (path, text) in [
        ("DEBIAN/control", control),
        (
            HELPER,
            format!("#!/bin/sh\necho original {version} \"$@\"\n"),
        ),
    ] {
        let path = tree.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let file = system.world.path(&format!("{version}.deb"));
    Ran::of(
        Command::new("dpkg-deb")
            .arg("--build")
            .arg(&tree)
            .arg(&file),
    )
    .ok();
    file
}

fn dpkg(system: &System, words: &[&str]) {
    let mut command = Command::new("dpkg");
    command.arg("--root").arg(system.world.path("root"));
    command
        .args(["--force-not-root", "--force-bad-path", "--log=/dev/null"])
        .args(words);
    Ran::of(&mut command).ok();
}

fn has_dpkg() -> bool {
    Command::new("dpkg-divert")
        .arg("--version")
        .output()
        .is_ok()
}

/// What the helper's file does when the app starts it.
fn started(system: &System, words: &[&str], original: bool) -> Ran {
    let mut command = Command::new(system.root(HELPER));
    command.args(words).env_clear().env("PATH", "/usr/bin:/bin");
    if original {
        command.env("COWORK_LINUX_HELPER", "original");
    }
    Ran::of(&mut command)
}

#[test]
fn the_official_helper_is_diverted_and_stays_so_in_an_update() {
    let system = System::new();
    if !has_dpkg() {
        system
            .install(&["official"])
            .failed_with(1)
            .complains("no dpkg-divert");
        return;
    }
    fs::create_dir_all(system.root("var/lib/dpkg/updates")).unwrap();
    fs::create_dir_all(system.root("var/lib/dpkg/info")).unwrap();
    fs::write(system.root("var/lib/dpkg/status"), "").unwrap();
    system
        .install(&["official"])
        .failed_with(1)
        .complains("there is no");
    let deb = package(&system, "1.0");
    dpkg(&system, &["--install", deb.to_str().unwrap()]);
    let before = system.everything();
    system
        .install(&["official", "--dry-run"])
        .ok()
        .says("would let dpkg")
        .says("would put a script");
    assert_eq!(system.everything(), before);
    system.install(&["official"]).ok();
    // It is ours now: its own flags are known, the app's words are understood.
    started(&system, &["--help"], false)
        .ok()
        .says("Cowork sessions");
    started(&system, &["--no-such"], false)
        .failed_with(2)
        .complains("--no-such");
    let after = system.everything();
    system.install(&["official"]).ok().says("nothing to do");
    assert_eq!(system.everything(), after);

    let deb = package(&system, "2.0");
    dpkg(&system, &["--install", deb.to_str().unwrap()]);
    started(&system, &["--help"], false)
        .ok()
        .says("Cowork sessions");
    let original = system.root(&format!("{HELPER}.original"));
    assert!(
        fs::read_to_string(&original)
            .unwrap()
            .contains("original 2.0")
    );

    system
        .uninstall(&["official", "--dry-run"])
        .ok()
        .says("would remove");
    started(&system, &["--help"], false)
        .ok()
        .says("Cowork sessions");
    system.uninstall(&["official"]).ok();
    started(&system, &["-socket", "x"], false)
        .ok()
        .says("original 2.0 -socket x");
    assert!(!exists(&original));
    system.uninstall(&["official"]).ok().says("nothing to do");
}

#[test]
fn what_somebody_else_did_to_the_helper_is_left_alone() {
    if !has_dpkg() {
        return;
    }
    let system = System::new();
    fs::create_dir_all(system.root("var/lib/dpkg")).unwrap();
    fs::write(system.root("var/lib/dpkg/status"), "").unwrap();
    system.world.write(&format!("root/{HELPER}"), "theirs");
    let divert = |words: &[&str]| {
        let mut command = Command::new("dpkg-divert");
        Ran::of(
            command
                .arg("--root")
                .arg(system.world.path("root"))
                .args(words),
        )
        .ok();
    };
    let file = format!("/{HELPER}");
    divert(&[
        "--rename",
        "--divert",
        &format!("{file}.distrib"),
        "--add",
        &file,
    ]);
    let before = system.everything();
    system
        .install(&["official"])
        .failed_with(1)
        .complains("diverted to");
    system
        .uninstall(&["official"])
        .failed_with(1)
        .complains("somebody else");
    assert_eq!(system.everything(), before);
    divert(&["--rename", "--remove", &file]);
    system.install(&["official"]).ok();
    fs::write(system.root(HELPER), "theirs again").unwrap();
    system
        .uninstall(&["official"])
        .failed_with(1)
        .complains("not ours");
}

#[test]
fn everybodys_helper_is_not_a_file_that_others_can_write_to() {
    if !has_dpkg() {
        return;
    }
    let system = System::new();
    fs::create_dir_all(system.root("var/lib/dpkg")).unwrap();
    fs::write(system.root("var/lib/dpkg/status"), "").unwrap();
    system.world.write(&format!("root/{HELPER}"), "theirs");
    let open = system.world.path("open");
    fs::create_dir(&open).unwrap();
    let program = open.join("cowork-linux");
    fs::copy(binary(), &program).unwrap();
    let words = ["official", "--program", program.to_str().unwrap()];
    let install = || Ran::of(&mut system.command("install.sh", &words));
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    install().failed_with(1).complains("others can write to");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o775)).unwrap();
    install().failed_with(1).complains("others can write to");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    install().ok();
}

#[test]
fn root_is_asked_for_where_it_is_needed() {
    if support::is_root() || !has_dpkg() {
        return;
    }
    let system = System::new();
    let mut command = Command::new("bash");
    let script = project().join("packaging/claude-desktop/install.sh");
    command
        .arg(script)
        .args(["official", "--program", &system.program()]);
    Ran::of(&mut command)
        .failed_with(1)
        .complains("only root may change");
}
