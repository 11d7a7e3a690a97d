//! What is known only before Rust's own start-up has run.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

static PARENT: AtomicI32 = AtomicI32::new(0);
static PIPE_SIGNAL_WAS_IGNORED: AtomicBool = AtomicBool::new(false);
static STREAM_WAS_CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Rust's start-up ignores SIGPIPE and opens closed standard streams, and a program started in
/// place of another is to find the caller's choice. The C library runs this before it calls
/// `main`.
// SAFETY: the section holds pointers to functions of this type, called once with one thread.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = remember;

extern "C" fn remember() {
    PARENT.store(nix::unistd::getppid().as_raw(), Ordering::Relaxed);
    for (number, was_closed) in STREAM_WAS_CLOSED.iter().enumerate() {
        let closed = !super::fds::is_open(number as libc::c_int);
        was_closed.store(closed, Ordering::Relaxed);
    }
    let ignored = super::kernel::is_ignored(libc::SIGPIPE);
    PIPE_SIGNAL_WAS_IGNORED.store(ignored, Ordering::Relaxed);
}

/// Whether the caller of this program had left a standard stream closed.
pub(crate) fn stream_was_closed(number: libc::c_int) -> bool {
    let stream = usize::try_from(number)
        .ok()
        .and_then(|number| STREAM_WAS_CLOSED.get(number));
    stream.is_some_and(|stream| stream.load(Ordering::Relaxed))
}

/// Whether the caller of this program ignored SIGPIPE.
pub(crate) fn pipe_signal_was_ignored() -> bool {
    PIPE_SIGNAL_WAS_IGNORED.load(Ordering::Relaxed)
}

/// Who started this program, as far as it was still there then.
pub(crate) fn first_parent() -> nix::unistd::Pid {
    nix::unistd::Pid::from_raw(PARENT.load(Ordering::Relaxed))
}
