//! Places in a box that runs, found and made by a process that has entered it. Programs may move
//! what they can write to at any moment. So each step is taken from a descriptor, no link is
//! followed, and places are made only in folders of ours: those that no program can write to, and
//! their `/tmp`.

use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::mount::{MntFlags, umount2};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, fchdir, getpid, symlinkat, unlinkat};

use super::live::LiveMount;
use crate::plan::Point;
use crate::policy::InsidePath;
use crate::sys::at::{self, Identity};
use crate::sys::mount::{self, ATTR_READ_ONLY};

/// How often something is tried again that others were in the way of.
const TRIES: usize = 5;
/// A disk that does not answer is not asked: what is known of the file will do.
const AS_KNOWN: i32 = 0x4000;
/// Where mounts are kept that were exchanged and are still in use. Nobody may enter it.
const ASIDE: &str = "/sessions/.old";
/// A table of mounts is shorter than this, however many the kernel allows.
const LONGEST_TABLE: u64 = 1 << 28;

/// The place to mount on. What is missing of it in a folder of ours is made; what is missing in
/// another mount is missing.
pub(super) fn make(point: &Point, is_folder: bool) -> io::Result<OwnedFd> {
    let mut made = try_to_make(point, is_folder);
    for _ in 1..TRIES {
        match &made {
            // Another change is clearing up the folders above at this moment.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
            _ => break,
        }
        made = try_to_make(point, is_folder);
    }
    made
}

fn try_to_make(point: &Point, is_folder: bool) -> io::Result<OwnedFd> {
    let ground = in_box(&point.ground)?;
    let ours = mount_of(&ground)?;
    let path = below_ground(point);
    let count = path.iter().count();
    let mut here = ground.try_clone()?;
    let mut so_far = PathBuf::new();
    for (number, name) in path.iter().enumerate() {
        let is_last = number + 1 == count;
        let is_ours = mount_of(&here)? == ours;
        so_far.push(name);
        let missing = |error| match error {
            Errno::ENOENT if is_ours => Errno::EAGAIN,
            other => other,
        };
        let next = match open_below(&here, Path::new(name)) {
            Err(Errno::ENOENT) if is_ours => {
                let ours = writable(&ground)?;
                let made = split(&ours, &so_far)
                    .and_then(|(folder, name)| make_one(&folder, name, is_folder || !is_last));
                match made {
                    // Somebody else has made the folder above just now.
                    Err(Errno::EEXIST) if !is_last => {}
                    made => made.map_err(missing)?,
                }
                open_below(&here, Path::new(name)).map_err(missing)?
            }
            Ok(there) if is_ours && is_last => {
                if !is_link(&there)? || point.link.is_none() {
                    return Err(Errno::EEXIST.into());
                }
                let ours = writable(&ground)?;
                instead(&ours, &so_far, |folder, draft| {
                    make_one(folder, draft, false)
                })?;
                open_below(&here, Path::new(name)).map_err(missing)?
            }
            other => other?,
        };
        match (identity(&next)?.kind(), is_folder || !is_last) {
            (libc::S_IFLNK, _) => return Err(Errno::ELOOP.into()),
            (libc::S_IFDIR, true) | (libc::S_IFREG, false) => {}
            (_, true) => return Err(Errno::ENOTDIR.into()),
            (_, false) => return Err(Errno::EISDIR.into()),
        }
        here = next;
    }
    Ok(here)
}

/// Takes away what was made for a mount, once nothing is mounted there.
pub(super) fn remove(point: &Point) -> io::Result<()> {
    let ground = in_box(&point.ground)?;
    let parent = point.at.as_path().parent().map(InsidePath::new);
    let parent = parent.and_then(Result::ok).unwrap_or(point.ground.clone());
    if mount_of(&in_box(&parent)?)? != mount_of(&ground)? {
        // In another mount nothing was made.
        return Ok(());
    }
    let ours = writable(&ground)?;
    let path = below_ground(point);
    match &point.link {
        Some(link) => instead(&ours, &path, |folder, draft| symlinkat(link, folder, draft))?,
        None => {
            let (folder, name) = split(&ours, &path)?;
            match unlinkat(&folder, name, UnlinkatFlags::RemoveDir) {
                Err(Errno::ENOTDIR) => unlinkat(&folder, name, UnlinkatFlags::NoRemoveDir)?,
                done => done?,
            }
        }
    }
    clear_above(&ours, point);
    Ok(())
}

/// Takes away folders that were made on the way to a place and that nobody needs.
pub(super) fn tidy(point: &Point) -> io::Result<()> {
    let ours = writable(&in_box(&point.ground)?)?;
    clear_above(&ours, point);
    Ok(())
}

fn clear_above(ours: &OwnedFd, point: &Point) {
    let path = below_ground(point);
    for up in path.ancestors().skip(1) {
        let is_lasting = point.ground.as_path().join(up) == point.lasting.as_path();
        if up.as_os_str().is_empty() || is_lasting {
            return;
        }
        // One that something else is in stays.
        let removed = split(ours, up)
            .and_then(|(folder, name)| unlinkat(&folder, name, UnlinkatFlags::RemoveDir));
        if removed.is_err() {
            return;
        }
    }
}

/// A place that no program gets to, for a mount that another has taken the place of.
pub(super) fn aside(is_folder: bool) -> io::Result<OwnedFd> {
    let ours = writable(&in_box(&InsidePath::fixed("/"))?)?;
    let aside = InsidePath::fixed(ASIDE);
    match mkdirat(&ours, aside.relative(), Mode::empty()) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let place = Path::new(ASIDE).join(getpid().to_string());
    let place = InsidePath::new(place).map_err(|_| io::Error::from(Errno::EINVAL))?;
    let (folder, name) = split(&ours, place.relative())?;
    make_one(&folder, name, is_folder)?;
    in_box(&place)
}

/// Lets go of what was set aside and is not in use any more.
pub(super) fn sweep() {
    let Ok(entries) = std::fs::read_dir(ASIDE) else {
        return;
    };
    let aside = InsidePath::fixed(ASIDE);
    let root = in_box(&InsidePath::fixed("/"));
    let (Ok(folder), Ok(ours)) = (in_box(&aside), root.and_then(|root| writable(&root))) else {
        return;
    };
    for name in entries.flatten().map(|entry| entry.file_name()) {
        let Ok(text) = CString::new(name.as_bytes()) else {
            continue;
        };
        let _ = fchdir(&folder);
        match umount2(text.as_c_str(), MntFlags::UMOUNT_NOFOLLOW) {
            // Never came there, or is gone.
            Ok(()) | Err(Errno::EINVAL) => {}
            Err(_) => continue,
        }
        let place = aside.relative().join(&name);
        if unlinkat(&ours, &place, UnlinkatFlags::RemoveDir) == Err(Errno::ENOTDIR) {
            let _ = unlinkat(&ours, &place, UnlinkatFlags::NoRemoveDir);
        }
    }
}

/// Makes something under another name and then puts it where it belongs, so that there is no
/// moment without anything.
fn instead(
    ours: &OwnedFd,
    path: &Path,
    make: impl FnOnce(&OwnedFd, &OsStr) -> nix::Result<()>,
) -> nix::Result<()> {
    let (folder, name) = split(ours, path)?;
    let draft = format!(".cowork-{}", getpid());
    make(&folder, OsStr::new(&draft))?;
    let text = |name: &OsStr| CString::new(name.as_bytes()).map_err(|_| Errno::EINVAL);
    let (from, to) = (text(OsStr::new(&draft))?, text(name)?);
    at::rename(folder.as_fd(), &from, folder.as_fd(), &to, 0)
}

fn make_one(folder: &OwnedFd, name: &OsStr, is_folder: bool) -> nix::Result<()> {
    if is_folder {
        return mkdirat(folder, name, Mode::from_bits_truncate(0o755));
    }
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    openat(folder, name, flags, Mode::from_bits_truncate(0o444)).map(drop)
}

/// The folder that a path ends in, found without following links, and the name in it.
fn split<'p>(ours: &OwnedFd, path: &'p Path) -> nix::Result<(OwnedFd, &'p OsStr)> {
    let name = path.file_name().ok_or(Errno::EINVAL)?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let folder = open_below(ours, above.unwrap_or(Path::new(".")))?;
    Ok((folder, name))
}

/// A folder of ours as a copy that can be written to: inside it is read-only for everybody.
fn writable(ground: &OwnedFd) -> io::Result<OwnedFd> {
    let copy = mount::copy_mount(ground.as_fd(), Path::new(""))?;
    mount::loosen_mount(copy.as_fd(), ATTR_READ_ONLY)?;
    Ok(copy)
}

/// Where a mount hangs: a folder, and a name in it. What is held is the folder, so that the mount
/// itself is not in use.
#[derive(Debug)]
pub(super) struct Holder {
    folder: OwnedFd,
    name: CString,
}

impl Holder {
    fn of(at: &InsidePath) -> io::Result<Self> {
        let (folder, name) = match (at.as_path().parent(), at.as_path().file_name()) {
            (Some(folder), Some(name)) => (InsidePath::new(folder), name),
            _ => return Err(Errno::EINVAL.into()),
        };
        let folder = folder.map_err(|_| io::Error::from(Errno::EINVAL))?;
        Ok(Self {
            folder: in_box(&folder)?,
            name: CString::new(name.as_bytes())?,
        })
    }

    /// The mount at its own place, if it is still that one.
    pub(super) fn at_its_place(mount: &LiveMount) -> Option<Self> {
        let holder = Self::of(&mount.point.at).ok()?;
        holder.holds(mount).then_some(holder)
    }

    /// The mount wherever it is now: a program can move a folder above it, if that is its own.
    /// `about` is this process's folder in /proc, opened outside.
    pub(super) fn find(mount: &LiveMount, about: &OwnedFd) -> io::Result<Option<Self>> {
        for _ in 0..TRIES {
            if let Some(holder) = Self::at_its_place(mount) {
                return Ok(Some(holder));
            }
            let Some(number) = mount.shown else {
                return Ok(None);
            };
            let Some(place) = place_of(number, &table(about)?) else {
                return Ok(None);
            };
            let moved = InsidePath::new(place).ok().map(|at| Self::of(&at));
            if let Some(Ok(holder)) = moved
                && holder.holds(mount)
            {
                return Ok(Some(holder));
            }
        }
        Err(Errno::EAGAIN.into())
    }

    /// Whether this mount is on top there, or one that it took the place of.
    pub(super) fn holds(&self, mount: &LiveMount) -> bool {
        let Ok(there) = self.identity() else {
            return false;
        };
        let device = mount.seen.device;
        let device = [nix::sys::stat::major(device), nix::sys::stat::minor(device)];
        let is_source = there.inode == mount.seen.inode
            && [there.device.0, there.device.1].map(u64::from) == device
            && mount_of(&self.folder).is_ok_and(|folder| folder != there.mount);
        mount.over.contains(&there.mount)
            || match mount.shown {
                Some(number) => there.mount == number,
                // It may never have come so far; then what is there is looked at.
                None => is_source,
            }
    }

    pub(super) fn identity(&self) -> nix::Result<Identity> {
        let flags = libc::AT_SYMLINK_NOFOLLOW | AS_KNOWN;
        at::identify(self.folder.as_raw_fd(), &self.name, flags)
    }

    /// What is on top there, to mount on or under.
    pub(super) fn top(&self) -> io::Result<OwnedFd> {
        let name = OsString::from_vec(self.name.as_bytes().to_vec());
        Ok(open_below(&self.folder, Path::new(&name))?)
    }

    /// Takes away what is on top there.
    pub(super) fn let_go(&self, flags: MntFlags) -> nix::Result<()> {
        fchdir(&self.folder)?;
        umount2(self.name.as_c_str(), flags | MntFlags::UMOUNT_NOFOLLOW)
    }
}

/// Whether a tree that was attached is at its place, and not where somebody moved the place to.
pub(super) fn is_at(tree: &OwnedFd, point: &Point) -> io::Result<bool> {
    let there = in_box(&point.at);
    let there = there.and_then(|there| mount_of(&there));
    Ok(there.is_ok_and(|there| mount_of(tree).is_ok_and(|tree| there == tree)))
}

/// The table of mounts of the box that this process is in.
fn table(about: &OwnedFd) -> io::Result<Vec<u8>> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let file = openat(about, "mountinfo", flags, Mode::empty())?;
    let mut text = Vec::new();
    let file = std::fs::File::from(file);
    file.take(LONGEST_TABLE).read_to_end(&mut text)?;
    Ok(text)
}

/// Where the mount of that number is.
fn place_of(number: u64, table: &[u8]) -> Option<PathBuf> {
    let number = number.to_string();
    let mut lines = table.split(|byte| *byte == b'\n');
    lines.find_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let is_it = fields.next()? == number.as_bytes();
        let place = fields.nth(3)?;
        is_it.then(|| PathBuf::from(OsString::from_vec(plain(place))))
    })
}

/// The kernel writes four characters as three octal digits.
fn plain(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, others)) = rest.split_first() {
        let digits = others.get(..3).filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &others[3..];
            }
            None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    bytes
}

fn below_ground(point: &Point) -> PathBuf {
    let below = point.at.as_path().strip_prefix(point.ground.as_path());
    below.unwrap_or(point.at.relative()).to_owned()
}

/// An object in the box by its path; a link on the way is an error, one at the end is not followed.
fn in_box(at: &InsidePath) -> io::Result<OwnedFd> {
    let root = at::open_path(Path::new("/"))?;
    Ok(open_below(&root, at.relative())?)
}

fn open_below(folder: &OwnedFd, path: &Path) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW)
        .resolve(
            ResolveFlag::RESOLVE_BENEATH
                | ResolveFlag::RESOLVE_NO_SYMLINKS
                | ResolveFlag::RESOLVE_NO_MAGICLINKS,
        );
    openat2(folder, path, how)
}

fn identity(fd: &OwnedFd) -> io::Result<Identity> {
    let flags = libc::AT_EMPTY_PATH | AS_KNOWN;
    Ok(at::identify(fd.as_raw_fd(), c"", flags)?)
}

fn is_link(fd: &OwnedFd) -> io::Result<bool> {
    Ok(identity(fd)?.kind() == libc::S_IFLNK)
}

pub(super) fn mount_of(fd: &OwnedFd) -> io::Result<u64> {
    Ok(identity(fd)?.mount)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_in_the_table_by_its_number_and_names_are_plain() {
        let table = b"21 1 0:5 / /proc rw - proc proc rw\n\
                      210 1 8:1 /a\\040b /x\\040\\134y\\012 ro,nosuid - ext4 /dev/x rw\n";
        assert_eq!(place_of(210, table), Some("/x \\y\n".into()));
        assert_eq!(place_of(21, table), Some("/proc".into()));
        assert_eq!(place_of(1, table), None);
    }
}
