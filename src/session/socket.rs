//! Where a session listens: a socket in the user's runtime directory, called by its id.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

use super::talk::Line;
use crate::policy::SessionId;
use crate::sys;

pub(super) fn new() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        flags,
        None,
    )?)
}

/// An address that holds however long the directory's name is.
#[derive(Debug)]
pub(super) struct Address {
    pub(super) address: UnixAddr,
    _folder: OwnedFd,
}

pub(super) fn address(runtime: &Path, id: &SessionId) -> io::Result<Address> {
    let folder = sys::at::open_path(runtime)?;
    let path = format!("/proc/self/fd/{}/{id}.sock", folder.as_raw_fd());
    Ok(Address {
        address: UnixAddr::new(path.as_str())?,
        _folder: folder,
    })
}

/// The directory of sockets, made when it is missing; it must be this user's alone.
pub(super) fn directory(runtime: &Path) -> io::Result<()> {
    match fs::symlink_metadata(runtime) {
        Ok(found) if found.is_dir() && found.uid() == nix::unistd::getuid().as_raw() => {
            match found.mode() & 0o077 {
                0 => Ok(()),
                _ => fs::set_permissions(runtime, mode(0o700)),
            }
        }
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is not a folder of your own",
        )),
        Err(_) => fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(runtime),
    }
}

fn mode(bits: u32) -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(bits)
}

/// Connects to a session that runs.
pub(super) fn call(runtime: &Path, id: &SessionId) -> io::Result<Line> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let ours = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    let at = address(runtime, id)?;
    // Whoever listens there may be stopped, with many waiting at the door already.
    setsockopt(&ours, sockopt::SendTimeout, &TimeVal::seconds(1))?;
    connect(ours.as_raw_fd(), &at.address)?;
    setsockopt(&ours, sockopt::SendTimeout, &TimeVal::seconds(0))?;
    let line = Line::new(ours);
    // Whoever listens there must be this user, or what is said would go to a stranger.
    match line.peer()?.uid() == nix::unistd::getuid().as_raw() {
        true => Ok(line),
        false => Err(io::Error::from_raw_os_error(libc::EPERM)),
    }
}

/// Whether anybody listens there, however busy.
pub(super) fn has_listener(runtime: &Path, id: &SessionId) -> bool {
    let called = new().and_then(|ours| {
        let at = address(runtime, id)?;
        Ok(connect(ours.as_raw_fd(), &at.address)?)
    });
    match called {
        Ok(()) => true,
        Err(error) => error.raw_os_error() == Some(libc::EAGAIN),
    }
}
