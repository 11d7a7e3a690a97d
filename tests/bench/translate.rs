//! Our plan as arguments of bwrap, so that both tools build the same tree.
//!
//! Deliberately forgiving: a step that bwrap has no word for is left out and named, and a plan that cannot
//! be read gives the usual tree. The number of mounts in both boxes is printed by the bench, so a
//! translation that went wrong shows.

use crate::measure::Answer;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// Arguments of bwrap, and the files that some of them name by descriptor.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    pub(crate) arguments: Vec<String>,
    pub(crate) files: Vec<File>,
    left_out: BTreeSet<String>,
}

/// The mounts of a plan in JSON. Folders are what was asked to be mounted; scratch is for stand-ins.
pub(crate) fn mounts(plan: &str, folders: &[PathBuf], scratch: &Path) -> Answer<Mounts> {
    let plan: Value = serde_json::from_str(plan).unwrap_or_default();
    let Some(steps) = plan["build"].as_array() else {
        note("The plan has no list \"build\"; bwrap gets the usual tree.");
        return Ok(usual(folders));
    };
    let mut mounts = Mounts::default();
    for step in steps {
        match step {
            Value::String(name) => mounts.step(name, &Value::Null, scratch)?,
            Value::Object(map) => {
                for (name, body) in map {
                    mounts.step(name, body, scratch)?;
                }
            }
            other => drop(mounts.left_out.insert(other.to_string())),
        }
    }
    if !mounts.left_out.is_empty() {
        let names: Vec<_> = mounts.left_out.iter().map(String::as_str).collect();
        note(&format!("bwrap has no word for: {}", names.join(", ")));
    }
    Ok(mounts)
}

impl Mounts {
    /// One step of the plan. This is the place to adapt when the plan's words change.
    fn step(&mut self, name: &str, body: &Value, scratch: &Path) -> Answer<()> {
        let at = text(body, &["at", "to", "target", "path"]);
        match name {
            // bwrap brings a whole /dev; only what is mounted on top of it counts again.
            _ if name.starts_with("Dev") || (at.starts_with("/dev") && at != "/dev/shm") => {
                self.dev()
            }
            "Proc" => self.add(["--proc", "/proc"]),
            "Tmpfs" if at == "/" => {}
            "Tmpfs" => self.add(["--tmpfs", at]),
            "Mqueue" => self.add(["--mqueue", at]),
            "Dir" => self.add(["--dir", at]),
            "Symlink" => self.add([
                "--symlink",
                text(body, &["to", "target"]),
                text(body, &["at", "link"]),
            ]),
            "Bind" => {
                let to = text(body, &["to", "at", "target"]);
                let from = stand_in(text(body, &["from", "source"]), scratch)?;
                self.add([
                    if reads_only(body) {
                        "--ro-bind"
                    } else {
                        "--bind"
                    },
                    &from,
                    to,
                ]);
            }
            "File" => self.file(text(body, &["content", "text"]), at)?,
            _ => drop(self.left_out.insert(name.to_owned())),
        }
        Ok(())
    }

    fn add<const N: usize>(&mut self, words: [&str; N]) {
        self.arguments.extend(words.map(str::to_owned));
    }

    fn dev(&mut self) {
        if !self.arguments.iter().any(|word| word == "--dev") {
            self.add(["--dev", "/dev"]);
        }
    }

    /// bwrap copies a file from an inherited descriptor.
    fn file(&mut self, content: &str, at: &str) -> Answer<()> {
        let mut file = tempfile::tempfile()?;
        file.write_all(content.as_bytes())?;
        fcntl(&file, FcntlArg::F_SETFD(FdFlag::empty()))?;
        self.add(["--file", &file.as_raw_fd().to_string(), at]);
        self.files.push(file);
        Ok(())
    }
}

/// The first of these fields that is a text.
fn text<'a>(body: &'a Value, fields: &[&str]) -> &'a str {
    fields
        .iter()
        .find_map(|field| body[*field].as_str())
        .unwrap_or("")
}

fn reads_only(body: &Value) -> bool {
    body["access"]
        .as_str()
        .is_none_or(|access| access.to_lowercase().starts_with("read"))
}

/// A directory of a session that a dry run did not make is replaced by an empty one.
fn stand_in(source: &str, scratch: &Path) -> Answer<String> {
    if Path::new(source).exists() {
        return Ok(source.to_owned());
    }
    let empty = scratch.join("empty").join(source.trim_start_matches('/'));
    fs::create_dir_all(&empty)?;
    Ok(empty.to_string_lossy().into_owned())
}

/// The tree that both tools build in the usual case, for when there is no plan to read.
fn usual(folders: &[PathBuf]) -> Mounts {
    let mut mounts = Mounts::default();
    mounts.add(["--ro-bind", "/usr", "/usr"]);
    mounts.add(["--ro-bind", "/etc", "/etc"]);
    for name in ["bin", "sbin", "lib", "lib64"] {
        if let Ok(target) = fs::read_link(Path::new("/").join(name)) {
            mounts.add(["--symlink", &target.to_string_lossy(), &format!("/{name}")]);
        }
    }
    mounts.add(["--proc", "/proc"]);
    mounts.dev();
    mounts.add(["--tmpfs", "/tmp"]);
    for (number, folder) in folders.iter().enumerate() {
        mounts.add([
            "--bind",
            &folder.to_string_lossy(),
            &format!("/sessions/bench/mnt/{number}"),
        ]);
    }
    mounts
}

/// Said once, however many boxes are translated.
fn note(text: &str) {
    static SAID: std::sync::Once = std::sync::Once::new();
    SAID.call_once(|| println!("note: {text}"));
}
