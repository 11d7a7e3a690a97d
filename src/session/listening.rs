//! Whether and where a session can be talked to.

use std::io;

use super::control::Control;
use super::directory::{Directory, DirectoryError};
use super::error::RunError;
use super::manner::Manner;
use super::socket;
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
        Ok(mut control) => {
            control.home = directory.take_home();
            Ok(Some(control))
        }
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Err(DirectoryError::Running(session.id.clone()).into())
        }
        Err(error) if manner.detached.is_none() => {
            if let Some(say) = manner.say {
                say(&format!("nobody can join this session: {error}"));
            }
            Ok(None)
        }
        Err(source) => Err(RunError::Socket {
            path: manner.runtime.display().to_string(),
            source,
        }),
    }
}
