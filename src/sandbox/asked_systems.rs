//! The filesystems a step can ask for that are not on any disk: processes, devices, memory.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::{Mode, SFlag, mkdirat, mknodat};
use nix::unistd::symlinkat;

use super::asked::{Stage, put};
use super::place::{self, Kind};
use super::trouble::{InPart, Trouble};
use crate::plan::Part;
use crate::sys::at;
use crate::sys::mount::{self, ATTR_NO_DEVICES, ATTR_NO_EXEC, ATTR_NO_SETUID, ATTR_READ_ONLY};

const PRIVATE: u32 = 0o700;
const SAFE: u64 = ATTR_NO_SETUID | ATTR_NO_DEVICES;

/// Parts of /proc that speak to the whole machine.
const MACHINE: [&str; 4] = ["sys", "sysrq-trigger", "irq", "bus"];
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const LINKS: [(&str, &str); 5] = [
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("fd", "/proc/self/fd"),
    ("core", "/proc/kcore"),
];

pub(super) fn tmpfs(mode: u32, size: Option<u64>, label: Option<&OsStr>) -> io::Result<OwnedFd> {
    let mode = CString::new(format!("{mode:o}"))?;
    let size = size
        .map(|size| CString::new(size.to_string()))
        .transpose()?;
    let label = label
        .map(|label| CString::new(label.as_bytes()))
        .transpose()?;
    let mut options = vec![(c"source", c"tmpfs"), (c"mode", mode.as_c_str())];
    options.extend(size.as_deref().map(|size| (c"size", size)));
    options.extend(label.as_deref().map(|label| (c"context", label)));
    mount::new_filesystem(c"tmpfs", &options, SAFE)
}

/// The box's own processes, or the caller's where they are shared.
pub(super) fn proc(stage: &mut Stage, at: &Path) -> Result<(), Trouble> {
    let tree = match stage.terms.own_processes {
        true => mount::new_filesystem(c"proc", &[(c"source", c"proc")], SAFE | ATTR_NO_EXEC)
            .in_part(Part::Mount),
        false => shared_proc().in_part(Part::Mount),
    };
    put(stage, tree, at, Kind::Folder, PRIVATE)?;
    let place = place::open(stage.root()?, at).in_part(Part::Mount)?;
    let from_root = stage.terms.from_root;
    MACHINE
        .iter()
        .try_for_each(|name| cover(&place, name, from_root))
}

fn shared_proc() -> io::Result<OwnedFd> {
    let tree = mount::copy_tree_of(Path::new("/proc"))?;
    mount::restrict_tree(tree.as_fd(), SAFE)?;
    Ok(tree)
}

/// Makes a part of /proc read-only where this user could write to it. For root that is true of
/// what lies in `sys`, although the folder itself says otherwise.
fn cover(proc: &OwnedFd, name: &'static str, from_root: bool) -> Result<(), Trouble> {
    let failed = |error: io::Error| Trouble::new(Part::Cover, error).with(name.as_bytes());
    let path = CString::new(name).map_err(|error| failed(error.into()))?;
    let writable = match at::may_access(proc.as_fd(), &path, libc::W_OK, 0) {
        Ok(()) => true,
        Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::EACCES | Errno::EROFS) => from_root,
        Err(error) => return Err(failed(error.into())),
    };
    if !writable {
        return Ok(());
    }
    let covered = || -> io::Result<()> {
        let tree = mount::copy_tree(proc.as_fd(), Path::new(name))?;
        mount::restrict_tree(tree.as_fd(), SAFE | ATTR_READ_ONLY)?;
        let target = place::open(proc.as_fd(), Path::new(name))?;
        mount::attach(tree.as_fd(), target.as_fd())
    };
    covered().map_err(failed)
}

/// The devices every program expects, and terminals of the box's own.
pub(super) fn dev(stage: &mut Stage, at: &Path) -> Result<(), Trouble> {
    let tree = tmpfs(0o755, None, stage.terms.label.as_deref()).in_part(Part::Mount);
    put(stage, tree, at, Kind::Folder, PRIVATE)?;
    let dev = place::open(stage.root()?, at).in_part(Part::Mount)?;
    for name in DEVICES {
        device(dev.as_fd(), name, &Path::new("/dev").join(name))?;
    }
    for (name, to) in LINKS {
        symlinkat(to, &dev, name)
            .in_part(Part::DeviceLink)
            .map_err(|trouble| trouble.with(name.as_bytes()))?;
    }
    let folder = |name: &'static str| {
        let mode = Mode::from_bits_truncate(0o755);
        let made = mkdirat(&dev, name, mode).in_part(Part::Device);
        made.map_err(|trouble| trouble.with(name.as_bytes()))
    };
    folder("shm")?;
    folder("pts")?;
    terminals(dev.as_fd())
        .in_part(Part::Device)
        .map_err(|trouble| trouble.with(b"pts"))?;
    symlinkat("pts/ptmx", &dev, "ptmx")
        .in_part(Part::DeviceLink)
        .map_err(|trouble| trouble.with(b"ptmx"))?;
    // The program can write there already; this way it can also tell what it is.
    match &stage.terms.console {
        Some(tty) => device(dev.as_fd(), "console", tty),
        None => Ok(()),
    }
}

fn terminals(dev: BorrowedFd<'_>) -> io::Result<()> {
    let options = [
        (c"source", c"devpts"),
        (c"ptmxmode", c"0666"),
        (c"mode", c"620"),
    ];
    let tree = mount::new_filesystem(c"devpts", &options, ATTR_NO_SETUID | ATTR_NO_EXEC)?;
    let target = place::open(dev, Path::new("pts"))?;
    mount::attach(tree.as_fd(), target.as_fd())
}

/// Shows a device of the host's under a name in the folder behind `dev`.
fn device(dev: BorrowedFd<'_>, name: &str, source: &Path) -> Result<(), Trouble> {
    let shown = || -> io::Result<()> {
        let mode = Mode::from_bits_truncate(0o444);
        mknodat(dev, name, SFlag::S_IFREG, mode, 0)?;
        let tree = mount::copy_mount(mount::here(), source)?;
        mount::restrict_tree(tree.as_fd(), ATTR_NO_SETUID)?;
        let target = place::open(dev, Path::new(name))?;
        mount::attach(tree.as_fd(), target.as_fd())
    };
    shown()
        .in_part(Part::Device)
        .map_err(|trouble| trouble.with(name.as_bytes()))
}
