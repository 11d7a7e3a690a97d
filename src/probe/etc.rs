//! What of /etc programs need: looked for by name, never by listing it.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::plan::EtcEntry;

/// Shown as they are: too large to copy, or folders.
const SHOWN: [&str; 7] = [
    "alternatives",
    // Debian's Chromium is a script that does not start without it.
    "chromium.d",
    "crypto-policies",
    "fonts",
    "ld.so.cache",
    "pki",
    "ssl",
];
/// Copied: small, and cheaper to write than to mount.
const COPIED: [&str; 6] = [
    "inputrc",
    "locale.conf",
    "localtime",
    "os-release",
    "services",
    "timezone",
];
const SMALL: u64 = 64 << 10;

pub(super) fn entries() -> Vec<EtcEntry> {
    let shown = SHOWN.into_iter().filter_map(shown);
    let copied = COPIED.into_iter().filter_map(copied);
    shown
        .chain(copied)
        .chain(terminfo())
        .chain(java())
        .collect()
}

fn shown(name: &str) -> Option<EtcEntry> {
    let kind = fs::metadata(Path::new("/etc").join(name)).ok()?;
    Some(EtcEntry::Shown {
        name: name.to_owned(),
        is_folder: kind.is_dir(),
    })
}

fn copied(name: &str) -> Option<EtcEntry> {
    let path = Path::new("/etc").join(name);
    let kind = fs::symlink_metadata(&path).ok()?.file_type();
    if kind.is_symlink() {
        let to = fs::read_link(&path).ok()?;
        let stays = to.starts_with("/usr") || to.starts_with("../usr");
        if stays {
            return Some(EtcEntry::Link {
                name: name.to_owned(),
                to,
            });
        }
    }
    let content = small_file(&path)?;
    Some(EtcEntry::Copied {
        name: name.to_owned(),
        content,
    })
}

/// Debian keeps a nearly empty /etc/terminfo; only one with entries is worth a mount.
fn terminfo() -> Option<EtcEntry> {
    let folder = fs::metadata("/etc/terminfo").ok()?;
    (folder.is_dir() && folder.nlink() > 2).then(|| EtcEntry::Shown {
        name: "terminfo".to_owned(),
        is_folder: true,
    })
}

/// A Java from the distribution has its configuration in /etc, one folder per version.
fn java() -> Vec<EtcEntry> {
    let Ok(installed) = fs::read_dir("/usr/lib/jvm") else {
        return Vec::new();
    };
    let mut found: Vec<EtcEntry> = Vec::new();
    for name in installed
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
    {
        let Some(version) = name.split('-').nth(1).filter(|_| name.starts_with("java-")) else {
            continue;
        };
        let entry = shown(&format!("java-{version}-openjdk"));
        if let Some(entry) = entry.filter(|entry| !found.contains(entry)) {
            found.push(entry);
        }
    }
    found
}

/// The content of a regular file of sensible size; never waits.
pub(super) fn small_file(path: &Path) -> Option<Vec<u8>> {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .ok()?;
    let kind = file.metadata().ok()?;
    if !kind.is_file() || kind.len() > SMALL {
        return None;
    }
    let mut content = Vec::with_capacity(kind.len() as usize + 1);
    file.take(SMALL).read_to_end(&mut content).ok()?;
    Some(content)
}

/// The user's name from /etc/passwd; directory services are not asked.
pub(super) fn user_name(uid: u32) -> Option<String> {
    let content = small_file(Path::new("/etc/passwd"))?;
    let text = String::from_utf8_lossy(&content);
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let number: u32 = fields.nth(1)?.parse().ok()?;
        let plain = !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        (number == uid && plain).then(|| name.to_owned())
    })
}
