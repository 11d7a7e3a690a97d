//! The system call filters that a plan asks for.

use std::path::Path;

use crate::filter::{self, FilterError};
use crate::plan::{Plan, Seccomp};
use crate::policy::Isolation;

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
pub(super) fn filters(plan: &Plan) -> Result<Vec<Vec<u8>>, (String, FilterSource)> {
    let (name, and_no_inet) = match &plan.lock.seccomp {
        Seccomp::Excused(_) | Seccomp::Given(_) => return Ok(Vec::new()),
        Seccomp::BuiltIn { name, and_no_inet } => (name.clone(), *and_no_inet),
        Seccomp::Profile { path, and_no_inet } => (path.display().to_string(), *and_no_inet),
    };
    let failed = |error: FilterSource| (name.clone(), error);
    let main = match &plan.lock.seccomp {
        Seccomp::Profile { path, .. } => compiled(path, plan).map_err(failed)?,
        _ => filter::builtin(&name)
            .ok_or_else(|| failed(FilterSource::Unknown(filter::builtin_names().join(", "))))?
            .bytes()
            .to_vec(),
    };
    let more = [
        (plan.isolation == Isolation::Landlock).then_some("no-host"),
        and_no_inet.then_some("no-inet"),
    ];
    let mut all = vec![main];
    for name in more.into_iter().flatten() {
        let unknown = || failed(FilterSource::Unknown(filter::builtin_names().join(", ")));
        all.push(filter::builtin(name).ok_or_else(unknown)?.bytes().to_vec());
    }
    Ok(all)
}

/// A user's profile; compiled the first time, read from the state directory after that.
fn compiled(path: &Path, plan: &Plan) -> Result<Vec<u8>, FilterSource> {
    let text = std::fs::read_to_string(path)?;
    let arch = filter::Arch::native().ok_or(FilterSource::Processor)?;
    let session = plan.session.as_ref();
    let state = session.map_or(Path::new("/nonexistent"), |session| {
        session.state_directory()
    });
    Ok(filter::compiled(&text, arch, &state.join("filters"))?
        .bytes()
        .to_vec())
}
