//! What is known only before Rust's own start-up has run.

use std::sync::atomic::{AtomicBool, Ordering};

static PIPE_SIGNAL_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// Rust's start-up ignores SIGPIPE, and a program started in place of another is to find the
/// caller's choice. The C library runs this before it calls `main`.
// SAFETY: the section holds pointers to functions of this type, called once with one thread.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = remember;

extern "C" fn remember() {
    let ignored = super::kernel::is_ignored(libc::SIGPIPE);
    PIPE_SIGNAL_WAS_IGNORED.store(ignored, Ordering::Relaxed);
}

/// Whether the caller of this program ignored SIGPIPE.
pub(crate) fn pipe_signal_was_ignored() -> bool {
    PIPE_SIGNAL_WAS_IGNORED.load(Ordering::Relaxed)
}
