//! Two worlds with the same things in them, one for each bwrap.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::case::{Case, Put};
use crate::support;

const SOURCE: &str = concat!(
    include_str!("tools.h"),
    include_str!("facts.c"),
    include_str!("probe.c"),
    include_str!("starter.c"),
    include_str!("ending.c"),
);

/// The starter and probe, compiled once.
fn tools() -> &'static [u8] {
    static PROGRAM: OnceLock<Vec<u8>> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let world = support::World::new();
        fs::read(support::compile(&world, "tools", SOURCE)).unwrap()
    })
}

/// Stands in the text of a case for a byte that is no text.
pub(crate) const ODD_BYTE: char = '\u{f8ff}';

/// The bytes that the text of a case stands for.
pub(crate) fn bytes(text: &str) -> OsString {
    let mut bytes = Vec::new();
    for part in text.split_inclusive(ODD_BYTE) {
        match part.strip_suffix(ODD_BYTE) {
            Some(before) => bytes.extend(before.bytes().chain([0xff])),
            None => bytes.extend(part.bytes()),
        }
    }
    OsString::from_vec(bytes)
}

/// Both worlds of a case. Their names are equally long, so that sizes of links are equal too.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) peer: Side,
    pub(crate) ours: Side,
    // Last, because it can be removed only when both sides have been opened.
    folder: tempfile::TempDir,
}

#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) world: PathBuf,
    /// What bwrap and the starter write about the run.
    pub(crate) records: PathBuf,
}

impl Pair {
    pub(crate) fn of(case: &Case) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("cowork-differential-")
            .tempdir()
            .unwrap();
        let top = fs::canonicalize(folder.path()).unwrap();
        let peer = Side::make(&top, "peer", case);
        let ours = Side::make(&top, "ours", case);
        // Another process writes it: a program this one holds open for writing could not be run
        // by a test that forks at the same moment.
        let mut copy = Command::new("sh")
            .args(["-c", "cat > \"$0\" && chmod 755 \"$0\" && ln \"$0\" \"$1\""])
            .args([peer.program(), ours.program()])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut copy.stdin.take().unwrap(), tools()).unwrap();
        assert!(copy.wait().unwrap().success());
        Self { peer, ours, folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Side {
    fn make(top: &Path, name: &str, case: &Case) -> Self {
        let world = top.join(name);
        let records = top.join(format!("{name}-records"));
        for folder in ["tools", "home", "cwd", "rw", "src/dir/sub"] {
            fs::create_dir_all(world.join(folder)).unwrap();
        }
        fs::create_dir(&records).unwrap();
        let side = Self { world, records };
        side.put(&Put::File("src/file".into(), b"a file\n".to_vec()));
        side.put(&Put::File("src/dir/file".into(), b"in dir\n".to_vec()));
        side.put(&Put::File("src/dir/sub/deep".into(), b"deep\n".to_vec()));
        for put in &case.put {
            side.put(put);
        }
        side
    }

    fn put(&self, put: &Put) {
        let at = |name: &str| self.world.join(bytes(name));
        match put {
            Put::File(name, content) => {
                let content = match String::from_utf8(content.clone()) {
                    Ok(text) => self.filled(&text).into_bytes(),
                    Err(bytes) => bytes.into_bytes(),
                };
                fs::write(at(name), content).unwrap();
                fs::set_permissions(at(name), fs::Permissions::from_mode(0o644)).unwrap();
            }
            Put::Directory(name) => fs::create_dir_all(at(name)).unwrap(),
            Put::Link(target, name) => symlink(self.filled(target), at(name)).unwrap(),
            Put::Mode(name, mode) => {
                fs::set_permissions(at(name), fs::Permissions::from_mode(*mode)).unwrap();
            }
        }
    }

    /// The starter, which is also the probe.
    pub(crate) fn program(&self) -> PathBuf {
        self.world.join("tools/probe")
    }

    /// Text of a case with the paths of this side in it.
    pub(crate) fn filled(&self, text: &str) -> String {
        text.replace("{W}", self.world.to_str().unwrap())
            .replace("{R}", self.records.to_str().unwrap())
    }

    /// Text with the paths of this side taken out again.
    pub(crate) fn emptied(&self, text: &str) -> String {
        text.replace(self.records.to_str().unwrap(), "{R}")
            .replace(self.world.to_str().unwrap(), "{W}")
    }

    /// A path seen through a mount: what lies above this side depends on the host's mounts.
    pub(crate) fn below(&self, path: &str) -> String {
        let top = self.world.parent().unwrap().file_name().unwrap();
        let name = self.world.file_name().unwrap();
        let known = format!("/{}/{}", top.to_str().unwrap(), name.to_str().unwrap());
        match path.find(&known) {
            Some(at) => format!("{{W}}{}", &path[at + known.len()..]),
            None => path.to_owned(),
        }
    }

    /// All that is in the world now, but for the tools.
    pub(crate) fn tree(&self) -> Vec<String> {
        let mut lines = Vec::new();
        self.visit(&self.world, &mut lines);
        lines.sort();
        lines
    }

    fn visit(&self, folder: &Path, lines: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path == self.world.join("tools") {
                continue;
            }
            let about = fs::symlink_metadata(&path).unwrap();
            let mode = std::os::unix::fs::MetadataExt::mode(&about);
            let name = self.emptied(&path.to_string_lossy());
            // Names that an overlay makes for itself.
            let name = match name.split_once("/#") {
                Some((before, _)) => format!("{before}/#N"),
                None => name,
            };
            let content = if about.is_symlink() {
                fs::read_link(&path).unwrap().display().to_string()
            } else if about.is_file() {
                let bytes = fs::read(&path);
                bytes.map_or_else(|e| e.to_string(), |b| b.escape_ascii().to_string())
            } else {
                String::new()
            };
            lines.push(format!("{name} {mode:o} {}", self.emptied(&content)));
            // A folder that was closed before bwrap ran is looked into only by root.
            if about.is_dir() && fs::read_dir(&path).is_ok() {
                self.visit(&path, lines);
            }
        }
    }

    /// Opens what a case closed, so that the world can be removed.
    fn open(folder: &Path) {
        let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
        let Ok(entries) = fs::read_dir(folder) else {
            return;
        };
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                Self::open(&entry.path());
            }
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        Self::open(&self.world);
    }
}
