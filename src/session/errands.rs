//! Requests made ready to be carried out: checked, and in the words of whoever does it.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;

use nix::fcntl::{FcntlArg, fcntl};

use super::record::shortened;
use super::talk::Packet;
use crate::plan::{BindMode, Guarding, Plan, Program, Seen};
use crate::sandbox::{self, Errand, LiveMount, Running};
use crate::sys;

/// The longest list of words for a program.
const LONGEST_WORDS: u64 = 4 << 20;

/// What is to be done for a wish to show a folder; or why not.
pub(super) fn live_mount(
    plan: &Plan,
    source: PathBuf,
    seen: Seen,
    is_folder: bool,
    read_only: bool,
    name: String,
) -> Result<LiveMount, String> {
    let is_name = !name.is_empty()
        && name.len() <= 255
        && !name.contains(['/', '\0'])
        && ![".", "..", "outputs"].contains(&name.as_str());
    if !is_name {
        return Err(format!("`{name}` cannot be the name of a mount"));
    }
    if !source.is_absolute() {
        return Err("the source is not an absolute path".to_owned());
    }
    let session = plan.session.as_ref().filter(|_| plan.terms.changeable);
    let below = session.and_then(|session| session.home.join("mnt").ok());
    let below = below.ok_or("only sessions with a name or in the background can change")?;
    let mode = match (&plan.lock.guarding, read_only) {
        (_, true) => BindMode::Read,
        (Guarding::On { .. }, false) => BindMode::Guarded,
        (Guarding::Off(_), false) => BindMode::Write,
    };
    Ok(LiveMount {
        source,
        seen,
        is_folder,
        mode,
        below,
        name,
        door: None,
    })
}

/// Hands a program to pid 1: the caller's words, with the session's environment below them.
pub(super) fn start(
    exec: u32,
    packet: Packet,
    terminal: bool,
    streams: [bool; 3],
    plan: &Plan,
    running: &Running,
) -> io::Result<Vec<String>> {
    let odd = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why.to_owned());
    let mut fds = packet.fds.into_iter();
    let words = fds.next().ok_or_else(|| odd("its words are missing"))?;
    // Only files in memory can be asked this, and only those are sure to be read without waiting.
    fcntl(&words, FcntlArg::F_GET_SEALS)
        .map_err(|_| odd("its words are not in a file in memory"))?;
    let mut file = File::from(words);
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(LONGEST_WORDS).read_to_end(&mut bytes)?;
    let asked = sandbox::from_bytes(&bytes, plan.program.umask);
    let asked = asked.filter(|asked| !asked.argv.is_empty());
    let asked = asked.ok_or_else(|| odd("its words are not readable"))?;
    let mut given = [None, None, None];
    for (stream, there) in given.iter_mut().zip(streams) {
        if there {
            *stream = Some(fds.next().ok_or_else(|| odd("a stream is missing"))?);
        }
    }
    let program = merged(plan, asked);
    let words = sys::fds::memory(c"words")?;
    let mut file = File::from(words);
    file.write_all(&sandbox::to_bytes(&program))?;
    running.exec(Errand {
        exec,
        terminal,
        words: file.into(),
        streams: given,
    })?;
    let lossy = |word: &std::ffi::OsString| word.to_string_lossy().into_owned();
    Ok(shortened(program.argv.iter().map(lossy)))
}

fn merged(plan: &Plan, asked: Program) -> Program {
    let mut env = plan.program.env.clone();
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
