//! What went wrong, in bubblewrap's words: callers match them.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::errors::text_of;
use crate::plan::{AskedStep, BuildStep, InsideStep, Origin, OverlayWrites, Part, Plan, ReadyStep};
use crate::sandbox::{LaunchError, escaped, late_name};

/// A step that did not work, as the box told it.
#[derive(Debug)]
pub(super) struct Failure<'a> {
    pub(super) step: usize,
    pub(super) part: Part,
    pub(super) errno: i32,
    pub(super) detail: &'a [u8],
}

impl Failure<'_> {
    fn name(&self) -> String {
        String::from_utf8_lossy(self.detail).into_owned()
    }

    fn number(&self) -> u8 {
        self.detail.first().copied().unwrap_or(0)
    }
}

/// A message and whether the kernel's reason belongs behind it.
struct Said {
    text: String,
    with: Reason,
}

enum Reason {
    None,
    Plain,
    /// The kernel means a limit where it says that a disk is full.
    Mount,
}

fn plain(text: impl Into<String>) -> Said {
    Said {
        text: text.into(),
        with: Reason::Plain,
    }
}

fn mounting(text: impl Into<String>) -> Said {
    Said {
        text: text.into(),
        with: Reason::Mount,
    }
}

fn alone(text: impl Into<String>) -> Said {
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
            Part::Source if failure.detail.is_empty() => plain("Can't open /proc"),
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

/// The place as bubblewrap calls it while it builds.
fn below(root: &str, path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let start = bytes
        .iter()
        .position(|byte| *byte != b'/')
        .unwrap_or(bytes.len());
    format!("{root}{}", String::from_utf8_lossy(&bytes[start..]))
}

fn new_root(at: &Path) -> String {
    below("/newroot/", at)
}

fn of_asked(step: &AskedStep, failure: &Failure<'_>) -> Said {
    let at = place_of(step);
    let shown = at.display();
    match failure.part {
        Part::Parents => return plain(format!("Can't mkdir parents for {shown}")),
        Part::Folder => return plain(format!("Can't mkdir {shown}")),
        _ => {}
    }
    match step {
        AskedStep::Bind { from, .. } => of_bind(from, at, failure),
        AskedStep::RemountReadOnly { .. } => {
            let place = new_root(at);
            let text = format!("Can't remount readonly on {place}");
            match failure.part {
                Part::Destination => plain(format!("{text}: realpath(destination)")),
                Part::NotMounted => {
                    let place = resolved_text(&place);
                    alone(format!("{text}: Unable to find \"{place}\" in mount table"))
                }
                _ => mounting(format!(
                    "{text}: Unable to remount destination \"{place}\" with correct flags"
                )),
            }
        }
        AskedStep::Overlay { lower, writes, .. } => of_overlay(lower, writes, at, failure),
        AskedStep::Proc { .. } => match failure.part {
            Part::Cover => {
                let part = format!("{}/{}", new_root(at), failure.name());
                mounting(format!(
                    "Can't bind mount {part} on {part}: Unable to mount source on destination"
                ))
            }
            _ => mounting(format!("Can't mount proc on {}", new_root(at))),
        },
        AskedStep::Dev { .. } => of_dev(at, failure),
        AskedStep::Tmpfs { .. } => mounting(format!("Can't mount tmpfs on {}", new_root(at))),
        AskedStep::MessageQueue { .. } => {
            mounting(format!("Can't mount mqueue on {}", new_root(at)))
        }
        AskedStep::Folder { .. } => plain(format!("Can't mkdir {shown}")),
        AskedStep::File { .. } => match failure.part {
            Part::Write => plain(format!("Can't write data to file {shown}")),
            _ => plain(format!("Can't create file {shown}")),
        },
        AskedStep::Data { mode, .. } => match failure.part {
            Part::Temporary => plain(format!("Can't create tmpfile for {shown}")),
            Part::Mode => plain(format!(
                "Can't set mode {} on file to be used for {shown}",
                octal(*mode)
            )),
            Part::Write => plain(format!("Can't write data to file {shown}")),
            Part::File => plain(format!("Can't create file at {shown}")),
            _ => mounting(format!(
                "Can't bind mount /bindfileXXXXXX on {}: Unable to mount source on destination",
                new_root(at)
            )),
        },
        AskedStep::Link { .. } => match failure.part {
            Part::OtherLink => alone(format!(
                "Can't make symlink at {shown}: existing destination is {}",
                failure.name()
            )),
            Part::NotALink if failure.errno == libc::EINVAL => alone(format!(
                "Can't make symlink at {shown}: destination exists and is not a symlink"
            )),
            Part::NotALink => plain(format!(
                "Can't make symlink at {shown}: destination exists, and cannot read symlink target"
            )),
            _ => plain(format!("Can't make symlink at {shown}")),
        },
        AskedStep::Chmod { mode, .. } => plain(format!("Can't chmod {} {shown}", octal(*mode))),
        AskedStep::Hostname(name) => {
            plain(format!("Can't set hostname to {}", name.to_string_lossy()))
        }
    }
}

/// As C prints it: a zero in front of what is not zero.
fn octal(mode: u32) -> String {
    match mode {
        0 => "0".to_owned(),
        mode => format!("0{mode:o}"),
    }
}

fn place_of(step: &AskedStep) -> &Path {
    match step {
        AskedStep::Bind { at, .. }
        | AskedStep::RemountReadOnly { at }
        | AskedStep::Overlay { at, .. }
        | AskedStep::Proc { at }
        | AskedStep::Dev { at }
        | AskedStep::Tmpfs { at, .. }
        | AskedStep::MessageQueue { at }
        | AskedStep::Folder { at, .. }
        | AskedStep::File { at, .. }
        | AskedStep::Data { at, .. }
        | AskedStep::Link { at, .. }
        | AskedStep::Chmod { at, .. } => at,
        AskedStep::Hostname(_) => Path::new(""),
    }
}

fn of_bind(from: &Origin, at: &Path, failure: &Failure<'_>) -> Said {
    let source = match from {
        Origin::Path(path) => path.clone(),
        Origin::Descriptor(fd) => PathBuf::from(format!("/proc/self/fd/{fd}")),
    };
    match failure.part {
        Part::SourceKind => plain(format!("Can't get type of source {}", source.display())),
        Part::File => plain(format!("Can't create file at {}", at.display())),
        Part::Swapped => alone("Race condition binding dirfd"),
        _ => {
            let real = source.canonicalize().unwrap_or(source);
            mounting(format!(
                "Can't bind mount {} on {}: Unable to mount source on destination",
                below("/oldroot/", &real),
                new_root(at)
            ))
        }
    }
}

/// A path without what only says the same twice.
fn resolved_text(path: &str) -> String {
    match path.trim_end_matches('/') {
        "" => "/".to_owned(),
        path => path.to_owned(),
    }
}

fn of_overlay(lower: &[PathBuf], writes: &OverlayWrites, at: &Path, failure: &Failure<'_>) -> Said {
    if failure.part == Part::Temporary {
        return plain("Creating --tmp-overlay upperdir failed");
    }
    let real = |path: &PathBuf| {
        let path = path.canonicalize().unwrap_or_else(|_| path.clone());
        let path = escaped(path.as_os_str());
        format!("/oldroot{}", path.to_string_lossy())
    };
    let mut options = match writes {
        OverlayWrites::Refused => String::new(),
        OverlayWrites::Hidden => {
            "upperdir=/tmp-overlay-upper-0,workdir=/tmp-overlay-work-0,".to_owned()
        }
        OverlayWrites::To { upper, work } => {
            format!("upperdir={},workdir={},", real(upper), real(work))
        }
    };
    options.push_str("lowerdir=");
    options.push_str(&lower.iter().map(real).collect::<Vec<_>>().join(":"));
    let text = format!(
        "Can't make overlay mount on {} with options {options},userxattr",
        new_root(at)
    );
    match failure.errno {
        libc::ELOOP => alone(format!("{text}: Overlay directories may not overlap")),
        _ => mounting(text),
    }
}

fn of_dev(at: &Path, failure: &Failure<'_>) -> Said {
    let (shown, name) = (at.display(), failure.name());
    match (failure.part, name.as_str()) {
        (Part::DeviceLink, "ptmx") => plain(format!("Can't make symlink at {shown}/ptmx")),
        (Part::DeviceLink, _) => plain(format!("Can't create symlink {shown}/{name}")),
        (Part::Device, "shm") => plain(format!("Can't create {shown}/shm")),
        (Part::Device, "pts") => mounting(format!("Can't mount devpts on {}/pts", new_root(at))),
        (Part::Device, _) => mounting(format!(
            "Can't bind mount /oldroot/dev/{name} on {}/{name}: Unable to mount source on \
             destination",
            new_root(at)
        )),
        _ => mounting(format!("Can't mount tmpfs on {}", new_root(at))),
    }
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
