//! Where what is shown in a box comes from: found on the host, before anything is on top of it.

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2, readlink};
use nix::sys::stat::{FileStat, fstat, stat};

use super::trouble::{InPart, Trouble};
use crate::plan::{AskedStep, BuildStep, Origin, OverlayWrites, Part};
use crate::sys::mount;

/// What was found out about a source.
#[derive(Debug)]
pub(super) enum Found {
    /// The true name of a source with links in its name.
    Name(PathBuf),
    /// The host's root, copied before anything was on top of it.
    Root(OwnedFd),
}

/// A missing source is found out before anything is made anywhere. What links lead to and the
/// host's root itself are had before something is on top of it: `..` would lead there, and a copy
/// would have it.
pub(super) fn look_for(steps: &[BuildStep]) -> Result<Vec<(usize, Found)>, Trouble> {
    let missing = |path: &Path, error: io::Error| {
        Trouble::new(Part::Source, error).with(path.as_os_str().as_bytes())
    };
    let look = |path: &Path| {
        let there = stat(path).map(drop).map_err(io::Error::from);
        there.map_err(|error| missing(path, error))
    };
    let top = Path::new("/");
    let mut found = Vec::new();
    let mut copy_root = |number| -> Result<(), Trouble> {
        let tree = mount::copy_tree_of(top).in_part(Part::Mount)?;
        found.push((number, Found::Root(tree)));
        Ok(())
    };
    let mut names = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        match step {
            BuildStep::Asked(AskedStep::Bind {
                from: Origin::Path(path),
                optional,
                ..
            }) => match without_links(path) {
                Ok(None) if path == top => copy_root(number)?,
                Ok(Some(real)) if real == top => copy_root(number)?,
                Ok(None) => {}
                Ok(Some(real)) => names.push((number, Found::Name(real))),
                Err(error) if *optional && error.raw_os_error() == Some(libc::ENOENT) => {}
                Err(error) => return Err(missing(path, error)),
            },
            BuildStep::Asked(AskedStep::Bind {
                from: Origin::Descriptor(fd),
                ..
            }) => {
                let link = descriptor_link(*fd);
                // Pipes and what was removed have no name by which they could be found again.
                let target = readlink(&link).map_err(|error| missing(&link, error.into()))?;
                stat(target.as_os_str()).map_err(|error| missing(&link, error.into()))?;
                if target == top.as_os_str() {
                    copy_root(number)?;
                }
            }
            BuildStep::Asked(AskedStep::Overlay { lower, writes, .. }) => {
                if let OverlayWrites::To { upper, work } = writes {
                    look(upper)?;
                    look(work)?;
                }
                lower.iter().try_for_each(|path| look(path))?;
            }
            _ => {}
        }
    }
    found.extend(names);
    Ok(found)
}

/// The true name of a path that has links in it, or steps upwards, or ends in nothing new.
fn without_links(path: &Path) -> io::Result<Option<PathBuf>> {
    let is_plain = |part| matches!(part, Component::Normal(_) | Component::RootDir);
    let plain = path == Path::new("/") || (path.has_root() && path.components().all(is_plain));
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    match openat2(AT_FDCWD, path, how) {
        Ok(_) if plain => Ok(None),
        Ok(_) | Err(Errno::ELOOP) => path.canonicalize().map(Some),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn descriptor_link(fd: RawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{fd}"))
}

/// A detached copy of the source. What a descriptor stands for belongs to the caller's mounts,
/// so it is found again by its name, and compared.
pub(super) fn tree_of(from: &Origin, found: Option<Found>) -> Result<OwnedFd, Trouble> {
    match (from, found) {
        (_, Some(Found::Root(tree))) => Ok(tree),
        (_, Some(Found::Name(path))) => mount::copy_tree_of(&path).in_part(Part::Mount),
        (Origin::Path(path), None) => mount::copy_tree_of(path).in_part(Part::Mount),
        (Origin::Descriptor(fd), None) => {
            let link = descriptor_link(*fd);
            let meant = stat(&link).in_part(Part::SourceKind)?;
            let path = PathBuf::from(readlink(&link).in_part(Part::SourceKind)?);
            let tree = mount::copy_tree_of(&path).in_part(Part::Mount)?;
            let found = fstat(&tree).in_part(Part::Mount)?;
            match same(&meant, &found) {
                true => Ok(tree),
                false => Err(Trouble::new(Part::Swapped, Errno::ESTALE.into())),
            }
        }
    }
}

fn same(one: &FileStat, other: &FileStat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}
