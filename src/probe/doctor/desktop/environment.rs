//! The file in which the unofficial package is told what to start.

use std::fs;
use std::path::Path;

use super::Desk;
use super::app::Apps;
use super::{Remedy, Row, State};

const FILE: &str = "claude-desktop-debian/environment";
const BACKEND: &str = "COWORK_VM_BACKEND";
const PROGRAM: &str = "COWORK_NODE_PATH";
/// The only backend under which the package starts a helper of the user's choice.
const WANTED: &str = "bwrap";

pub(super) fn row(desk: &Desk, apps: &Apps) -> Row {
    const NAME: &str = "environment file";
    if !apps.unofficial {
        return Row::new(
            NAME,
            State::Info,
            "not looked at",
            "it is claude-desktop-unofficial's way, which is not installed",
        );
    }
    let bad = match apps.official {
        true => State::Weaker,
        false => State::Missing,
    };
    let Some(config) = &desk.config else {
        let found = "neither XDG_CONFIG_HOME nor HOME is set";
        return Row::new(NAME, bad, found, "the package finds no settings")
            .fix(Remedy::say("set HOME"));
    };
    let path = config.join(FILE);
    let install = || {
        Remedy::say(
            "`packaging/claude-desktop/install.sh` writes the two lines, and keeps the others",
        )
    };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            let why = match error.kind() {
                std::io::ErrorKind::NotFound => "is not there".to_owned(),
                _ => format!("cannot be read: {error}"),
            };
            let found = format!("{} {why}", path.display());
            return Row::new(NAME, bad, found, "the app starts its own helper").fix(install());
        }
    };
    match wrong(desk, &text) {
        None => {
            let row = Row::new(
                NAME,
                State::Good,
                format!("{} names this program", path.display()),
                "the app starts it instead of its own",
            );
            match unknown(&text) {
                None => row,
                Some(name) => Row {
                    state: State::Weaker,
                    found: format!(
                        "{}; and sets {name}, which the package does not know",
                        row.found
                    ),
                    ..row
                }
                .fix(Remedy::say(format!(
                    "take the line {name}=... out of {}",
                    path.display()
                ))),
            }
        }
        Some(why) => {
            let found = format!("{}: {why}", path.display());
            Row::new(NAME, bad, found, "the app does not start this program").fix(install())
        }
    }
}

/// What keeps the package from starting this program.
fn wrong(desk: &Desk, text: &str) -> Option<String> {
    match value(text, BACKEND) {
        None => return Some(format!("{BACKEND} is not set")),
        Some(WANTED) => {}
        Some(other) => {
            return Some(format!(
                "{BACKEND} is `{other}`, and only `{WANTED}` counts"
            ));
        }
    }
    let Some(program) = value(text, PROGRAM) else {
        return Some(format!("{PROGRAM} is not set"));
    };
    let path = Path::new(program);
    if !path.is_absolute() {
        return Some(format!("{PROGRAM} is `{program}`, which is no whole path"));
    }
    if !path.exists() {
        return Some(format!("{PROGRAM} is {program}, which is not there"));
    }
    (!desk.is_this_program(path))
        .then(|| format!("{PROGRAM} is {program}, which is another program"))
}

/// As the package reads it: what is set first counts, spaces around it do not, nothing is expanded.
fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.trim(), value.trim()))
}

fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let found = lines(text)
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value);
    found.filter(|value| !value.is_empty())
}

/// One of this family that nobody reads: most likely misspelt.
fn unknown(text: &str) -> Option<String> {
    let mut names = lines(text).map(|(name, _)| name);
    let odd = names.find(|name| name.starts_with("COWORK_") && ![BACKEND, PROGRAM].contains(name));
    odd.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::super::tests::Scene;
    use super::*;

    #[track_caller]
    fn says(text: Option<&str>, state: State, words: &str) {
        let scene = Scene::new();
        let apps = Apps {
            official: false,
            unofficial: true,
            calls_out: true,
        };
        if let Some(text) = text {
            let program = scene.desk.program.to_str().unwrap();
            scene.write(
                "home/.config/claude-desktop-debian/environment",
                &text.replace("OURS", program),
            );
        }
        let row = row(&scene.desk, &apps);
        assert_eq!(row.state, state, "{row:?}");
        assert!(row.found.contains(words), "{row:?}");
        assert!(state == State::Good || row.remedy.is_some(), "{row:?}");
    }

    #[test]
    fn both_lines_count_as_the_package_reads_them() {
        let good =
            "# mine\nCOWORK_VM_BACKEND=bwrap\n\nCLAUDE_USE_WAYLAND=1\nCOWORK_NODE_PATH=OURS\n";
        says(Some(good), State::Good, "names this program");
        says(
            Some(" COWORK_VM_BACKEND = bwrap \nCOWORK_NODE_PATH=OURS"),
            State::Good,
            "",
        );
        // What is set first counts.
        says(
            Some(&format!("{good}COWORK_VM_BACKEND=kvm\n")),
            State::Good,
            "",
        );
    }

    #[test]
    fn everything_that_is_wrong_is_named() {
        says(None, State::Missing, "is not there");
        says(Some(""), State::Missing, "COWORK_VM_BACKEND is not set");
        says(
            Some("#COWORK_VM_BACKEND=bwrap\n"),
            State::Missing,
            "COWORK_VM_BACKEND is not set",
        );
        says(Some("COWORK_VM_BACKEND=kvm\n"), State::Missing, "`kvm`");
        says(
            Some("COWORK_VM_BACKEND=\"bwrap\"\n"),
            State::Missing,
            "only `bwrap` counts",
        );
        let with = |line: &str| format!("COWORK_VM_BACKEND=bwrap\n{line}\n");
        says(
            Some(&with("")),
            State::Missing,
            "COWORK_NODE_PATH is not set",
        );
        says(
            Some(&with("COWORK_NODE_PATH=cowork-linux")),
            State::Missing,
            "no whole path",
        );
        says(
            Some(&with("COWORK_NODE_PATH=/no/such")),
            State::Missing,
            "not there",
        );
        says(
            Some(&with("COWORK_NODE_PATH=/bin/sh")),
            State::Missing,
            "another program",
        );
        says(
            Some(&with("COWORK_NODE_PATH=OURS\nCOWORK_VM_BAKEND=x")),
            State::Weaker,
            "COWORK_VM_BAKEND",
        );
    }
}
