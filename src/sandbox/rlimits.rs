//! Limits that each process carries itself.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::mounts::Site;
use crate::plan::{FirstProcess, Limit, Plan};

/// What a first process of ours may have open at least: it opens files for all programs of the box,
/// and a limit that is meant for each of them is not one for all of them together.
const OWN_FILES: u64 = 1 << 16;

/// Limits this process, and what it starts.
pub(super) fn set(site: &Site<'_>, what: Limit, value: u64, most: u64) -> io::Result<()> {
    let resource = match what {
        Limit::CoreSize => Resource::RLIMIT_CORE,
        Limit::OpenFiles => Resource::RLIMIT_NOFILE,
        Limit::Processes => Resource::RLIMIT_NPROC,
        Limit::Data => Resource::RLIMIT_DATA,
        Limit::FileSize => Resource::RLIMIT_FSIZE,
        Limit::CpuSeconds => Resource::RLIMIT_CPU,
    };
    let least = match (what, site.first) {
        (Limit::OpenFiles, FirstProcess::Keeper { .. }) => OWN_FILES,
        // That of the group is to be met first: who meets this one is told, and nobody else.
        (Limit::Processes, _) if site.has_group => value.saturating_add(1),
        _ => 0,
    };
    // The caller's own hard limit stays the ceiling: raising it would need privileges.
    let (_, hard) = getrlimit(resource)?;
    let within = |value: u64| value.max(least).min(hard);
    Ok(setrlimit(resource, within(value), within(most))?)
}

/// How many open files a program is to be given that are not as many as the first process has.
/// Nothing is asked of the kernel without need: by then a filter may forbid it.
pub(super) fn files_of_program(plan: &Plan) -> Option<u64> {
    plan.open_files().filter(|files| *files < OWN_FILES)
}

/// Limits the open files of a program that is about to run.
pub(super) fn limit_files(files: u64) -> io::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let files = files.min(hard);
    Ok(setrlimit(Resource::RLIMIT_NOFILE, files, files)?)
}
