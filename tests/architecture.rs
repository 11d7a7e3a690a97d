//! The shape of the source: which module may use which, where unsafe code lies, how long a file
//! may be. A reader learns the shape from `ARROWS`; a change of it is a change of that list.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A module, and what it may use of this crate besides itself.
const ARROWS: [(&str, &[&str]); 17] = [
    ("sys", &[]),
    ("policy", &[]),
    ("filter", &[]),
    ("plan", &["policy"]),
    ("journal", &["filter", "policy"]),
    ("limits", &["plan", "policy", "sys"]),
    ("terminal", &["sys"]),
    ("logs", &["sys", "terminal"]),
    ("probe", &["plan", "policy", "sys"]),
    ("broker", &["policy", "sys"]),
    ("egress", &["filter", "plan", "policy", "sys"]),
    ("sandbox", &["broker", "plan", "policy", "sys"]),
    (
        "session",
        &[
            "egress", "filter", "journal", "limits", "logs", "plan", "policy", "sandbox", "sys",
            "terminal",
        ],
    ),
    // The error types, and what makes names of others' making fit to print.
    (
        "report",
        &["plan", "policy", "probe", "session", "terminal"],
    ),
    (
        "bwrap",
        &[
            "filter", "plan", "policy", "probe", "report", "sandbox", "sys",
        ],
    ),
    (
        "service",
        &[
            "egress", "plan", "policy", "probe", "report", "session", "sys", "terminal",
        ],
    ),
    (
        "cli",
        &[
            "bwrap", "egress", "filter", "journal", "limits", "logs", "plan", "policy", "probe",
            "report", "sandbox", "service", "session", "terminal",
        ],
    ),
];
/// Files that only say which modules there are.
const ROOTS: [&str; 2] = ["lib.rs", "main.rs"];
const LONGEST: usize = 400;

fn project() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR")
        .map(PathBuf::from)
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")))
}

/// A source file without its tests and without comments that take a whole line.
struct Source {
    /// Relative to `src`.
    name: String,
    /// As written, up to the tests.
    lines: Vec<String>,
    only_tests: bool,
}

impl Source {
    fn module(&self) -> &str {
        let first = self.name.split('/').next().unwrap();
        first.strip_suffix(".rs").unwrap_or(first)
    }

    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let numbered = self.lines.iter().enumerate();
        numbered
            .map(|(at, line)| (at + 1, line.as_str()))
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
    }
}

fn sources() -> Vec<Source> {
    let top = project().join("src");
    let mut found = Vec::new();
    collect(&top, &top, &mut found);
    assert!(found.len() > 40, "only {} files in {top:?}", found.len());
    let tests: BTreeSet<String> = found.iter().flat_map(test_files).collect();
    for source in &mut found {
        source.only_tests = tests.contains(&source.name);
    }
    found
}

fn collect(top: &Path, folder: &Path, found: &mut Vec<Source>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(top, &path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push(Source {
                name: path.strip_prefix(top).unwrap().to_str().unwrap().to_owned(),
                lines: before_tests(&text),
                only_tests: false,
            });
        }
    }
}

/// Tests stand at the end of a file, in a module of their own.
fn before_tests(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let end = lines
        .windows(2)
        .position(|pair| pair[0] == "#[cfg(test)]" && pair[1].ends_with('{'))
        .unwrap_or(lines.len());
    lines[..end].iter().map(|line| (*line).to_owned()).collect()
}

/// Files that a `#[cfg(test)] mod name;` brings in.
fn test_files(source: &Source) -> Vec<String> {
    let folder = Path::new(&source.name).parent().unwrap().to_owned();
    source
        .lines
        .windows(2)
        .filter(|pair| pair[0] == "#[cfg(test)]")
        .filter_map(|pair| pair[1].strip_prefix("mod ")?.strip_suffix(';'))
        .map(|name| folder.join(name).with_extension("rs").display().to_string())
        .collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Every `x` of `crate::x` and of `crate::{x, y::z}` in the text.
fn uses(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        if text[..at].ends_with(is_word) {
            continue;
        }
        let rest = &text[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            None => found.push(rest.split(|c| !is_word(c)).next().unwrap().to_owned()),
            Some(list) => found.extend(first_words(list)),
        }
    }
    found
}

/// The names that start the entries of a list, up to the brace that closes it.
fn first_words(list: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut depth = 0;
    let mut whole = true;
    for c in list.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                words.push(String::new());
                whole = true;
            }
            c if is_word(c) && whole && depth == 0 => words.last_mut().unwrap().push(c),
            c if c.is_whitespace() => {}
            _ => whole = false,
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[track_caller]
fn nothing_found(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn modules_use_only_what_lies_below_them() {
    let mut wrong = Vec::new();
    for source in sources() {
        if ROOTS.contains(&source.name.as_str()) {
            continue;
        }
        let module = source.module().to_owned();
        let Some((_, below)) = ARROWS.iter().find(|(name, _)| *name == module) else {
            wrong.push(format!("{module} is not in the list of modules"));
            continue;
        };
        let code: Vec<&str> = source.code().map(|(_, line)| line).collect();
        let code = code.join("\n");
        for used in uses(&code) {
            if used != module && !below.contains(&used.as_str()) {
                wrong.push(format!("{} uses {used}", source.name));
            }
        }
        if code.contains("super::super::") {
            wrong.push(format!("{} climbs with super::super", source.name));
        }
    }
    nothing_found("arrows that are not in the list", &wrong);
}

#[test]
fn the_list_of_modules_has_no_circle() {
    // Ordered from the bottom up: each arrow leads to a module further up the list.
    for (at, (module, below)) in ARROWS.iter().enumerate() {
        for used in *below {
            let known = ARROWS[..at].iter().any(|(name, _)| name == used);
            assert!(known, "{module} -> {used} leads upwards");
        }
    }
}

#[test]
fn unsafe_code_lies_in_sys_and_says_why_it_is_sound() {
    let mut wrong = Vec::new();
    for source in sources() {
        for (number, line) in source.code() {
            let place = format!("{}:{number}", source.name);
            let bare = line.replace("unsafe_code", "").replace("unsafe_op", "");
            if !bare.split(|c| !is_word(c)).any(|word| word == "unsafe") {
                continue;
            }
            if source.module() != "sys" {
                wrong.push(format!("{place} is unsafe outside sys"));
            } else if bare.contains("unsafe {") && !has_reason(&source.lines[..number - 1]) {
                wrong.push(format!("{place} has no SAFETY comment"));
            }
        }
    }
    nothing_found("unsafe code", &wrong);
}

/// Whether the comment right above the statement that starts after these lines says SAFETY.
fn has_reason(above: &[String]) -> bool {
    for line in above.iter().rev().map(|line| line.trim()) {
        if line.starts_with("//") {
            if line.contains("SAFETY:") {
                return true;
            }
        } else if line.is_empty() || line.ends_with([';', '{', '}']) {
            return false;
        }
    }
    false
}

#[test]
fn a_file_can_be_read_in_one_sitting() {
    let long: Vec<String> = sources()
        .iter()
        .filter(|source| !source.only_tests && source.lines.len() > LONGEST)
        .map(|source| format!("{} has {} lines", source.name, source.lines.len()))
        .collect();
    nothing_found("files that are too long, tests not counted", &long);
}

#[test]
fn nothing_is_left_to_be_written_later() {
    let mut found = Vec::new();
    for source in sources() {
        for (number, line) in source.code() {
            if line.contains("todo!(") || line.contains("unimplemented!(") {
                found.push(format!("{}:{number}", source.name));
            }
        }
    }
    nothing_found("unfinished code", &found);
}

#[test]
fn the_box_is_built_without_threads_and_without_logs() {
    let mut found = Vec::new();
    for source in sources() {
        for (number, line) in source.code() {
            let logs = source.module() == "sandbox" && line.contains("tracing");
            // The gateway and the app's helper are processes of their own, beside the box; so is
            // whoever talks to many sessions at once.
            let may = ["egress", "service"].contains(&source.module())
                || ["session/conversation.rs", "sys/awaited.rs"].contains(&source.name.as_str());
            let runs = !may && line.contains("tokio");
            if logs || runs {
                found.push(format!("{}:{number} {}", source.name, line.trim()));
            }
        }
    }
    nothing_found("an asynchronous runtime, or logging in the box", &found);
}

#[test]
fn there_is_one_version_of_what_talks_to_the_kernel() {
    let lock = std::fs::read_to_string(project().join("Cargo.lock")).unwrap();
    let count = |name: &str| lock.matches(&format!("name = \"{name}\"\n")).count();
    assert_eq!(count("nix"), 1, "versions of nix");
    assert_eq!(count("tokio"), 1, "versions of tokio");
}

#[test]
fn the_reader_of_uses_knows_every_form() {
    assert_eq!(uses("use crate::plan::{A, B};"), ["plan"]);
    assert_eq!(
        uses("use crate::{plan::{A, B}, sys, x::y};"),
        ["plan", "sys", "x"]
    );
    assert_eq!(uses("let a = crate::sys::fds::b(mycrate::c);"), ["sys"]);
}
