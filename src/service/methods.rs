//! What the app can ask, one name each.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use serde_json::{Value, json};

use super::connection::{Answer, Connection};
use super::input::Taken;
use super::process::{Process, signal_number};
use super::profile::{Key, Profile};
use super::request::{Params, Spawn};
use super::{spawn, telling, upkeep};

/// How a question is answered.
pub(super) enum Handled {
    Now(Answer),
    Later(Pin<Box<dyn Future<Output = Answer>>>),
    /// The answer was put in its place already.
    Said,
}

fn done() -> Handled {
    Handled::Now(Ok(json!({})))
}

fn later(work: impl Future<Output = Answer> + 'static) -> Handled {
    Handled::Later(Box::pin(work))
}

/// Begins to answer. All that depends on the order of questions is done here, before the next is read.
pub(super) fn handle(
    connection: &Rc<Connection>,
    method: &str,
    params: Params,
    id: &Option<Value>,
) -> Handled {
    let helper = &connection.helper;
    match method {
        "isRunning" => {
            let running = connection.profile().is_started();
            Handled::Now(Ok(json!({ "running": running })))
        }
        "isGuestConnected" => {
            let connected = connection.profile().is_started();
            Handled::Now(Ok(json!({ "connected": connected })))
        }
        "isProcessRunning" => Handled::Now(Ok(is_process_running(connection, params))),
        "configure" => configure(connection, params),
        "subscribeEvents" => subscribe(connection, params, id),
        "startVM" => {
            let mut params = params;
            let probe = params.text("apiProbeURL").filter(|url| !url.is_empty());
            let profile = connection.profile();
            later(async move { profile.start(probe).await.map(|()| json!({})) })
        }
        "stopVM" => {
            let profile = connection.profile();
            later(async move {
                profile.stop().await;
                Ok(json!({}))
            })
        }
        "spawn" => spawn(connection, params),
        "writeStdin" => write_stdin(connection, params),
        "kill" => kill(connection, params),
        "mountPath" => later(upkeep::mount_path(owner(connection, &params), params)),
        "readFile" => {
            let connection = Rc::clone(connection);
            later(async move {
                let _turn = connection.reading.lock().await;
                connection.outbox.room().await;
                upkeep::read_file(connection.profile(), params).await
            })
        }
        "installSdk" => later(upkeep::install_sdk(connection.profile(), params)),
        "addApprovedOauthToken" => Handled::Now(upkeep::approve(&connection.profile(), params)),
        "getSessionsDiskInfo" => later(upkeep::disk_info(connection.profile(), params)),
        "deleteSessionDirs" => later(upkeep::delete(connection.profile(), params)),
        "pruneSessionCaches" => later(upkeep::prune(connection.profile(), params)),
        "setDebugLogging" => {
            telling::in_detail(params.is("enabled"));
            done()
        }
        "isDebugLoggingEnabled" => {
            let enabled = telling::is_in_detail();
            Handled::Now(Ok(json!({ "enabled": enabled })))
        }
        "getNetworkDrives" => Handled::Now(Ok(json!({ "drives": [] }))),
        "getDownloadStatus" => Handled::Now(Ok(json!({ "status": "ready" }))),
        // No disks are made here, and no guest asks for anything that could be answered.
        "createVM" | "createDiskImage" | "sendGuestResponse" => done(),
        unknown => {
            helper.tell_unknown(unknown, &params.names());
            match helper.options.lenient {
                true => done(),
                false => Handled::Now(Err(format!("unknown method: {unknown}"))),
            }
        }
    }
}

/// The profile that is named; none where none is.
fn named(connection: &Rc<Connection>, params: &mut Params) -> Option<Rc<Profile>> {
    let root = params.text("userDataRoot");
    let name = params.text("userDataName");
    if root.is_none() && name.is_none() {
        return None;
    }
    let key = Key {
        root: root.unwrap_or_default(),
        name: name.unwrap_or_default(),
    };
    Some(connection.helper.named(key))
}

fn configure(connection: &Rc<Connection>, mut params: Params) -> Handled {
    if let Some(profile) = named(connection, &mut params) {
        connection.belong_to(&profile);
    }
    done()
}

fn subscribe(connection: &Rc<Connection>, mut params: Params, id: &Option<Value>) -> Handled {
    let profile = named(connection, &mut params).unwrap_or_else(|| connection.profile());
    connection.belong_to(&profile);
    connection.acknowledge(id.clone());
    connection.subscribe(&profile);
    Handled::Said
}

/// The profile of the process that is named; the connection's where there is none.
fn owner(connection: &Rc<Connection>, params: &Params) -> Rc<Profile> {
    let process = params.look("processId").and_then(|id| find(connection, id));
    process.map_or_else(|| connection.profile(), |(profile, _)| profile)
}

/// The process of that id: of the connection's profile, or of any where it has not named one.
fn find(connection: &Rc<Connection>, id: &str) -> Option<(Rc<Profile>, Rc<Process>)> {
    let own = connection.profile();
    if let Some(process) = own.processes.get(id) {
        return Some((own, process));
    }
    let others = match connection.is_named() {
        true => Vec::new(),
        false => connection.helper.profiles(),
    };
    others.into_iter().find_map(|profile| {
        let process = profile.processes.get(id)?;
        Some((profile, process))
    })
}

fn exit_code(connection: &Rc<Connection>, id: &str) -> Option<i32> {
    let own = connection.profile().processes.exit_code(id);
    own.or_else(|| match connection.is_named() {
        true => None,
        false => {
            let all = connection.helper.profiles();
            all.iter().find_map(|it| it.processes.exit_code(id))
        }
    })
}

fn is_process_running(connection: &Rc<Connection>, mut params: Params) -> Value {
    let id = params.word("id").unwrap_or_default();
    if find(connection, &id).is_some() {
        return json!({ "running": true });
    }
    match exit_code(connection, &id) {
        Some(code) => json!({ "running": false, "exitCode": code }),
        None => json!({ "running": false }),
    }
}

fn spawn(connection: &Rc<Connection>, params: Params) -> Handled {
    let asked = Spawn::of(params).and_then(|asked| spawn::begin(&connection.profile(), asked));
    match asked {
        Ok(work) => later(work),
        Err(why) => Handled::Now(Err(why)),
    }
}

fn write_stdin(connection: &Rc<Connection>, mut params: Params) -> Handled {
    let id = params.word("id").unwrap_or_default();
    let data = params.text("data").unwrap_or_default();
    let Some((_, process)) = find(connection, &id) else {
        let why = match exit_code(connection, &id) {
            Some(_) => "has exited",
            None => "not found",
        };
        return Handled::Now(Err(format!("process {id} {why}")));
    };
    match process.input.write(data.into_bytes()) {
        Taken::Done => done(),
        Taken::Refused(why) => Handled::Now(Err(why)),
        Taken::Held(answer) => later(async move {
            let gone = || Err(format!("process {id} has exited"));
            answer.await.unwrap_or_else(|_| gone()).map(|()| json!({}))
        }),
    }
}

fn kill(connection: &Rc<Connection>, mut params: Params) -> Handled {
    let id = params.word("id").unwrap_or_default();
    let named = params.word("signal").filter(|name| !name.is_empty());
    let signal = named.as_deref().map_or(Some(libc::SIGTERM), signal_number);
    let signal = signal.unwrap_or_else(|| {
        telling::warn("an unknown signal is taken for SIGTERM");
        libc::SIGTERM
    });
    // One that is gone already is what was wanted.
    if let Some((_, process)) = find(connection, &id) {
        process.signal(signal);
    }
    done()
}
