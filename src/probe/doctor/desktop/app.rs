//! Which app is installed, and whose the file is that the official one starts.

use std::fs;
use std::path::{Path, PathBuf};

use super::Desk;
use super::{Remedy, Row, State};

const OFFICIAL: &str = "/usr/lib/claude-desktop/resources";
const UNOFFICIAL: &str = "/usr/lib/claude-desktop-unofficial/resources";
const HELPER: &str = "cowork-linux-helper";
/// The unofficial package's own helper, which an interpreter of the user's choice runs.
const SCRIPT: &str = "cowork-vm-service.js";
const DIVERSIONS: &str = "/var/lib/dpkg/diversions";
/// In the script that `packaging/claude-desktop/install.sh` puts in the helper's place.
const MARK: &str = "cowork-linux dispatcher";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Apps {
    pub(super) official: bool,
    pub(super) unofficial: bool,
    /// Whether the unofficial one has the part that calls us.
    pub(super) calls_out: bool,
}

impl Apps {
    pub(super) fn find(desk: &Desk) -> Self {
        let there = |path: &str| desk.at(path).is_dir();
        Self {
            official: there(OFFICIAL),
            unofficial: there(UNOFFICIAL),
            calls_out: desk.at(UNOFFICIAL).join(SCRIPT).exists(),
        }
    }

    pub(super) fn row(self) -> Row {
        const NAME: &str = "app";
        let unofficial = match self.calls_out {
            true => "claude-desktop-unofficial",
            false => "claude-desktop-unofficial, too old to be told of another helper",
        };
        match (self.official, self.unofficial) {
            (false, false) => Row::new(
                NAME,
                State::Missing,
                "no Claude Desktop in /usr/lib",
                "nobody would start the helper",
            )
            .fix(Remedy::say(
                "install Claude Desktop: the package claude-desktop-unofficial where there is no KVM, the official \
                 claude-desktop where there is",
            )),
            (false, true) if !self.calls_out => Row::new(
                NAME,
                State::Missing,
                unofficial,
                "only its version 3 and newer can start another helper",
            )
            .fix(Remedy::say("update the package claude-desktop-unofficial")),
            (false, true) => Row::new(NAME, State::Good, unofficial, "it starts the helper its environment file names"),
            (true, false) => Row::new(
                NAME,
                State::Good,
                "the official claude-desktop",
                "it starts the helper in its own folder, if it finds KVM",
            ),
            (true, true) => Row::new(
                NAME,
                State::Info,
                format!("the official claude-desktop and {unofficial}"),
                "each starts its own helper, on the same socket: use one at a time",
            ),
        }
    }
}

/// What the official app starts.
pub(super) fn helper_file(desk: &Desk, apps: &Apps) -> Row {
    const NAME: &str = "helper file";
    if !apps.official {
        return Row::new(
            NAME,
            State::Info,
            "not looked at",
            "it is the official app's way, which is not installed",
        );
    }
    let path = format!("{OFFICIAL}/{HELPER}");
    let file = desk.at(&path);
    let whose = Whose::of(desk, &file);
    let diverted = diverted_to(desk, &path);
    let install = || {
        Remedy::say(
            "put this program in its place: `sudo packaging/claude-desktop/install.sh official`",
        )
    };
    match (whose, diverted) {
        (Whose::Ours, Some(aside)) => {
            let kept = desk.at(&aside.to_string_lossy());
            if kept.exists() {
                let found = format!("{path} is ours; the original is {}", aside.display());
                return Row::new(
                    NAME,
                    State::Good,
                    found,
                    "updates of the app leave it in place",
                );
            }
            let found = format!("{path} is ours, and {} is gone", aside.display());
            Row::new(NAME, State::Weaker, found, "there is nothing to go back to").fix(Remedy::say(
                "reinstall the app: `sudo apt install --reinstall claude-desktop`",
            ))
        }
        (Whose::Ours, None) => Row::new(
            NAME,
            State::Weaker,
            format!("{path} is ours, and dpkg does not know"),
            "the app's next update takes it away",
        )
        .fix(install()),
        (Whose::Theirs, Some(aside)) => Row::new(
            NAME,
            unless_there_is_another_way(apps),
            format!(
                "{path} is not ours, although the original was moved to {}",
                aside.display()
            ),
            "the app starts something else",
        )
        .fix(install()),
        (Whose::Nobodys, Some(aside)) => Row::new(
            NAME,
            unless_there_is_another_way(apps),
            format!("{path} is gone; the original is {}", aside.display()),
            "the app has no helper at all",
        )
        .fix(install()),
        (Whose::Theirs, None) => Row::new(
            NAME,
            unless_there_is_another_way(apps),
            format!("{path} is the app's own"),
            "the official app starts a virtual machine, not this program",
        )
        .fix(install()),
        (Whose::Nobodys, None) => Row::new(
            NAME,
            unless_there_is_another_way(apps),
            format!("{path} is not there"),
            "this version of the app has no Cowork for Linux",
        )
        .fix(Remedy::say("update the app, then look again")),
    }
}

fn unless_there_is_another_way(apps: &Apps) -> State {
    match apps.calls_out {
        true => State::Weaker,
        false => State::Missing,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Ours,
    Theirs,
    Nobodys,
}

impl Whose {
    fn of(desk: &Desk, file: &Path) -> Self {
        if !file.exists() {
            return Self::Nobodys;
        }
        // Ours is a short script, or a link to this program.
        let is_short = fs::metadata(file).is_ok_and(|found| found.len() < 1 << 16);
        let is_marked = is_short
            && fs::read(file).is_ok_and(|text| String::from_utf8_lossy(&text).contains(MARK));
        match is_marked || desk.is_this_program(file) {
            true => Self::Ours,
            false => Self::Theirs,
        }
    }
}

/// Three lines for each: the path, where it goes, and the package that may have it all the same.
fn diverted_to(desk: &Desk, path: &str) -> Option<PathBuf> {
    let text = fs::read_to_string(desk.at(DIVERSIONS)).ok()?;
    let lines: Vec<&str> = text.lines().collect();
    let found = lines.chunks(3).find(|three| three.first() == Some(&path))?;
    Some(PathBuf::from(found.get(1)?))
}

#[cfg(test)]
mod tests {
    use super::super::tests::Scene;
    use super::*;

    fn file(scene: &Scene) -> (State, String) {
        let row = helper_file(&scene.desk, &Apps::find(&scene.desk));
        let help = row.remedy.map(|remedy| remedy.say).unwrap_or_default();
        (row.state, format!("{}; {}; {help}", row.found, row.means))
    }

    #[test]
    fn each_app_is_known_by_its_folder() {
        let scene = Scene::new();
        let state = |scene: &Scene| Apps::find(&scene.desk).row().state;
        assert_eq!(state(&scene), State::Missing);
        scene.write("usr/lib/claude-desktop-unofficial/resources/app.asar", "");
        assert_eq!(state(&scene), State::Missing);
        scene.write(
            "usr/lib/claude-desktop-unofficial/resources/cowork-vm-service.js",
            "",
        );
        assert_eq!(state(&scene), State::Good);
        scene.write("usr/lib/claude-desktop/resources/app.asar", "");
        assert_eq!(state(&scene), State::Info);
    }

    #[test]
    fn every_state_of_the_official_helper_file_is_told_apart() {
        let scene = Scene::new();
        assert_eq!(file(&scene).0, State::Info);
        let path = "usr/lib/claude-desktop/resources/cowork-linux-helper";
        scene.write("usr/lib/claude-desktop/resources/app.asar", "");
        assert!(file(&scene).1.contains("is not there"));
        scene.write(path, "\x7fELF");
        let (state, text) = file(&scene);
        assert_eq!(state, State::Missing);
        assert!(
            text.contains("app's own") && text.contains("install.sh official"),
            "{text}"
        );
        // With another way in it is no obstacle.
        scene.write(
            "usr/lib/claude-desktop-unofficial/resources/cowork-vm-service.js",
            "",
        );
        assert_eq!(file(&scene).0, State::Weaker);
        scene.write(path, "#!/bin/sh\n# cowork-linux dispatcher\n");
        assert!(file(&scene).1.contains("dpkg does not know"));
        let aside = format!("{path}.original");
        scene.write(
            "var/lib/dpkg/diversions",
            &format!("/a\n/b\n:\n/{path}\n/{aside}\n:\n"),
        );
        assert!(file(&scene).1.contains("nothing to go back to"));
        scene.write(&aside, "\x7fELF");
        assert_eq!(file(&scene).0, State::Good);
        scene.write(path, "\x7fELF");
        assert!(file(&scene).1.contains("is not ours"));
        fs::remove_file(scene.path(path)).unwrap();
        assert!(file(&scene).1.contains("is gone"));
        // A link to the program itself is as good as a script.
        std::os::unix::fs::symlink(&scene.desk.program, scene.path(path)).unwrap();
        assert_eq!(file(&scene).0, State::Good);
    }
}
