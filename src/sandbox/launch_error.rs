//! Why a box did not come to be, in words: made where the plan is.

use std::io;

use super::child;
use crate::plan::{InsideStep, Plan};

/// The sentence and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("cannot start with one thread")]
    Threads(#[source] io::Error),
    #[error("cannot make the streams of the program")]
    Streams(#[source] io::Error),
    #[error("cannot create namespaces")]
    Clone(#[source] io::Error),
    #[error("cannot enter the caller's {what} namespace")]
    Join {
        what: &'static str,
        source: io::Error,
    },
    #[error("cannot {what}")]
    Step {
        what: String,
        is_bind: bool,
        is_proc: bool,
        is_start: bool,
        source: io::Error,
    },
    #[error("cannot learn how the box is doing")]
    Wire(#[source] io::Error),
}

impl LaunchError {
    pub fn help(&self) -> Option<String> {
        let code = |error: &io::Error| error.raw_os_error().unwrap_or(0);
        Some(match self {
            Self::Threads(error) if code(error) == libc::ENOENT => {
                "/proc is not mounted here; mount it: mount -t proc proc /proc".into()
            }
            Self::Clone(error)
                if matches!(code(error), libc::EPERM | libc::ENOSPC | libc::EACCES) =>
            {
                "this host blocks user namespaces; `cowork-linux doctor` names the rule, \
                 `--isolation landlock` is the weaker way without them"
                    .into()
            }
            Self::Clone(error) if code(error) == libc::ENOSYS => {
                "clone3 is refused, usually by the container around this shell; \
                 `--isolation landlock` works without it"
                    .into()
            }
            Self::Step { is_start: true, .. } => {
                "name a folder in the box, such as /workspace: --workdir DIR".into()
            }
            Self::Step { source, .. } if code(source) == libc::ESTALE => {
                "it was replaced while the box was being built; run the command again".into()
            }
            Self::Step {
                source,
                is_bind: true,
                ..
            } if code(source) == libc::ENOENT => {
                "it vanished while the box was being built; check --mount".into()
            }
            Self::Step {
                source,
                is_bind: true,
                ..
            } if code(source) == libc::EACCES => {
                "you may not read it; choose a folder of your own".into()
            }
            Self::Step {
                source,
                is_bind: true,
                ..
            } if code(source) == libc::EINVAL => {
                "its filesystem cannot map owners; as root, run as an ordinary user instead".into()
            }
            Self::Step {
                source,
                is_proc: true,
                ..
            } if code(source) == libc::EPERM => {
                "parts of /proc are covered by the container around this shell; start that \
                 container without masked paths, or use `--isolation landlock`"
                    .into()
            }
            Self::Step { source, .. } if code(source) == libc::ENOSYS => {
                "this kernel is too old for it; 5.15 is the oldest that works".into()
            }
            _ => "`cowork-linux doctor` shows what this host offers".into(),
        })
    }
}

/// Turns the number of a failed step back into its sentence.
pub fn explain(plan: &Plan, step: u32, source: io::Error) -> LaunchError {
    let at = step as usize;
    let (what, is_bind, is_proc) = match (plan.build.get(at), at.checked_sub(plan.build.len())) {
        (Some(step), _) => {
            let is_proc = matches!(step, crate::plan::BuildStep::Proc { .. });
            (step.to_string(), step.is_bind(), is_proc)
        }
        (None, Some(rest)) => match plan.inside.get(rest) {
            Some(step) => (step.to_string(), false, false),
            None => (
                child::late_step(rest - plan.inside.len()).to_owned(),
                false,
                false,
            ),
        },
        (None, None) => ("set up the box".to_owned(), false, false),
    };
    let first_inside = plan.build.len();
    let is_start = at
        .checked_sub(first_inside)
        .is_some_and(|rest| matches!(plan.inside.get(rest), Some(InsideStep::WorkingDirectory(_))));
    LaunchError::Step {
        what,
        is_start,
        is_bind,
        is_proc,
        source,
    }
}
