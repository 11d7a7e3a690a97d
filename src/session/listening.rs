//! Whether and where a session can be talked to.

use super::control::Control;
use super::directory::Directory;
use super::error::RunError;
use super::socket;
use super::supervise::Manner;
use crate::plan::Plan;

/// A session in front of its caller does without when there is no place for a socket; one that
/// nobody could ever reach again does not start.
pub(super) fn open_control(
    plan: &Plan,
    directory: &mut Directory,
    manner: &Manner,
) -> Result<Option<Control>, RunError> {
    let Some(session) = &plan.session else {
        return Ok(None);
    };
    let _ = directory.runtime(&manner.runtime);
    let opened = socket::directory(&manner.runtime)
        .and_then(|()| Control::open(&manner.runtime, &session.id));
    match opened {
        Ok(control) => Ok(Some(control)),
        Err(_) if manner.detached.is_none() => Ok(None),
        Err(source) => Err(RunError::Socket {
            path: manner.runtime.display().to_string(),
            source,
        }),
    }
}
