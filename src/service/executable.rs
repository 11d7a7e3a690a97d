//! Whether a file is a program that can run in a session, by its first bytes.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

use super::folders::{in_words, look, open_through_links};
use super::sdk::Program;
use crate::plan::Seen;

/// What of the host every session sees as it is.
const IN_VIEW: [&str; 7] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
];
const SEARCHED: [&str; 6] = [
    "/usr/local/bin",
    "/usr/bin",
    "/bin",
    "/usr/local/sbin",
    "/usr/sbin",
    "/sbin",
];
/// Programs that only start another, by what they find around them.
const MANAGERS: [&str; 6] = ["mise", "rtx", "asdf", "proto", "volta", "volta-shim"];

pub(super) enum Unfit {
    Missing,
    Because(String),
}

impl From<&str> for Unfit {
    fn from(why: &str) -> Self {
        Self::Because(why.to_owned())
    }
}

/// Whether a file is a program that can run in a session.
pub(super) fn check(path: &Path) -> Result<Program, Unfit> {
    let opened = open_through_links(path).map_err(|error| match error {
        Errno::ENOENT | Errno::ENOTDIR => Unfit::Missing,
        error => Unfit::Because(in_words(error)),
    })?;
    let (real, metadata) = look(&opened).map_err(Unfit::Because)?;
    if !metadata.is_file() {
        return Err("it is not a file".into());
    }
    let by_number = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let is_allowed = access(by_number.as_str(), AccessFlags::X_OK).is_ok();
    if !is_allowed || metadata.permissions().mode() & 0o111 == 0 {
        return Err("it is not executable; chmod +x makes it so".into());
    }
    let is_shim = real.components().any(|part| part.as_os_str() == "shims");
    let name = real.file_name().unwrap_or_default();
    if is_shim || MANAGERS.iter().any(|manager| name == *manager) {
        return Err(
            "it only starts another by what its tool manager finds, which is not there".into(),
        );
    }
    let head = head(&opened)
        .map_err(|error| Unfit::Because(crate::report::without_number(&error.to_string())))?;
    judge(&head, &real)?;
    Ok(Program {
        path: real,
        seen: Seen {
            device: metadata.dev(),
            inode: metadata.ino(),
            uid: metadata.uid(),
            gid: metadata.gid(),
        },
    })
}

fn head(opened: &OwnedFd) -> std::io::Result<Vec<u8>> {
    let file = fs::File::open(format!("/proc/self/fd/{}", opened.as_raw_fd()))?;
    let mut head = Vec::with_capacity(256);
    file.take(256).read_to_end(&mut head)?;
    Ok(head)
}

/// What the first bytes say that it is.
fn judge(head: &[u8], path: &Path) -> Result<(), Unfit> {
    match head {
        [0x7f, b'E', b'L', b'F', ..] => elf(head),
        [0xcf | 0xce, 0xfa, 0xed, 0xfe, ..]
        | [0xfe, 0xed, 0xfa, 0xcf | 0xce, ..]
        | [0xca, 0xfe, 0xba, 0xbe | 0xbf, ..] => {
            Err("it is a program for macOS; let the app download the one for Linux".into())
        }
        [b'M', b'Z', ..] => Err("it is a program for Windows".into()),
        [b'#', b'!', line @ ..] => script(line, path),
        [] => Err("it is empty; the download may have been broken off".into()),
        _ => Err("it is no program for Linux".into()),
    }
}

fn elf(head: &[u8]) -> Result<(), Unfit> {
    const EXECUTABLE: u16 = 2;
    const POSITION_INDEPENDENT: u16 = 3;
    let (machine, name) = match std::env::consts::ARCH {
        "x86_64" => (62, "x86_64"),
        "aarch64" => (183, "aarch64"),
        "riscv64" => (243, "riscv64"),
        other => (0, other),
    };
    let number = |at: usize| Some(u16::from_le_bytes([*head.get(at)?, *head.get(at + 1)?]));
    let is_wide_and_little = head.get(4) == Some(&2) && head.get(5) == Some(&1);
    match (number(16), number(18)) {
        (Some(EXECUTABLE | POSITION_INDEPENDENT), Some(its))
            if is_wide_and_little && its == machine =>
        {
            Ok(())
        }
        (Some(_), Some(_)) => Err(Unfit::Because(format!(
            "it is a program for another processor; this computer's is {name}"
        ))),
        _ => Err("it ends after a few bytes; the download may have been broken off".into()),
    }
}

/// A script runs where its interpreter is, and only if all of it is in one file.
fn script(line: &[u8], path: &Path) -> Result<(), Unfit> {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let words = line.split(u8::is_ascii_whitespace);
    let mut words = words.filter(|word| !word.is_empty()).map(OsStr::from_bytes);
    let Some(first) = words.next().map(Path::new) else {
        return Err("it is a script without an interpreter".into());
    };
    let runs = |path: &Path| {
        fs::metadata(path).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    let absent = |name: &Path| {
        Unfit::Because(format!(
            "it is a script for {}, which sessions do not have; install Claude Code's native build",
            name.display()
        ))
    };
    if !is_in_view(first) || !runs(first) {
        return Err(absent(first));
    }
    if first.ends_with("env") {
        let is_name = |word: &&OsStr| {
            let word = word.as_bytes();
            !word.starts_with(b"-") && !word.contains(&b'=')
        };
        let name = Path::new(words.find(is_name).unwrap_or_default());
        let is_there = SEARCHED
            .iter()
            .any(|folder| runs(&Path::new(folder).join(name)));
        if name.as_os_str().is_empty() || !is_there {
            return Err(absent(name));
        }
    }
    let is_packed = path
        .components()
        .any(|part| part.as_os_str() == "node_modules");
    match is_packed && !is_in_view(path) {
        true => Err("it needs the folder it lies in; install Claude Code's native build".into()),
        false => Ok(()),
    }
}

pub(super) fn is_in_view(path: &Path) -> bool {
    IN_VIEW.iter().any(|folder| path.starts_with(folder))
}
