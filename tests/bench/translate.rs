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
        let at = body["at"].as_str().unwrap_or("");
        let word = |field: &str| body[field].as_str().unwrap_or("");
        match name {
            // What is the box itself, and not a mount.
            "MapIds" | "NewRoot" | "EnterRoot" => {}
            // bwrap brings a whole /dev; only what is mounted on top of it counts again.
            "Device" | "Terminals" => self.dev(),
            "Folder" | "Link" if at.starts_with("/dev") => self.dev(),
            "Proc" => self.add(["--proc", at]),
            "Tmpfs" => self.add(["--tmpfs", at]),
            "Folder" => self.add(["--dir", at]),
            "Link" => self.add(["--symlink", word("to"), at]),
            "System" => self.add(["--ro-bind", word("path"), at]),
            "Mask" => self.add(["--ro-bind", "/dev/null", at]),
            "MountPoints" => self.add(["--tmpfs", at]),
            "Own" => {
                let from = stand_in(&format!("/own/{}", word("folder")), scratch)?;
                self.add(["--bind", &from, at]);
            }
            "Bind" => {
                let from = stand_in(word("from"), scratch)?;
                let read = word("mode") == "read";
                self.add([if read { "--ro-bind" } else { "--bind" }, &from, at]);
            }
            "File" => self.file(word("content").as_bytes(), at)?,
            "Copy" => {
                let bytes = body["content"].as_array().into_iter().flatten();
                let bytes: Vec<u8> = bytes
                    .filter_map(|byte| u8::try_from(byte.as_u64()?).ok())
                    .collect();
                self.file(&bytes, at)?;
            }
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
    fn file(&mut self, content: &[u8], at: &str) -> Answer<()> {
        let mut file = tempfile::tempfile()?;
        file.write_all(content)?;
        fcntl(&file, FcntlArg::F_SETFD(FdFlag::empty()))?;
        self.add(["--file", &file.as_raw_fd().to_string(), at]);
        self.files.push(file);
        Ok(())
    }
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
