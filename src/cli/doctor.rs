//! `doctor`: what this host offers as a table, as JSON, or as the commands that would change it.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::process::ExitCode;

use clap::{ArgMatches, Command};

use super::{doctor_desktop, switch};
use crate::policy::{PolicyFile, Sources};
use crate::probe::doctor::{self, Diagnosis, Remedy, Row, State, Wanted};
use crate::report;
use crate::terminal::printable;

/// A screen that every terminal has.
const WIDTH: usize = 110;

pub(super) fn command() -> Command {
    Command::new("doctor")
        .about("What this host offers, what it means for a box, and what to do about it")
        .long_about(
            "What this host offers, what it means for a box, and what to do about it.\n\n\
             Everything is tried in processes that are gone afterwards, and one real box is \
             started and measured from inside. Nothing on the host is changed, also not with \
             --fix and not as root. Exits with 1 if `run` would not work.",
        )
        .arg(switch("json", "Print JSON"))
        .arg(switch(
            "desktop",
            "What Claude Desktop takes to run its sessions in boxes, step by step",
        ))
        .arg(switch(
            "fix",
            "Print the files and commands that would help, to be read and run with sudo",
        ))
        .arg(switch("inside", "Measure the walls around this process").hide(true))
}

pub(super) fn doctor(matches: &ArgMatches) -> ExitCode {
    if matches.get_flag("inside") {
        return inside();
    }
    let env = |name: &str| std::env::var_os(name);
    let (examined, what) = match matches.get_flag("desktop") {
        true => (doctor_desktop::examine(&env), DESKTOP),
        false => (examine(&env), RUN),
    };
    let diagnosis = match examined {
        Ok(diagnosis) => diagnosis,
        Err(error) => {
            report::say(&format!(
                "error: cannot look at this host\n  because: {error}"
            ));
            return ExitCode::FAILURE;
        }
    };
    let text = match (matches.get_flag("json"), matches.get_flag("fix")) {
        (true, _) => serde_json::to_string_pretty(&diagnosis).unwrap_or_default() + "\n",
        (false, true) => script(&diagnosis, what, nix::unistd::getuid().is_root()),
        (false, false) => table(&diagnosis, what, colours()),
    };
    let _ = io::stdout().write_all(text.as_bytes());
    match diagnosis.works {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// What is asked of this host.
#[derive(Debug, Clone, Copy)]
struct Asked {
    what: &'static str,
    fix: &'static str,
}

const RUN: Asked = Asked {
    what: "`run`",
    fix: "cowork-linux doctor --fix",
};
const DESKTOP: Asked = Asked {
    what: "Claude Desktop with this program",
    fix: "cowork-linux doctor --desktop --fix",
};

fn examine(env: &dyn Fn(&str) -> Option<OsString>) -> io::Result<Diagnosis> {
    let sources = Sources {
        profile: None,
        project_dir: None,
        flags: PolicyFile::default(),
        env,
    };
    let (wanted, policy) = match crate::policy::resolve(&sources) {
        Ok(resolved) => (
            Wanted::by(&resolved.policy),
            doctor::policy_row(Ok(&resolved.policy.name)),
        ),
        Err(error) => (
            Wanted::EVERYTHING,
            doctor::policy_row(Err((error.to_string(), error.help()))),
        ),
    };
    doctor::examine(vec![policy], &wanted, env)
}

/// Run in the box that `doctor` starts.
fn inside() -> ExitCode {
    let measured = doctor::measure().and_then(|measured| Ok(serde_json::to_string(&measured)?));
    match measured.and_then(|text| writeln!(io::stdout(), "{text}")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn colours() -> bool {
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|value| value == "dumb");
    io::stdout().is_terminal() && !no_colour && !dumb
}

fn table(diagnosis: &Diagnosis, asked: Asked, colours: bool) -> String {
    let mut text = String::new();
    let name_width = widest(diagnosis.rows.iter().map(|row| row.name));
    let left = 7 + 2 + name_width + 2;
    let found_width = (WIDTH - left - 2) / 2;
    for row in &diagnosis.rows {
        line(&mut text, row, (name_width, found_width), colours);
        if let Some(remedy) = row.remedy.as_ref().filter(|_| row.state != State::Good) {
            let say = format!("help: {}", printable(&remedy.say));
            for part in wrap(&say, WIDTH - left) {
                let _ = writeln!(text, "{:left$}{part}", "");
            }
        }
    }
    let has_steps = |row: &Row| row.remedy.as_ref().is_some_and(is_steps);
    if diagnosis.rows.iter().any(has_steps) {
        let _ = writeln!(text, "\n`{}` prints the files and commands", asked.fix);
    }
    let _ = writeln!(text, "\n{}", verdict(diagnosis, asked));
    text
}

fn line(text: &mut String, row: &Row, (name_width, found_width): (usize, usize), colours: bool) {
    let found = wrap(&printable(&row.found), found_width);
    let means = wrap(&printable(&row.means), found_width);
    for at in 0..found.len().max(means.len()) {
        let (word, name) = match at {
            0 => (word(row.state), row.name),
            _ => ("", ""),
        };
        let (before, after) = match colours && at == 0 {
            true => (colour(row.state), "\x1b[0m"),
            false => ("", ""),
        };
        let part = |list: &[String]| list.get(at).cloned().unwrap_or_default();
        let whole = format!(
            "{before}{word:<7}{after}  {name:<name_width$}  {:<found_width$}  {}",
            part(&found),
            part(&means)
        );
        let _ = writeln!(text, "{}", whole.trim_end());
    }
}

fn word(state: State) -> &'static str {
    match state {
        State::Good => "good",
        State::Weaker => "weaker",
        State::Missing => "missing",
        State::Info => "info",
    }
}

fn colour(state: State) -> &'static str {
    match state {
        State::Good => "\x1b[32m",
        State::Weaker => "\x1b[33m",
        State::Missing => "\x1b[1;31m",
        State::Info => "\x1b[2m",
    }
}

fn verdict(diagnosis: &Diagnosis, asked: Asked) -> String {
    let what = asked.what;
    match &diagnosis.because {
        None => format!("{what} works"),
        Some(because) => format!("{what} does not work because of {}", printable(because)),
    }
}

fn widest<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or(0)
}

/// Breaks between words; a word that is too long, such as a path, is left whole.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn is_steps(remedy: &Remedy) -> bool {
    remedy.file.is_some() || !remedy.commands.is_empty()
}

/// The remedies as a script that a person reads, and then runs or does not.
fn script(diagnosis: &Diagnosis, asked: Asked, is_root: bool) -> String {
    let mut text = String::from("# Nothing has been changed: these are only printed.\n");
    if is_root {
        text.push_str("# Also as root: run what you agree with.\n");
    }
    let _ = writeln!(text, "# {}", verdict(diagnosis, asked));
    let helped = diagnosis
        .rows
        .iter()
        .filter(|row| matches!(row.state, State::Weaker | State::Missing))
        .filter_map(|row| Some((row, row.remedy.as_ref()?)));
    let mut any = false;
    for (row, remedy) in helped {
        any = true;
        let _ = writeln!(text, "\n# {}: {}", row.name, comment(&row.found));
        let _ = writeln!(text, "# {}", comment(&remedy.say));
        if let Some(file) = &remedy.file {
            let path = file.path.display();
            let _ = writeln!(text, "sudo tee {path} >/dev/null <<'END'");
            for line in file.content.lines() {
                let _ = writeln!(text, "{}", printable(line));
            }
            text.push_str("END\n");
        }
        for command in &remedy.commands {
            let _ = writeln!(text, "sudo {}", printable(command));
        }
    }
    if !any {
        text.push_str("# There is nothing to fix.\n");
    }
    text
}

/// Text of any origin on one line of a script.
fn comment(text: &str) -> String {
    printable(&text.split_whitespace().collect::<Vec<_>>().join(" ")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn diagnosis() -> Diagnosis {
        let row = |name, state, found: &str, remedy| Row {
            name,
            state,
            found: found.to_owned(),
            means: "it means this".to_owned(),
            remedy,
        };
        let remedy = Remedy {
            say: "install a file".to_owned(),
            file: Some(doctor::NewFile {
                path: PathBuf::from("/etc/x"),
                content: "a\nb\n".to_owned(),
            }),
            commands: vec!["load /etc/x".to_owned()],
        };
        Diagnosis {
            works: false,
            because: Some("user namespaces: blocked".to_owned()),
            rows: vec![
                row("kernel", State::Good, "Linux \x1b[2J6", None),
                row("user namespaces", State::Missing, "blocked", Some(remedy)),
            ],
        }
    }

    #[test]
    fn columns_stand_under_each_other_and_controls_are_spelled_out() {
        let text = table(&diagnosis(), RUN, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].find("it means"), lines[1].find("it means"));
        assert_eq!(lines[0].find("Linux"), lines[2].find("help:"));
        assert!(!text.contains('\x1b'));
        assert!(text.ends_with("`run` does not work because of user namespaces: blocked\n"));
        assert!(table(&diagnosis(), RUN, true).contains("\x1b[1;31mmissing\x1b[0m"));
    }

    #[test]
    fn a_fix_is_a_script_of_exactly_the_file_and_the_command() {
        let text = script(&diagnosis(), RUN, true);
        let steps = "sudo tee /etc/x >/dev/null <<'END'\na\nb\nEND\nsudo load /etc/x\n";
        assert!(text.ends_with(steps), "{text}");
        assert!(text.starts_with("# Nothing has been changed") && text.contains("as root"));
    }

    #[test]
    fn long_words_are_left_whole() {
        assert_eq!(
            wrap("a bb /a/long/path c", 4),
            ["a bb", "/a/long/path", "c"]
        );
    }
}
