//! The helper's socket: who may have it, who may come in, and when it is over.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net as unix;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use nix::fcntl::{FcntlArg, Flock, FlockArg, OFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{Mode, SFlag, fstat, umask};
use tokio::net::UnixListener;
use tokio::net::unix::pipe::Receiver;
use tokio::task::{spawn_blocking, spawn_local};
use tokio::time::{sleep, timeout};

use super::boxes::all;
use super::connection;
use super::helper::{Ground, Helper};
use super::{Options, telling};
use crate::probe;
use crate::report::Help;
use crate::sys;

/// Before the next try when no more descriptors are to be had.
const BREATH: Duration = Duration::from_millis(50);
/// How long everything may take to end when it is over.
const LAST: Duration = Duration::from_millis(2500);
/// The first descriptor of those that systemd hands over.
const FIRST_GIVEN: i32 = 3;
const MOST_DESCRIPTORS: u64 = 64 << 10;
/// As many bytes as the kernel takes for the name of a socket.
const LONGEST_NAME: usize = 107;

#[derive(Debug, thiserror::Error)]
pub(super) enum ServeError {
    #[error("cannot serve Claude Desktop, because there is no place for the socket")]
    NoPlace,
    #[error("cannot serve Claude Desktop, because neither XDG_STATE_HOME nor HOME is set")]
    NoState,
    #[error("cannot listen at {path}, because {why}")]
    InTheWay { path: String, why: &'static str },
    #[error("cannot listen at {path}")]
    Socket { path: String, source: io::Error },
    #[error("cannot start")]
    Start(#[source] io::Error),
}

impl Help for ServeError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::NoPlace => "name one: cowork-linux helper -socket PATH".into(),
            Self::NoState => "set HOME to your home folder".into(),
            Self::InTheWay { .. } => "move it away, or name another place with -socket PATH".into(),
            Self::Socket { .. } => "name a place in a folder of your own: -socket PATH".into(),
            Self::Start(_) => "raise the limit on open files: ulimit -n 1024".into(),
        })
    }
}

/// What tells that it is over.
#[derive(Debug)]
struct End {
    signals: Receiver,
    /// Our standard input, where somebody holds the other end of it.
    app: Option<Receiver>,
}

impl End {
    fn watch() -> io::Result<Self> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&set, flags)?;
        let signals = sys::fds::duplicate(signals.as_fd().as_raw_fd())?;
        // Neither is a pipe for sure, but both can be waited for and read like one.
        let signals = Receiver::from_owned_fd_unchecked(signals)?;
        let input = sys::fds::standard(0);
        let kind = SFlag::from_bits_truncate(fstat(input)?.st_mode) & SFlag::S_IFMT;
        let is_held = kind == SFlag::S_IFIFO || kind == SFlag::S_IFSOCK;
        let app = match is_held {
            true => {
                let input = sys::fds::duplicate(input.as_raw_fd())?;
                fcntl(&input, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
                Some(Receiver::from_owned_fd_unchecked(input)?)
            }
            false => None,
        };
        Ok(Self { signals, app })
    }

    /// Why it is over, once it is.
    async fn comes(&self) -> &'static str {
        let app = async {
            match &self.app {
                Some(input) => gone(input).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.signals.readable() => "asked to end",
            () = app => "the app is gone",
        }
    }
}

/// Waits until the other end is closed; what is said there is nobody's business.
async fn gone(input: &Receiver) {
    while input.readable().await.is_ok() {
        match input.try_read(&mut [0; 4096]) {
            Ok(0) => return,
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
            Ok(_) | Err(_) => {}
        }
    }
}

/// Serves until it is over.
pub(super) async fn serve(options: &Options) -> Result<(), ServeError> {
    more_descriptors();
    let end = End::watch().map_err(ServeError::Start)?;
    let env = |name: &str| std::env::var_os(name);
    let state = probe::state_directory(&env).ok_or(ServeError::NoState)?;
    let runtime = probe::runtime_directory(&env).ok_or(ServeError::NoState)?;
    let home = env("HOME").map(PathBuf::from).unwrap_or_else(|| "/".into());
    let given = given_by_systemd().map_err(ServeError::Start)?;
    let path = match (&options.socket, &given) {
        (Some(path), _) => path.clone(),
        (None, Some(listener)) => named(listener),
        (None, None) => return Err(ServeError::NoPlace),
    };
    let place = match given {
        Some(listener) => Place {
            listener: UnixListener::from_std(listener).map_err(ServeError::Start)?,
            own: None,
        },
        None => {
            check_folder(&path)?;
            let lock = tokio::select! {
                lock = locked(&path) => lock?,
                why = end.comes() => {
                    telling::note(why);
                    return Ok(());
                }
            };
            Place::take(&path, lock)?
        }
    };
    let ground = Ground {
        state,
        runtime,
        socket: path,
        home,
    };
    let is_held = end.app.is_some();
    let helper = Rc::new(Helper::new(options.clone(), ground, is_held));
    let why = tokio::select! {
        why = end.comes() => why,
        never = accept(&place.listener, &helper) => never,
    };
    telling::note(why);
    drop(place);
    let profiles = helper.profiles();
    let stops = profiles.iter().map(|profile| profile.end());
    let _ = timeout(LAST, all(stops.collect())).await;
    Ok(())
}

/// Every process of the app's takes some, and every connection one. What is started from here has
/// limits of its own.
fn more_descriptors() {
    if let Ok((now, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let wanted = most.min(MOST_DESCRIPTORS);
        if now < wanted {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, wanted, most);
        }
    }
}

async fn accept(listener: &UnixListener, helper: &Rc<Helper>) -> ! {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(BREATH).await;
            continue;
        };
        // Nobody else is served, root included.
        match stream.peer_cred().map(|peer| peer.uid()) {
            Ok(user) if user == nix::unistd::getuid().as_raw() => {
                spawn_local(connection::serve(stream, Rc::clone(helper)));
            }
            Ok(user) => telling::warn(&format!("a connection of user {user} was closed unheard")),
            Err(_) => telling::warn("a connection of nobody knows whom was closed unheard"),
        }
    }
}

/// The socket that was opened for us before we were started.
fn given_by_systemd() -> io::Result<Option<unix::UnixListener>> {
    let number = |name: &str| -> Option<u32> { std::env::var(name).ok()?.parse().ok() };
    if number("LISTEN_PID") != Some(std::process::id()) || number("LISTEN_FDS") != Some(1) {
        return Ok(None);
    }
    sys::fds::close_on_exec(&[FIRST_GIVEN]);
    let listener = unix::UnixListener::from(OwnedFd::from(sys::fds::take(FIRST_GIVEN)?));
    listener.set_nonblocking(true)?;
    Ok(Some(listener))
}

fn named(listener: &unix::UnixListener) -> PathBuf {
    let address = listener.local_addr().ok();
    let path = address.and_then(|it| it.as_pathname().map(Path::to_owned));
    path.unwrap_or_default()
}

fn socket_error(path: &Path, source: io::Error) -> ServeError {
    let path = path.display().to_string();
    ServeError::Socket { path, source }
}

/// Only where nobody else can put another socket in its place.
fn check_folder(path: &Path) -> Result<(), ServeError> {
    let folder = path.parent().filter(|folder| folder != &Path::new(""));
    let folder = folder.unwrap_or(Path::new("."));
    let found = fs::symlink_metadata(folder).map_err(|error| socket_error(folder, error))?;
    let is_own = [0, nix::unistd::getuid().as_raw()].contains(&found.uid());
    // In folders like /tmp everybody may write, but take away only what is their own.
    let is_open = found.mode() & 0o022 != 0 && found.mode() & 0o1000 == 0;
    let why = match found.is_dir() {
        false if found.is_symlink() => "its folder is a symbolic link",
        false => "its folder is none",
        true if !is_own => "its folder belongs to somebody else",
        true if is_open => "others may write to its folder",
        true => return Ok(()),
    };
    let path = path.display().to_string();
    Err(ServeError::InTheWay { path, why })
}

/// Waits until nobody else serves there. Whoever gave up instead would be started again and again.
async fn locked(path: &Path) -> Result<Flock<File>, ServeError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(&beside);
    let file = opened.map_err(|error| socket_error(Path::new(&beside), error))?;
    let waited_for = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => return Ok(lock),
        Err((file, _)) => {
            telling::note("another helper serves here; this one takes over when it ends");
            spawn_blocking(move || Flock::lock(file, FlockArg::LockExclusive)).await
        }
    };
    match waited_for {
        Ok(Ok(lock)) => Ok(lock),
        Ok(Err((_, error))) => Err(socket_error(path, error.into())),
        Err(error) => Err(socket_error(path, io::Error::other(error))),
    }
}

/// A socket that is served.
#[derive(Debug)]
struct Place {
    listener: UnixListener,
    /// What is removed at the end, and what keeps others from it until then.
    own: Option<(PathBuf, Flock<File>)>,
}

impl Place {
    fn take(path: &Path, lock: Flock<File>) -> Result<Self, ServeError> {
        clear(path)?;
        let failed = |source: io::Error| socket_error(path, source);
        // Nobody else is to reach it, not even for a moment.
        let before = umask(Mode::from_bits_truncate(0o177));
        let bound = bind(path);
        umask(before);
        let listener = bound.map_err(failed)?;
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(path, mode).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = UnixListener::from_std(listener).map_err(failed)?;
        let own = Some((path.to_owned(), lock));
        Ok(Self { listener, own })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((path, _lock)) = &self.own {
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes a socket that nobody listens at any more; nothing else is ever removed.
fn clear(path: &Path) -> Result<(), ServeError> {
    let in_the_way = |why| {
        let path = path.display().to_string();
        Err(ServeError::InTheWay { path, why })
    };
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(socket_error(path, error)),
    };
    match found.file_type() {
        kind if kind.is_symlink() => return in_the_way("there is a symbolic link"),
        kind if !kind.is_socket() => return in_the_way("there is something that is no socket"),
        _ => {}
    }
    if unix::UnixStream::connect(path).is_ok() {
        return in_the_way("another program serves it");
    }
    fs::remove_file(path).map_err(|error| socket_error(path, error))
}

/// By a short name where the folder's is too long for the kernel.
fn bind(path: &Path) -> io::Result<unix::UnixListener> {
    if path.as_os_str().len() <= LONGEST_NAME {
        return unix::UnixListener::bind(path);
    }
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let folder = sys::at::open_path(path.parent().ok_or_else(invalid)?)?;
    let name = path.file_name().ok_or_else(invalid)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    unix::UnixListener::bind(short.join(name))
}
