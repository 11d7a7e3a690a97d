//! Runs one side of a case and makes lines of what happened that can be compared: numbers that
//! are never the same twice are replaced by what they mean.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::case::Case;
use crate::mounts;
use crate::world::{Side, bytes};

/// Lines of each section. Sections that have no order are sorted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts(pub(crate) BTreeMap<String, Vec<String>>);

impl Facts {
    pub(crate) fn get(&self, section: &str) -> &[String] {
        self.0.get(section).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn of(side: &Side, bwrap: &Path, case: &Case) -> Self {
        let mut command = Command::new(side.program());
        command
            .arg("start")
            .args(["report", "{R}/report"].map(|word| side.filled(word)));
        command.args(["chdir", "{W}/cwd"].map(|word| side.filled(word)));
        command.args(case.arranged.iter().map(|word| bytes(&side.filled(word))));
        command.arg("--").arg(bwrap).arg(bytes(&case.called));
        let words = case.options.iter().chain(&case.command);
        command.args(words.map(|word| {
            let word = side.filled(word);
            bytes(&word.replace("{BWRAP}", bwrap.to_str().unwrap()))
        }));
        command.env_clear().stdin(Stdio::null());
        for (name, value) in &case.environment {
            command.env(name, bytes(&side.filled(value)));
        }
        let mut facts = Self::default();
        facts.0.insert("host, before".to_owned(), side.tree());
        let ran = command.output().unwrap();
        let error = String::from_utf8_lossy(&ran.stderr).replace('\r', "");
        let broken = error.lines().find(|line| line.starts_with("tools: "));
        assert!(broken.is_none(), "the case cannot be tried: {broken:?}");
        facts.add("stderr", &error);
        facts.sections(&String::from_utf8_lossy(&ran.stdout).replace('\r', ""));
        let record = |name: &str| fs::read_to_string(side.records.join(name)).ok();
        facts.add("ended", &record("report").expect("the starter reports"));
        for name in ["info", "status"] {
            if let Some(text) = record(name) {
                facts.add(name, &text);
            }
        }
        // Where the probe could not write to standard output.
        facts.sections(&record("output").unwrap_or_default());
        facts.0.insert("host".to_owned(), side.tree());
        facts.normalise(side, bwrap);
        facts
    }

    fn add(&mut self, section: &str, text: &str) {
        let lines = self.0.entry(section.to_owned()).or_default();
        lines.extend(text.lines().map(str::to_owned));
    }

    /// The probe begins a section with an @; all before it was said by somebody else.
    fn sections(&mut self, text: &str) {
        let mut section = "stdout".to_owned();
        for line in text.lines() {
            match line.strip_prefix('@') {
                Some(name) => {
                    section = name.to_owned();
                    self.0.entry(section.clone()).or_default();
                }
                None => self
                    .0
                    .entry(section.clone())
                    .or_default()
                    .push(line.to_owned()),
            }
        }
    }

    fn normalise(&mut self, side: &Side, bwrap: &Path) {
        let program = bwrap.to_str().unwrap();
        for lines in self.0.values_mut() {
            for line in lines {
                *line = side.emptied(&line.replace(program, "{BWRAP}"));
            }
        }
        let inside = self.namespaces();
        let differs = |kind: &str| inside.get(kind).is_some_and(|id| *id != outside(kind));
        // Of a namespace that is shared one sees what everybody else does there.
        if !differs("net") {
            self.0.remove("network");
        }
        if !differs("pid") {
            self.0.remove("processes");
            self.each("process", |line| numbers_after(line, &["pid ", "parent "]));
        }
        self.each("namespaces", |line| match line.split_once(' ') {
            Some((kind, id)) if id == outside(kind) => format!("{kind} as outside"),
            Some((kind, id)) if id.starts_with(kind) => format!("{kind} of its own"),
            _ => line.to_owned(),
        });
        for name in ["info", "status"] {
            self.each(name, |line| json_line(line, &inside));
        }
        self.each("descriptors", |line| descriptor(side, line));
        self.each("stderr", unnumbered);
        self.each("list", terminal_number);
        if let Some(lines) = self.0.get("mounts") {
            let lines = mounts::normal(side, lines);
            self.0.insert("mounts".to_owned(), lines);
        }
        if let Some(lines) = self.0.get_mut("network") {
            lines.sort();
        }
        if let Some(lines) = self.0.get("environment") {
            let mut sorted = lines.clone();
            sorted.sort();
            self.0.insert("environment, sorted".to_owned(), sorted);
        }
    }

    fn each(&mut self, section: &str, change: impl Fn(&str) -> String) {
        for line in self.0.get_mut(section).into_iter().flatten() {
            *line = change(line);
        }
    }

    /// Changes the lines for which there is a change, and tells whether there was one.
    pub(crate) fn change(
        &mut self,
        section: &str,
        change: impl Fn(&str) -> Option<String>,
    ) -> bool {
        let mut found = false;
        for line in self.0.get_mut(section).into_iter().flatten() {
            if let Some(changed) = change(line) {
                *line = changed;
                found = true;
            }
        }
        found
    }

    fn namespaces(&self) -> BTreeMap<String, String> {
        let pairs = self.get("namespaces").iter();
        pairs
            .filter_map(|line| line.split_once(' '))
            .map(|(kind, id)| (kind.to_owned(), id.to_owned()))
            .collect()
    }
}

/// The namespace of the test itself, as `kind:[number]`.
fn outside(kind: &str) -> String {
    let link = fs::read_link(format!("/proc/self/ns/{kind}"));
    link.unwrap().to_str().unwrap().to_owned()
}

fn numbers_after(line: &str, names: &[&str]) -> String {
    let known = names.iter().find(|name| line.starts_with(**name));
    known.map_or_else(|| line.to_owned(), |name| format!("{name}N"))
}

/// The names of bound data and of terminals have parts of their own each time.
pub(crate) fn unnumbered(line: &str) -> String {
    let line = match line.split_once("/bindfile") {
        Some((before, after)) => {
            let after = after.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
            format!("{before}/bindfileN{after}")
        }
        None => line.to_owned(),
    };
    match line.split_once("/dev/pts/") {
        Some((before, after)) => {
            let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{before}/dev/pts/N{after}")
        }
        None => line,
    }
}

/// Terminals have the major number 136, and the next free minor one.
fn terminal_number(line: &str) -> String {
    match line.split_once(" device 88") {
        Some((before, _)) => format!("{before} device 88NN"),
        None => line.to_owned(),
    }
}

/// A number of the JSON becomes the meaning of that number.
fn json_line(line: &str, inside: &BTreeMap<String, String>) -> String {
    let mut parts = Vec::new();
    for part in line.split(", ") {
        let Some((before, number)) = part.split_once("-namespace\": ") else {
            parts.push(match part.split_once("\"child-pid\": ") {
                Some((before, after)) => {
                    let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
                    format!("{before}\"child-pid\": N{rest}")
                }
                None => part.to_owned(),
            });
            continue;
        };
        let kind = before.trim_start().trim_start_matches('"');
        let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
        let id = format!("{kind}:[{digits}]");
        let meaning = if inside.get(kind).is_some_and(|inner| *inner == id) {
            "inside"
        } else if id == outside(kind) {
            "outside"
        } else {
            "another"
        };
        let rest = &number[digits.len()..];
        parts.push(format!("{before}-namespace\": {meaning}{rest}"));
    }
    parts.join(", ")
}

/// A pipe, socket or namespace has a number; a file is known by its last name, because the way to
/// it may lie outside of the sandbox.
fn descriptor(side: &Side, line: &str) -> String {
    let Some((about, name)) = line.rsplit_once(' ') else {
        return line.to_owned();
    };
    let name = match name.split_once(":[") {
        Some((kind, _)) => kind.to_owned(),
        None => {
            let below = unnumbered(&side.below(name));
            let last = below.rsplit('/').next().unwrap_or_default();
            last.to_owned()
        }
    };
    format!("{about} {name}")
}
