//! The only recursive delete there is. It follows no link, never crosses into another mount,
//! and holds two descriptors however deep the tree is.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2, renameat};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// How a folder is called that was moved up to be removed.
const BESIDE: &str = ".removing-";

/// Removes `name` below `parent`. What lies on another mount stops it with an error.
pub(super) fn remove_tree(parent: &OwnedFd, name: &str) -> io::Result<()> {
    let mut waiting = vec![name.to_owned()];
    // What an earlier removal was killed over goes first, and its numbers are not used again.
    let mut moved = 0u64;
    for entry in list(parent)? {
        let number = entry
            .to_str()
            .ok()
            .and_then(|name| name.strip_prefix(BESIDE));
        if let Some(number) = number.and_then(|digits| digits.parse().ok()) {
            moved = moved.max(number);
            waiting.push(format!("{BESIDE}{number}"));
        }
    }
    while let Some(folder) = waiting.pop() {
        match unlinkat(parent, folder.as_str(), UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => continue,
            Err(Errno::ENOTDIR) => {
                unlinkat(parent, folder.as_str(), UnlinkatFlags::NoRemoveDir)?;
                continue;
            }
            Err(_) => {}
        }
        let open = open_folder(parent, Path::new(&folder))?;
        for entry in list(&open)? {
            match unlinkat(&open, entry.as_c_str(), UnlinkatFlags::NoRemoveDir) {
                Ok(()) => continue,
                Err(Errno::EISDIR) => {}
                Err(error) => return Err(error.into()),
            }
            // A folder moves up beside its parent: depth never costs descriptors or stack.
            moved += 1;
            let beside = format!("{BESIDE}{moved}");
            let rename = || renameat(&open, entry.as_c_str(), parent, beside.as_str());
            match rename() {
                // To move a folder is to write to it: one without rights gets them back first.
                Err(Errno::EACCES) => {
                    open_folder(
                        &open,
                        Path::new(std::ffi::OsStr::from_bytes(entry.to_bytes())),
                    )?;
                    rename()?;
                }
                other => other?,
            }
            waiting.push(beside);
        }
        unlinkat(parent, folder.as_str(), UnlinkatFlags::RemoveDir)?;
    }
    Ok(())
}

fn open_folder(parent: &OwnedFd, name: &Path) -> io::Result<OwnedFd> {
    let how = |flags| {
        OpenHow::new()
            .flags(flags | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
            .resolve(
                ResolveFlag::RESOLVE_NO_XDEV
                    | ResolveFlag::RESOLVE_BENEATH
                    | ResolveFlag::RESOLVE_NO_SYMLINKS,
            )
    };
    match openat2(parent, name, how(OFlag::O_RDONLY)) {
        // A program may have taken its own rights away; the folder is still ours.
        Err(Errno::EACCES) => {
            let handle = openat2(parent, name, how(OFlag::O_PATH))?;
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&handle));
            nix::sys::stat::fchmodat(
                nix::fcntl::AT_FDCWD,
                path.as_str(),
                Mode::S_IRWXU,
                nix::sys::stat::FchmodatFlags::FollowSymlink,
            )?;
            Ok(openat2(parent, name, how(OFlag::O_RDONLY))?)
        }
        other => {
            let folder = other?;
            let _ = fchmod(folder.as_fd(), Mode::S_IRWXU);
            Ok(folder)
        }
    }
}

fn list(folder: &OwnedFd) -> io::Result<Vec<std::ffi::CString>> {
    let mut dir = nix::dir::Dir::from_fd(folder.try_clone()?)?;
    let mut names = Vec::new();
    for entry in dir.iter() {
        let name = entry?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn folder(path: &Path) -> OwnedFd {
        fs::File::open(path).unwrap().into()
    }

    #[test]
    fn deep_closed_and_linked_trees_go_and_targets_stay() {
        let dir = tempfile::tempdir().unwrap();
        let keep = dir.path().join("keep");
        fs::create_dir(&keep).unwrap();
        fs::write(keep.join("work"), "mine").unwrap();
        let top = dir.path().join("gone");
        fs::create_dir(&top).unwrap();
        std::os::unix::fs::symlink(&keep, top.join("link")).unwrap();
        fs::create_dir(top.join("closed")).unwrap();
        fs::write(top.join("closed/file"), "x").unwrap();
        fs::set_permissions(
            top.join("closed"),
            std::os::unix::fs::PermissionsExt::from_mode(0o0),
        )
        .unwrap();
        let mut deep = folder(&top);
        for _ in 0..3000 {
            nix::sys::stat::mkdirat(&deep, "d", Mode::S_IRWXU).unwrap();
            deep = open_folder(&deep, Path::new("d")).unwrap();
        }
        drop(deep);
        remove_tree(&folder(dir.path()), "gone").unwrap();
        assert!(!top.exists());
        assert_eq!(fs::read_to_string(keep.join("work")).unwrap(), "mine");
    }

    #[test]
    fn what_is_not_there_is_removed_already() {
        let dir = tempfile::tempdir().unwrap();
        remove_tree(&folder(dir.path()), "nothing").unwrap();
    }
}
