//! The log: lines on the standard error stream, which the app writes into its own log. Never what
//! a program is given or says: no values of variables, no tokens, no input.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::sys;
use crate::terminal::printable;

/// Whether everything is to be told.
static IN_DETAIL: AtomicBool = AtomicBool::new(false);
/// What a pipe takes at once when it takes anything.
const LONGEST: usize = 4000;

pub(super) fn in_detail(wanted: bool) {
    IN_DETAIL.store(wanted, Ordering::Relaxed);
}

pub(super) fn is_in_detail() -> bool {
    IN_DETAIL.load(Ordering::Relaxed)
}

/// What somebody should know who looks for a fault.
pub(super) fn warn(text: &str) {
    line("warning", text);
}

pub(super) fn note(text: &str) {
    line("note", text);
}

/// What only helps those who asked for it.
pub(super) fn detail(text: impl FnOnce() -> String) {
    if is_in_detail() {
        line("detail", &text());
    }
}

/// An app that does not read its log must not be able to hold everything up.
fn line(kind: &str, text: &str) {
    let mut line = format!("cowork-linux: {kind}: {}", printable(text));
    if line.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|at| line.is_char_boundary(*at));
        line.truncate(end.unwrap_or(0));
    }
    line.push('\n');
    let mut waiting = [PollFd::new(sys::fds::standard(2), PollFlags::POLLOUT)];
    let takes = poll(&mut waiting, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
    if takes {
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}
