//! The system call filters that a plan asks for.

use std::path::{Path, PathBuf};

use crate::filter::{self, Arch, Filter, FilterError, Heard};
use crate::plan::{Guarding, Plan, Seccomp};
use crate::policy::Isolation;
use crate::sandbox::Filters;

#[derive(Debug, thiserror::Error)]
pub(super) enum FilterSource {
    #[error(transparent)]
    Read(#[from] std::io::Error),
    #[error(transparent)]
    Filter(#[from] FilterError),
    #[error("there is no built-in one of that name; there are {0}")]
    Unknown(String),
    #[error("this processor is not supported")]
    Processor,
}

/// The compiled filters the plan asks for; built-in ones cost nothing.
pub(super) fn filters(plan: &Plan) -> Result<Filters, (String, FilterSource)> {
    let pid1_answers = matches!(plan.lock.guarding, Guarding::On { .. });
    let guard = || match pid1_answers {
        true => {
            let unknown = || ("guard".to_owned(), FilterSource::Processor);
            Ok(Some(filter::guard().ok_or_else(unknown)?))
        }
        false => Ok(None),
    };
    let (name, and_no_inet) = match &plan.lock.seccomp {
        Seccomp::Excused(_) | Seccomp::Given(_) => {
            return Ok(Filters {
                every: Vec::new(),
                program: guard()?.map(|guard| guard.bytes().to_vec()),
            });
        }
        Seccomp::BuiltIn { name, and_no_inet } => (name.clone(), *and_no_inet),
        Seccomp::Profile { path, and_no_inet } => (path.display().to_string(), *and_no_inet),
    };
    let failed = |error: FilterSource| (name.clone(), error);
    let heard = match &plan.lock.seccomp {
        _ if !pid1_answers => None,
        Seccomp::Profile { path, .. } => Some(compiled_heard(path, plan).map_err(failed)?),
        _ => Heard::builtin(&name),
    };
    let (main, program) = match (heard, &plan.lock.seccomp) {
        (Some(heard), _) => (heard.every, Some(heard.program)),
        (None, Seccomp::Profile { path, .. }) => (compiled(path, plan).map_err(failed)?, None),
        (None, _) => {
            let unknown = || failed(FilterSource::Unknown(filter::builtin_names().join(", ")));
            (filter::builtin(&name).ok_or_else(unknown)?, guard()?)
        }
    };
    let more = [
        (plan.isolation == Isolation::Landlock).then_some("no-host"),
        and_no_inet.then_some("no-inet"),
    ];
    let mut every = vec![main.bytes().to_vec()];
    for name in more.into_iter().flatten() {
        let unknown = || failed(FilterSource::Unknown(filter::builtin_names().join(", ")));
        every.push(filter::builtin(name).ok_or_else(unknown)?.bytes().to_vec());
    }
    Ok(Filters {
        every,
        program: program.map(|program| program.bytes().to_vec()),
    })
}

/// A user's profile; compiled the first time, read from the state directory after that.
fn compiled(path: &Path, plan: &Plan) -> Result<Filter, FilterSource> {
    let (text, arch, folder) = profile(path, plan)?;
    Ok(filter::compiled(&text, arch, &folder)?)
}

fn compiled_heard(path: &Path, plan: &Plan) -> Result<Heard, FilterSource> {
    let (text, arch, folder) = profile(path, plan)?;
    Ok(filter::compiled_heard(&text, arch, &folder)?)
}

fn profile(path: &Path, plan: &Plan) -> Result<(String, Arch, PathBuf), FilterSource> {
    let text = std::fs::read_to_string(path)?;
    let arch = Arch::native().ok_or(FilterSource::Processor)?;
    let session = plan.session.as_ref();
    let state = session.map_or(Path::new("/nonexistent"), |session| {
        session.state_directory()
    });
    Ok((text, arch, state.join("filters")))
}
