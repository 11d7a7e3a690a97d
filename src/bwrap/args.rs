//! What a command line in bubblewrap's words asks for. Reads words and the descriptors they name;
//! asks the kernel nothing and prints nothing.
//!
//! Options, messages and the order of the checks are those of bubblewrap 0.11.1, because callers
//! match on them.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;

use super::options::Reader;
use super::usage;
use crate::plan::AskedStep;

/// What is known of the caller before a word is read.
#[derive(Debug, Clone, Default)]
pub struct Start {
    pub uid: u32,
    pub gid: u32,
    /// The caller's effective capabilities: what root starts from. Others start from none.
    pub effective: u64,
    pub env: Vec<(OsString, OsString)>,
    /// The highest capability the kernel knows.
    pub last_capability: u8,
    /// Whether SELinux is on.
    pub labels: bool,
}

/// How what a descriptor holds is had.
pub trait Descriptors {
    /// Reads to the end and closes it.
    fn read(&mut self, fd: RawFd) -> io::Result<Vec<u8>>;
}

/// Namespaces as they were named; what follows from one option for another is not in here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unshare {
    pub user: bool,
    pub user_try: bool,
    pub ipc: bool,
    pub pid: bool,
    pub net: bool,
    pub uts: bool,
    pub cgroup: bool,
    pub cgroup_try: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// In the caller's order: each works on what those before it left.
    pub steps: Vec<AskedStep>,
    pub unshare: Unshare,
    pub userns: Option<RawFd>,
    pub userns2: Option<RawFd>,
    pub pidns: Option<RawFd>,
    pub disable_userns: bool,
    pub assert_userns_disabled: bool,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub chdir: Option<OsString>,
    /// The caller's, with the changes that were asked for.
    pub env: Vec<(OsString, OsString)>,
    pub argv0: Option<OsString>,
    pub command: Vec<OsString>,
    pub new_session: bool,
    pub die_with_parent: bool,
    pub as_pid_1: bool,
    pub lock_files: Vec<PathBuf>,
    pub sync_fd: Option<RawFd>,
    pub block_fd: Option<RawFd>,
    pub userns_block_fd: Option<RawFd>,
    pub info_fd: Option<RawFd>,
    pub json_status_fd: Option<RawFd>,
    /// One filter, not read yet.
    pub seccomp_fd: Option<RawFd>,
    /// Filters that are read already, in the order in which they are to be loaded.
    pub seccomp: Vec<Vec<u8>>,
    pub exec_label: Option<OsString>,
    pub file_label: Option<OsString>,
    /// Nothing above the highest one the kernel knows.
    pub capabilities: u64,
    pub capabilities_changed: bool,
    pub level_prefix: bool,
    pub not_a_security_boundary: bool,
    /// A host name is among the steps.
    pub hostname: bool,
    /// A /dev is among the steps.
    pub needs_terminals: bool,
    pub extras: Extras,
}

/// What bubblewrap does not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extras {
    pub profile: Option<OsString>,
    pub seccomp: Option<OsString>,
    pub landlock: bool,
    /// Each kind once.
    pub limits: Vec<(Limited, u64)>,
    pub dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited {
    Memory,
    Processes,
    OpenFiles,
    FileSize,
    CpuSeconds,
}

/// Why there is nothing to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The help: to stderr with status 1 when nobody asked for it, else to stdout with status 0.
    Usage(bool),
    Version,
    Die {
        /// What stands after `bwrap: `.
        text: String,
        /// Messages were asked to start with their level before this happened.
        prefix: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    pub text: String,
    pub prefix: bool,
}

/// Reads the words after the program's own name. Warnings are to be printed even if this ends in
/// a `Stop`.
pub fn parse(
    args: &[OsString],
    start: &Start,
    descriptors: &mut dyn Descriptors,
    warnings: &mut Vec<Warning>,
) -> Result<Asked, Stop> {
    if args.is_empty() {
        return Err(Stop::Usage(true));
    }
    let words: Vec<&OsStr> = args.iter().map(OsString::as_os_str).collect();
    let asked = Reader::new(start, descriptors, warnings).read_all(&words)?;
    check(&asked, start)?;
    Ok(asked)
}

/// Whether this is one of bubblewrap's options or ours.
pub fn is_option(word: &OsStr) -> bool {
    word.to_str()
        .is_some_and(|word| usage::options().any(|option| option == word))
}

/// What does not go together, in bubblewrap's order: a caller that makes two mistakes is told of
/// the same one.
fn check(asked: &Asked, start: &Start) -> Result<(), Stop> {
    let refuse = |wrong: bool, text: &str| match wrong {
        false => Ok(()),
        true => Err(Stop::Die {
            text: text.to_owned(),
            prefix: asked.level_prefix,
        }),
    };
    let named = asked.unshare;
    let waits_for_map = asked.userns_block_fd.is_some();
    let joins_user = asked.userns.is_some();
    refuse(
        waits_for_map && !named.user,
        "--userns-block-fd requires --unshare-user",
    )?;
    refuse(
        waits_for_map && asked.info_fd.is_none(),
        "--userns-block-fd requires --info-fd",
    )?;
    refuse(
        joins_user && named.user,
        "--userns not compatible --unshare-user",
    )?;
    refuse(
        joins_user && named.user_try,
        "--userns not compatible --unshare-user-try",
    )?;
    // A new user namespace that only follows from the caller not being root does not count yet.
    refuse(
        asked.disable_userns && !named.user,
        "--disable-userns requires --unshare-user",
    )?;
    refuse(
        asked.disable_userns && waits_for_map,
        "--disable-userns is not compatible with  --userns-block-fd",
    )?;
    if asked.command.is_empty() {
        return Err(Stop::Usage(true));
    }
    // From here on it does, and one that is to be tried counts as made: whether it can be is not
    // known before it is.
    let own_ids = named.user || named.user_try || start.uid != 0 || joins_user;
    refuse(
        !own_ids && asked.uid.is_some_and(|uid| uid != start.uid),
        "Specifying --uid requires --unshare-user or --userns",
    )?;
    refuse(
        !own_ids && asked.gid.is_some_and(|gid| gid != start.gid),
        "Specifying --gid requires --unshare-user or --userns",
    )?;
    refuse(
        asked.hostname && !named.uts,
        "Specifying --hostname requires --unshare-uts",
    )?;
    refuse(
        asked.as_pid_1 && !named.pid,
        "Specifying --as-pid-1 requires --unshare-pid",
    )?;
    refuse(
        asked.as_pid_1 && !asked.lock_files.is_empty(),
        "Specifying --as-pid-1 and --lock-file is not permitted",
    )
}
