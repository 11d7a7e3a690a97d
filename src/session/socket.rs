//! Where a session listens: a socket in the user's runtime directory, called by its id.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use nix::sys::socket::{
    self as sockets, AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket,
    sockopt,
};
use nix::sys::stat::{Mode, umask};
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

/// An address that holds however long the names on the way to it are.
#[derive(Debug)]
pub(super) struct Address {
    pub(super) address: UnixAddr,
    _held: OwnedFd,
}

/// Where a session of this name is reached: by a descriptor of the socket itself.
pub(super) fn address(runtime: &Path, id: &SessionId) -> io::Result<Address> {
    let held = sys::at::open_path(&runtime.join(format!("{id}.sock")))?;
    let path = format!("/proc/self/fd/{}", held.as_raw_fd());
    Ok(Address {
        address: UnixAddr::new(path.as_str())?,
        _held: held,
    })
}

/// A name in the directory of sockets, if an address has room for it.
fn named(runtime: &Path, name: &str) -> io::Result<Address> {
    let held = sys::at::open_path(runtime)?;
    let path = format!("/proc/self/fd/{}/{name}", held.as_raw_fd());
    Ok(Address {
        address: UnixAddr::new(path.as_str())?,
        _held: held,
    })
}

/// Listens for those who call a session by its name.
pub(super) fn listen(runtime: &Path, id: &SessionId) -> io::Result<OwnedFd> {
    let listener = new()?;
    let path = runtime.join(format!("{id}.sock"));
    // Left by one that was killed. The session's lock is ours, so nobody should use it; but a
    // lock that was moved away tells nothing.
    let free = |error: io::Error| match error.kind() {
        io::ErrorKind::AddrInUse | io::ErrorKind::AlreadyExists if !has_listener(runtime, id) => {
            fs::remove_file(&path)
        }
        io::ErrorKind::AlreadyExists => Err(io::ErrorKind::AddrInUse.into()),
        _ => Err(error),
    };
    if let Ok(at) = named(runtime, &format!("{id}.sock")) {
        let bound = bind_quietly(&listener, &at);
        bound.or_else(|error| free(error).and_then(|()| bind_quietly(&listener, &at)))?;
    } else {
        // A name that no address has room for is given to the socket afterwards.
        let short = format!(".{}", std::process::id());
        let at = named(runtime, &short)?;
        let short = runtime.join(short);
        let _ = fs::remove_file(&short);
        bind_quietly(&listener, &at)?;
        // Unlike a rename this takes no other's place.
        let link = || fs::hard_link(&short, &path);
        let done = link().or_else(|error| free(error).and_then(|()| link()));
        let _ = fs::remove_file(&short);
        done?;
    }
    sockets::listen(&listener, sockets::Backlog::new(64)?)?;
    Ok(listener)
}

/// Nobody else is to reach it, not even for a moment.
fn bind_quietly(listener: &OwnedFd, at: &Address) -> io::Result<()> {
    let before = umask(Mode::from_bits_truncate(0o177));
    let bound = sockets::bind(listener.as_raw_fd(), &at.address);
    umask(before);
    Ok(bound?)
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
    of_this_user(Line::new(ours))
}

/// Whoever listens there must be this user, or what is said would go to a stranger.
pub(super) fn of_this_user<S: AsFd>(line: Line<S>) -> io::Result<Line<S>> {
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
