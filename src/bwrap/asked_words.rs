//! What went wrong with a step that was asked for, in bubblewrap's words.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::words::{Failure, Said, alone, mounting, plain};
use crate::plan::{AskedStep, Origin, OverlayWrites, Part};
use crate::sandbox::escaped;

/// The place as bubblewrap calls it while it builds.
fn below(root: &str, path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let start = bytes
        .iter()
        .position(|byte| *byte != b'/')
        .unwrap_or(bytes.len());
    format!("{root}{}", String::from_utf8_lossy(&bytes[start..]))
}

fn new_root(at: &Path) -> String {
    below("/newroot/", at)
}

pub(super) fn of_asked(step: &AskedStep, failure: &Failure<'_>) -> Said {
    let at = place_of(step);
    let shown = at.display();
    match failure.part {
        Part::Parents => return plain(format!("Can't mkdir parents for {shown}")),
        Part::Folder => return plain(format!("Can't mkdir {shown}")),
        _ => {}
    }
    match step {
        AskedStep::Bind { from, .. } => of_bind(from, at, failure),
        AskedStep::RemountReadOnly { .. } => {
            let place = new_root(at);
            let text = format!("Can't remount readonly on {place}");
            match failure.part {
                Part::Destination => plain(format!("{text}: realpath(destination)")),
                Part::NotMounted => {
                    let place = resolved_text(&place);
                    alone(format!("{text}: Unable to find \"{place}\" in mount table"))
                }
                _ => mounting(format!(
                    "{text}: Unable to remount destination \"{place}\" with correct flags"
                )),
            }
        }
        AskedStep::Overlay { lower, writes, .. } => of_overlay(lower, writes, at, failure),
        AskedStep::Proc { .. } => match failure.part {
            Part::Cover => {
                let part = format!("{}/{}", new_root(at), failure.name());
                mounting(format!(
                    "Can't bind mount {part} on {part}: Unable to mount source on destination"
                ))
            }
            _ => mounting(format!("Can't mount proc on {}", new_root(at))),
        },
        AskedStep::Dev { .. } => of_dev(at, failure),
        AskedStep::Tmpfs { .. } => mounting(format!("Can't mount tmpfs on {}", new_root(at))),
        AskedStep::MessageQueue { .. } => {
            mounting(format!("Can't mount mqueue on {}", new_root(at)))
        }
        AskedStep::Folder { .. } => plain(format!("Can't mkdir {shown}")),
        AskedStep::File { .. } => match failure.part {
            Part::Write => plain(format!("Can't write data to file {shown}")),
            _ => plain(format!("Can't create file {shown}")),
        },
        AskedStep::Data { mode, .. } => match failure.part {
            Part::Temporary => plain(format!("Can't create tmpfile for {shown}")),
            Part::Mode => plain(format!(
                "Can't set mode {} on file to be used for {shown}",
                octal(*mode)
            )),
            Part::Write => plain(format!("Can't write data to file {shown}")),
            Part::File => plain(format!("Can't create file at {shown}")),
            _ => mounting(format!(
                "Can't bind mount /bindfileXXXXXX on {}: Unable to mount source on destination",
                new_root(at)
            )),
        },
        AskedStep::Link { .. } => match failure.part {
            Part::OtherLink => alone(format!(
                "Can't make symlink at {shown}: existing destination is {}",
                failure.name()
            )),
            Part::NotALink if failure.errno == libc::EINVAL => alone(format!(
                "Can't make symlink at {shown}: destination exists and is not a symlink"
            )),
            Part::NotALink => plain(format!(
                "Can't make symlink at {shown}: destination exists, and cannot read symlink target"
            )),
            _ => plain(format!("Can't make symlink at {shown}")),
        },
        AskedStep::Chmod { mode, .. } => plain(format!("Can't chmod {} {shown}", octal(*mode))),
        AskedStep::Hostname(name) => {
            plain(format!("Can't set hostname to {}", name.to_string_lossy()))
        }
    }
}

/// As C prints it: a zero in front of what is not zero.
fn octal(mode: u32) -> String {
    match mode {
        0 => "0".to_owned(),
        mode => format!("0{mode:o}"),
    }
}

fn place_of(step: &AskedStep) -> &Path {
    match step {
        AskedStep::Bind { at, .. }
        | AskedStep::RemountReadOnly { at }
        | AskedStep::Overlay { at, .. }
        | AskedStep::Proc { at }
        | AskedStep::Dev { at }
        | AskedStep::Tmpfs { at, .. }
        | AskedStep::MessageQueue { at }
        | AskedStep::Folder { at, .. }
        | AskedStep::File { at, .. }
        | AskedStep::Data { at, .. }
        | AskedStep::Link { at, .. }
        | AskedStep::Chmod { at, .. } => at,
        AskedStep::Hostname(_) => Path::new(""),
    }
}

fn of_bind(from: &Origin, at: &Path, failure: &Failure<'_>) -> Said {
    let source = match from {
        Origin::Path(path) => path.clone(),
        Origin::Descriptor(fd) => PathBuf::from(format!("/proc/self/fd/{fd}")),
    };
    match failure.part {
        Part::SourceKind => plain(format!("Can't get type of source {}", source.display())),
        Part::File => plain(format!("Can't create file at {}", at.display())),
        Part::Swapped if failure.errno == libc::EBADF => match from {
            Origin::Descriptor(fd) => plain(format!("Can't stat fd {fd}")),
            Origin::Path(_) => alone("Race condition binding dirfd"),
        },
        Part::Swapped => alone("Race condition binding dirfd"),
        _ => {
            let real = source.canonicalize().unwrap_or(source);
            mounting(format!(
                "Can't bind mount {} on {}: Unable to mount source on destination",
                below("/oldroot/", &real),
                new_root(at)
            ))
        }
    }
}

/// A path without what only says the same twice.
fn resolved_text(path: &str) -> String {
    match path.trim_end_matches('/') {
        "" => "/".to_owned(),
        path => path.to_owned(),
    }
}

fn of_overlay(lower: &[PathBuf], writes: &OverlayWrites, at: &Path, failure: &Failure<'_>) -> Said {
    if failure.part == Part::Temporary {
        return plain("Creating --tmp-overlay upperdir failed");
    }
    let real = |path: &PathBuf| {
        let path = path.canonicalize().unwrap_or_else(|_| path.clone());
        let path = escaped(path.as_os_str());
        format!("/oldroot{}", path.to_string_lossy())
    };
    let mut options = match writes {
        OverlayWrites::Refused => String::new(),
        OverlayWrites::Hidden => {
            "upperdir=/tmp-overlay-upper-0,workdir=/tmp-overlay-work-0,".to_owned()
        }
        OverlayWrites::To { upper, work } => {
            format!("upperdir={},workdir={},", real(upper), real(work))
        }
    };
    options.push_str("lowerdir=");
    options.push_str(&lower.iter().map(real).collect::<Vec<_>>().join(":"));
    let text = format!(
        "Can't make overlay mount on {} with options {options},userxattr",
        new_root(at)
    );
    match failure.errno {
        libc::ELOOP => alone(format!("{text}: Overlay directories may not overlap")),
        _ => mounting(text),
    }
}

fn of_dev(at: &Path, failure: &Failure<'_>) -> Said {
    let (shown, name) = (at.display(), failure.name());
    match (failure.part, name.as_str()) {
        (Part::DeviceLink, "ptmx") => plain(format!("Can't make symlink at {shown}/ptmx")),
        (Part::DeviceLink, _) => plain(format!("Can't create symlink {shown}/{name}")),
        (Part::Device, "shm") => plain(format!("Can't create {shown}/shm")),
        (Part::Device, "pts") => mounting(format!("Can't mount devpts on {}/pts", new_root(at))),
        (Part::Device, _) => mounting(format!(
            "Can't bind mount /oldroot/dev/{name} on {}/{name}: Unable to mount source on \
             destination",
            new_root(at)
        )),
        _ => mounting(format!("Can't mount tmpfs on {}", new_root(at))),
    }
}
