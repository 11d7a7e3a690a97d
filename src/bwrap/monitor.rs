//! The caller's side while the box lives: what is written to the caller's descriptors, what is
//! said when something fails, and the exit code at the end.

use std::io::{self, Write};
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::args::Asked;
use super::words::{self, Failure};
use super::{Level, say};
use crate::plan::Plan;
use crate::sandbox::{Ended, Message, Running};
use crate::sys;

/// As timeout(1) has it.
const TIMED_OUT: u8 = 124;

/// The namespaces whose numbers callers are told, in their order.
const TOLD: [&str; 6] = ["cgroup", "ipc", "mnt", "net", "pid", "uts"];

/// Stays until the program ends; the exit code.
pub(super) fn watch(asked: &Asked, plan: &Plan, mut running: Running) -> u8 {
    if let Err(text) = begin(asked, plan, &running) {
        // The box has waited for a word until now; it ends with the launcher's end of the line.
        say(Level::Error, asked.level_prefix, &text);
        return 1;
    }
    let mut is_starting = false;
    let until = plan.timeout.map(|limit| Instant::now() + limit);
    let code = loop {
        if until.is_some_and(|until| !is_heard_by(&running, until)) {
            let _ = running.kill();
            say(
                Level::Error,
                asked.level_prefix,
                "the time limit of the profile ended it",
            );
            return TIMED_OUT;
        }
        match running.receive() {
            Ok(Some(Message::Starting)) => is_starting = true,
            Ok(Some(Message::Loose(place))) => {
                let text = format!("Unable to apply mount flags to {place}, continuing");
                say(Level::Warning, asked.level_prefix, &text);
            }
            Ok(Some(Message::Failed {
                step,
                part,
                errno,
                detail,
            })) => {
                let failure = Failure {
                    step: step as usize,
                    part,
                    errno,
                    detail: &detail,
                };
                let text = words::sentence(plan, &failure);
                say(Level::Error, asked.level_prefix, &text);
                return 1;
            }
            Ok(Some(Message::NotExecuted { errno, .. })) => {
                let text = words::not_executed(plan, errno);
                say(Level::Error, asked.level_prefix, &text);
                running.has_ended();
                return 1;
            }
            Ok(Some(Message::Ended { status })) => {
                running.has_ended();
                break exit_code(status);
            }
            Ok(Some(_)) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The first process has become the program, or is gone.
            Ok(None) | Err(_) => {
                break match running.wait() {
                    Ok(Ended::Exited(code)) => code as u8,
                    Ok(Ended::Killed(signal)) => 128u8.wrapping_add(signal as u8),
                    Err(_) => 1,
                };
            }
        }
    };
    if let (Some(fd), true) = (asked.json_status_fd, is_starting) {
        let _ = write_all(fd, format!("{{ \"exit-code\": {code} }}\n").as_bytes());
    }
    code
}

/// Waits for word from the box; whether there was any in time.
fn is_heard_by(running: &Running, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut line = [PollFd::new(running.line(), PollFlags::POLLIN)];
        match poll(&mut line, timeout) {
            Ok(0) if left.is_zero() => return false,
            Ok(0) | Err(Errno::EINTR) => {}
            _ => return true,
        }
    }
}

fn exit_code(status: i32) -> u8 {
    match status & 0x7f {
        0 => (status >> 8 & 0xff) as u8,
        signal => 128 + signal as u8,
    }
}

/// What has to be done before the box may go on; the sentence for what could not be.
fn begin(asked: &Asked, plan: &Plan, running: &Running) -> Result<(), String> {
    let failed = |what: &'static str| {
        move |error: io::Error| {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            format!("{what}: {}", super::errors::text_of(errno))
        }
    };
    let is_told = asked.info_fd.is_some() || asked.json_status_fd.is_some();
    let namespaces = match is_told {
        true => namespaces(plan, running),
        false => Vec::new(),
    };
    if let Some(fd) = asked.userns2 {
        sys::process::join_namespace(fd, libc::CLONE_NEWUSER)
            .map_err(failed("Setting userns2 failed"))?;
    }
    // Nothing is left to do that takes a privilege.
    match sys::capabilities::set(0) {
        Err(error) if error.raw_os_error() != Some(libc::EPERM) => {
            return Err(failed("capset failed")(error));
        }
        _ => {}
    }
    sys::process::hide_from_others().map_err(failed("can't set dumpable"))?;
    sys::process::forget_arguments();
    if asked.die_with_parent {
        // A change of privileges forgets the wish.
        super::surroundings::die_with_caller()?;
    }
    let pid = running.pid();
    let write =
        |fd: RawFd, text: &str| write_all(fd, text.as_bytes()).map_err(failed("Write to info_fd"));
    if let Some(fd) = asked.info_fd {
        let mut text = format!("{{\n    \"child-pid\": {pid}");
        for (name, number) in &namespaces {
            text.push_str(&format!(",\n    \"{name}-namespace\": {number}"));
        }
        write(fd, &(text + "\n}\n"))?;
        sys::fds::close_given(fd);
    }
    if let Some(fd) = asked.json_status_fd {
        let mut text = format!("{{ \"child-pid\": {pid}");
        for (name, number) in &namespaces {
            text.push_str(&format!(", \"{name}-namespace\": {number}"));
        }
        write(fd, &(text + " }\n"))?;
    }
    if let Some(fd) = asked.userns_block_fd {
        let mut byte = [0u8; 1];
        let _ = sys::fds::given(fd).map(|mut fd| io::Read::read(&mut *fd, &mut byte));
    }
    if plan.terms.waits {
        // A box that is gone already is heard of in another way.
        let _ = running.release();
    }
    let mut keep = running.descriptors().to_vec();
    keep.extend(asked.json_status_fd);
    sys::fds::close_all_but(keep).map_err(failed("close_range"))
}

/// Names and numbers of the box's own namespaces.
fn namespaces(plan: &Plan, running: &Running) -> Vec<(&'static str, u64)> {
    let own = plan.namespaces;
    let is_new = [own.cgroup, own.ipc, own.mount, own.net, own.pid, own.uts];
    let number = |name: &str| {
        let path = format!("/proc/{}/ns/{name}", running.pid());
        std::fs::metadata(path)
            .map(|namespace| namespace.ino())
            .ok()
    };
    TOLD.into_iter()
        .zip(is_new)
        .filter(|(_, is_new)| *is_new)
        .filter_map(|(name, _)| Some((name, number(name)?)))
        .collect()
}

fn write_all(fd: RawFd, bytes: &[u8]) -> io::Result<()> {
    sys::fds::given(fd)?.write_all(bytes)
}
