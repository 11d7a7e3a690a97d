//! What went wrong, in bubblewrap's words: callers match them.

use std::io;

use super::asked_words::of_asked;
use super::errors::text_of;
use crate::plan::{BuildStep, InsideStep, Part, Plan, ReadyStep};
use crate::sandbox::{LaunchError, late_name};

/// A step that did not work, as the box told it.
#[derive(Debug)]
pub(super) struct Failure<'a> {
    pub(super) step: usize,
    pub(super) part: Part,
    pub(super) errno: i32,
    pub(super) detail: &'a [u8],
}

impl Failure<'_> {
    pub(super) fn name(&self) -> String {
        String::from_utf8_lossy(self.detail).into_owned()
    }

    fn number(&self) -> u8 {
        self.detail.first().copied().unwrap_or(0)
    }
}

/// A message and whether the kernel's reason belongs behind it.
pub(super) struct Said {
    text: String,
    with: Reason,
}

enum Reason {
    None,
    Plain,
    /// The kernel means a limit where it says that a disk is full.
    Mount,
}

pub(super) fn plain(text: impl Into<String>) -> Said {
    Said {
        text: text.into(),
        with: Reason::Plain,
    }
}

pub(super) fn mounting(text: impl Into<String>) -> Said {
    Said {
        text: text.into(),
        with: Reason::Mount,
    }
}

pub(super) fn alone(text: impl Into<String>) -> Said {
    Said {
        text: text.into(),
        with: Reason::None,
    }
}

/// The sentence behind `bwrap: ` for a failed step.
pub(super) fn sentence(plan: &Plan, failure: &Failure<'_>) -> String {
    let said = of_step(plan, failure);
    match said.with {
        Reason::None => said.text,
        Reason::Plain => format!("{}: {}", said.text, text_of(failure.errno)),
        Reason::Mount if failure.errno == libc::ENOSPC => format!(
            "{}: Limit exceeded (ENOSPC). (Hint: Check that /proc/sys/fs/mount-max is sufficient, \
             typically 100000)",
            said.text
        ),
        Reason::Mount => format!("{}: {}", said.text, text_of(failure.errno)),
    }
}

fn of_step(plan: &Plan, failure: &Failure<'_>) -> Said {
    let step = failure.step;
    if let Some(step) = plan.build.get(step) {
        return of_build(step, failure);
    }
    let step = step - plan.build.len();
    if let Some(step) = plan.inside.get(step) {
        return of_inside(step, failure);
    }
    let step = step - plan.inside.len();
    if let Some(name) = late_name(step) {
        return of_wall(name, failure);
    }
    match plan.ready.get(step - crate::sandbox::LATE_STEPS) {
        Some(step) => of_ready(step, plan, failure),
        None => of_start(failure),
    }
}

fn of_build(step: &BuildStep, failure: &Failure<'_>) -> Said {
    match step {
        BuildStep::LoopbackFirst => plain("loopback: Failed RTM_NEWADDR"),
        BuildStep::MapCaller { .. } => of_maps(failure),
        BuildStep::SwitchIds { uid, gid } => match failure.part {
            Part::SwitchGroup => plain(format!("unable to switch to gid {}", gid.unwrap_or(0))),
            _ => plain(format!("unable to switch to uid {}", uid.unwrap_or(0))),
        },
        BuildStep::Stage(_) => match failure.part {
            Part::SourceKind => plain("Can't open /proc"),
            Part::Source => plain(format!("Can't find source path {}", failure.name())),
            Part::Mount => mounting("Failed to mount tmpfs"),
            Part::Folder => plain("Creating newroot failed"),
            _ => mounting("Failed to make / slave"),
        },
        BuildStep::Asked(step) => of_asked(step, failure),
        BuildStep::EnterRoot => plain("pivot_root(/newroot)"),
        other => plain(format!("cannot {other}")),
    }
}

fn of_maps(failure: &Failure<'_>) -> Said {
    plain(match failure.part {
        Part::Groups => "error writing to setgroups",
        Part::GroupMap => "setting up gid map",
        _ => "setting up uid map",
    })
}

fn of_inside(step: &InsideStep, failure: &Failure<'_>) -> Said {
    match step {
        InsideStep::JoinUserNamespace(_) => plain("Setting userns2 failed"),
        InsideStep::OwnUserNamespace { .. } => match failure.part {
            Part::Sysctl => plain("cannot open /proc/sys/user/max_user_namespaces"),
            Part::SysctlWrite => plain("sysctl user.max_user_namespaces = 1"),
            Part::Unshare => plain("unshare user ns"),
            _ => of_maps(failure),
        },
        InsideStep::ProveNoUserNamespaces => {
            alone("creation of new user namespaces was not disabled as requested")
        }
        other => plain(format!("cannot {other}")),
    }
}

fn of_wall(name: &str, failure: &Failure<'_>) -> Said {
    match failure.part {
        Part::Bounds => plain(format!(
            "Dropping capability {} from bounds",
            failure.number()
        )),
        Part::Ambient => plain(format!("Adding ambient capability {}", failure.number())),
        _ if name == "load the system call filter" => of_filter(failure.errno),
        _ if name == "drop every capability" => plain("capset failed"),
        _ => plain(format!("cannot {name}")),
    }
}

fn of_filter(errno: i32) -> Said {
    match errno {
        libc::EINVAL => alone(
            "Unable to set up system call filtering as requested: prctl(PR_SET_SECCOMP) reported \
             EINVAL. (Hint: this requires a kernel configured with CONFIG_SECCOMP and \
             CONFIG_SECCOMP_FILTER.)",
        ),
        _ => plain("prctl(PR_SET_SECCOMP)"),
    }
}

fn of_ready(step: &ReadyStep, plan: &Plan, failure: &Failure<'_>) -> Said {
    match step {
        ReadyStep::ReadFilter(_) if failure.part == Part::Write => {
            alone("Invalid seccomp data, must be multiple of 8")
        }
        ReadyStep::ReadFilter(_) => plain("Can't read seccomp data"),
        ReadyStep::Directory { asked, .. } => {
            let asked = asked.clone().unwrap_or_default();
            plain(format!("Can't chdir to {}", asked.display()))
        }
        ReadyStep::NewSession => plain("setsid"),
        ReadyStep::Label(_) => plain(format!("label_exec {}", command(plan))),
        ReadyStep::WaitFor(_) => plain("cannot wait"),
    }
}

fn of_start(failure: &Failure<'_>) -> Said {
    match failure.part {
        Part::Source => plain(format!("Unable to open lock file {}", failure.name())),
        Part::Mode => plain(format!("Unable to lock file {}", failure.name())),
        Part::Unshare => plain("Can't fork for pid 1"),
        _ => plain("prctl"),
    }
}

fn command(plan: &Plan) -> String {
    let first = plan.program.argv.first();
    first
        .map(|word| word.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// The sentence for a program that could not be started.
pub(super) fn not_executed(plan: &Plan, errno: i32) -> String {
    format!("execvp {}: {}", command(plan), text_of(errno))
}

/// The sentence for a box that did not come to be.
pub(super) fn not_launched(error: &LaunchError, new_user_namespace: bool) -> String {
    let errno = |error: &io::Error| error.raw_os_error().unwrap_or(0);
    match error {
        LaunchError::Clone(cause) => match (errno(cause), new_user_namespace) {
            (libc::EINVAL, true) => "Creating new namespace failed, likely because the kernel \
                does not support user namespaces.  bwrap must be installed setuid on such systems."
                .to_owned(),
            (libc::EPERM, true) => "No permissions to create a new namespace, likely because the \
                kernel does not allow non-privileged user namespaces. On e.g. debian this can be \
                enabled with 'sysctl kernel.unprivileged_userns_clone=1'."
                .to_owned(),
            (libc::ENOSPC, _) => "Creating new namespace failed: nesting depth or \
                /proc/sys/user/max_*_namespaces exceeded (ENOSPC)"
                .to_owned(),
            (errno, _) => format!("Creating new namespace failed: {}", text_of(errno)),
        },
        LaunchError::Join {
            what: "pid",
            source,
        } => {
            format!("Setting pidns failed: {}", text_of(errno(source)))
        }
        LaunchError::Join { source, .. } if errno(source) == libc::EINVAL => {
            "Joining the specified user namespace failed, it might not be a descendant of the \
             current user namespace."
                .to_owned()
        }
        LaunchError::Join { source, .. } => {
            format!(
                "Joining specified user namespace failed: {}",
                text_of(errno(source))
            )
        }
        LaunchError::Threads(cause) => format!("Can't open /proc: {}", text_of(errno(cause))),
        LaunchError::Streams(cause) | LaunchError::Wire(cause) => {
            format!("pipe2(): {}", text_of(errno(cause)))
        }
        LaunchError::Step { what, source, .. } => {
            format!("cannot {what}: {}", text_of(errno(source)))
        }
    }
}
