//! `doctor --desktop`: what is between Claude Desktop and its sessions in boxes of this program.

use std::ffi::OsString;
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use serde_json::json;

use crate::policy::{PolicyFile, Sources};
use crate::probe::doctor::{self, Answering, Desk, Diagnosis, Row, Wanted};
use crate::service::client::{Client, ClientError, Heartbeat};

const PATIENCE: Duration = Duration::from_secs(2);
/// What of the host decides whether there are boxes at all.
const OF_HOST: [&str; 2] = ["user namespaces", "the box"];

pub(super) fn examine(env: &dyn Fn(&str) -> Option<OsString>) -> io::Result<Diagnosis> {
    let desk = Desk::here(env);
    let sources = Sources {
        profile: Some("cowork"),
        project_dir: None,
        flags: PolicyFile::default(),
        env,
    };
    let (wanted, mut rows) = match crate::policy::resolve(&sources) {
        Ok(resolved) => (Wanted::by(&resolved.policy), Vec::new()),
        Err(error) => {
            let row = doctor::policy_row(Err((error.to_string(), error.help())));
            (Wanted::EVERYTHING, vec![row])
        }
    };
    let host = doctor::examine(Vec::new(), &wanted, env)?;
    let is_asked = |row: &Row| OF_HOST.contains(&row.name);
    rows.extend(host.rows.into_iter().filter(is_asked));
    let helper = doctor::answering(&desk, &listen(&desk));
    Ok(doctor::desktop(&desk, rows, helper))
}

/// Asks whoever serves one of the app's sockets, as the app would.
fn listen(desk: &Desk) -> Answering {
    let Some(runtime) = &desk.runtime else {
        return Answering::Nobody;
    };
    for name in doctor::SOCKETS {
        let socket = runtime.join(name);
        match ask(&socket) {
            Err(ClientError::Nobody(..)) => {}
            Err(error) => {
                let why = error.to_string();
                return Answering::Wrong { socket, why };
            }
            Ok((client, running)) => {
                return Answering::Helper {
                    pid: client.server().pid,
                    program: client.server().program.clone(),
                    socket,
                    running,
                };
            }
        }
    }
    Answering::Nobody
}

fn ask(socket: &std::path::Path) -> Result<(Client, bool), ClientError> {
    let mut client = Client::connect(socket)?;
    // One answer is enough, and it is waited for as long as the app would wait.
    Heartbeat::APP.watch(&mut client, |_| ControlFlow::Break(()))?;
    let answer = client.ask("isRunning", json!({}), PATIENCE)?;
    Ok((client, answer["running"] == true))
}
