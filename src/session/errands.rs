//! Requests made ready to be carried out: checked, and in the words of whoever does it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::fcntl::{FcntlArg, fcntl};

use super::record::shortened;
use super::talk::{MountMode, Packet};
use super::wish::MountWish;
use crate::egress::Unsaid;
use crate::plan::{BindMode, Guarding, Landlock, Plan, Program, point};
use crate::policy::egress::SecretSpec;
use crate::sandbox::{self, Errand, LiveMount, Running};
use crate::sys;

/// The longest list of words for a program.
const LONGEST_WORDS: u64 = 4 << 20;

/// What is to be done for a wish to show a folder; or why not.
pub(super) fn live_mount(plan: &Plan, wish: MountWish) -> Result<LiveMount, String> {
    let point = point(plan, &wish.place)?;
    if !wish.source.is_absolute() {
        return Err("the source is not an absolute path".to_owned());
    }
    let mode = match (&plan.lock.guarding, wish.mode) {
        (_, MountMode::Read) => BindMode::Read,
        (Guarding::On { .. }, MountMode::Keep) => BindMode::Kept,
        (Guarding::Off(why), MountMode::Keep) => {
            return Err(format!(
                "programs cannot be kept from deleting there without the guard, which is off ({why}); \
                 mount it as ro or rw"
            ));
        }
        (Guarding::On { .. }, MountMode::Write) => BindMode::Guarded,
        (Guarding::Off(_), MountMode::Write) => BindMode::Write,
    };
    let is_read = mode == BindMode::Read;
    if point.is_program && (wish.is_folder || !is_read) {
        return Err(format!(
            "only a single program can be mounted at {}, read-only: SRC:{}:ro",
            point.at, point.at
        ));
    }
    if !wish.is_folder && !is_read {
        return Err("a single file can only be mounted read-only: SRC:NAME:ro".to_owned());
    }
    let has_rules =
        matches!(&plan.lock.landlock, Landlock::Enforced { files, .. } if !files.is_empty());
    if mode == BindMode::Write && has_rules && point.ground.as_path() == Path::new("/") {
        return Err(format!(
            "programs that run already cannot be allowed to write at {}; mount it by a name, which \
             is below mnt, or read-only",
            point.at
        ));
    }
    Ok(LiveMount {
        source: wish.source,
        seen: wish.seen,
        is_folder: wish.is_folder,
        mode,
        point,
        name: wish.place,
        despite_overlap: wish.despite_overlap,
        shown: None,
        doors: Vec::new(),
        over: Vec::new(),
    })
}

/// How a program is to be started, besides its words.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given {
    pub(super) terminal: bool,
    pub(super) streams: [bool; 3],
    pub(super) confirm: bool,
    pub(super) only_env: bool,
}

fn odd(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.to_owned())
}

/// What a file says that came along.
fn words(file: Option<OwnedFd>, most: u64) -> io::Result<Vec<u8>> {
    let words = file.ok_or_else(|| odd("its words are missing"))?;
    // Only files in memory can be asked this, and only those are sure to be read without waiting.
    fcntl(&words, FcntlArg::F_GET_SEALS)
        .map_err(|_| odd("its words are not in a file in memory"))?;
    sandbox::read_words(words, most)
}

/// The value of a secret.
pub(super) fn unsaid(packet: Packet) -> Result<Unsaid, String> {
    let most = SecretSpec::LONGEST_VALUE as u64 + 1;
    let bytes = words(packet.fds.into_iter().next(), most).map_err(|error| error.to_string())?;
    let text = String::from_utf8(bytes).map_err(|_| "its value is no text")?;
    SecretSpec::check_value(&text)?;
    Ok(Unsaid(text))
}

/// Hands a program to pid 1: the caller's words, with the session's environment below them.
pub(super) fn start(
    exec: u32,
    packet: Packet,
    given: Given,
    plan: &Plan,
    running: &Running,
) -> io::Result<Vec<String>> {
    let mut fds = packet.fds.into_iter();
    let bytes = words(fds.next(), LONGEST_WORDS)?;
    let asked = sandbox::from_bytes(&bytes, plan.program.umask);
    let asked = asked.filter(|asked| !asked.argv.is_empty());
    let asked = asked.ok_or_else(|| odd("its words are not readable"))?;
    let mut streams = [None, None, None];
    for (stream, there) in streams.iter_mut().zip(given.streams) {
        if there {
            *stream = Some(fds.next().ok_or_else(|| odd("a stream is missing"))?);
        }
    }
    let program = merged(plan, asked, given.only_env);
    let words = sys::fds::memory(c"words")?;
    let mut file = File::from(words);
    file.write_all(&sandbox::to_bytes(&program))?;
    running.exec(Errand {
        exec,
        terminal: given.terminal,
        confirm: given.confirm,
        words: file.into(),
        streams,
    })?;
    let lossy = |word: &std::ffi::OsString| word.to_string_lossy().into_owned();
    Ok(shortened(program.argv.iter().map(lossy)))
}

fn merged(plan: &Plan, asked: Program, only_env: bool) -> Program {
    let mut env = match only_env {
        true => Vec::new(),
        false => plan.program.env.clone(),
    };
    env.retain(|(name, _)| asked.env.iter().all(|(other, _)| name != other));
    env.extend(asked.env);
    let cwd = match asked.cwd.as_os_str().is_empty() {
        true => plan.program.cwd.clone(),
        false => asked.cwd,
    };
    Program {
        env,
        cwd,
        umask: plan.program.umask,
        ..asked
    }
}
