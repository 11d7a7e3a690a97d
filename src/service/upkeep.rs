//! What the app asks about a session besides programs: folders that are granted in passing, files to
//! show, the Claude Code to run, and the room that everything takes.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::boxes::Entry;
use super::connection::Answer;
use super::disk::Pruning;
use super::environment::Token;
use super::mounts;
use super::names::{mount_name, session_name};
use super::profile::Profile;
use super::reading::{self, SessionView};
use super::request::{Mount, Params};
use super::starting::with_sdk;
use super::telling;
use crate::report;

/// How long a file may take to be read, and all sessions to be looked through: less than the app
/// waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
const LONG_PATIENCE: Duration = Duration::from_secs(25);
/// How long a box may take to end that only waits.
const GRACE: Duration = Duration::from_secs(1);

/// A session that runs, by its own name or by the id of one of its processes.
fn session(profile: &Profile, text: &str) -> Result<Rc<Entry>, String> {
    let of_process = profile.processes.get(text).map(|it| it.session.clone());
    let name = of_process.unwrap_or_else(|| text.to_owned());
    let known = profile.boxes.get(&name);
    known.ok_or_else(|| format!("process {text} not found"))
}

/// `mountPath`: every program of the session sees the folder when this is answered.
pub(super) async fn mount_path(profile: Rc<Profile>, mut params: Params) -> Answer {
    let entry = session(&profile, &params.needed("processId")?)?;
    let name = mount_name(&params.needed("mountName")?)?;
    let mount = Mount {
        path: params.text("subpath").unwrap_or_default(),
        mode: params.text("mode"),
    };
    let finder = profile.finder();
    let folder = finder.find(&mount).await?;
    let folder = folder.ok_or("only folders can be mounted, and this is a file")?;
    let mut ready = entry.ready(&profile).await?;
    let guest_path = format!("/sessions/{}/mnt/{name}", entry.name);
    let desired = mounts::with_one(&ready.mounts, name.clone(), folder);
    let conversation = entry.conversation(&profile).await;
    let conversation = conversation.map_err(|error| report::in_one_line(&error))?;
    let failed = finder
        .change(&entry.name, &mut ready.mounts, desired, &conversation)
        .await;
    *entry.shown.borrow_mut() = mounts::shown(&entry.name, &ready.mounts);
    match failed.into_iter().find(|(it, _)| it == name.as_str()) {
        Some((_, why)) => Err(why),
        None => Ok(json!({ "guestPath": guest_path })),
    }
}

/// `readFile`, as the session would read it.
pub(super) async fn read_file(profile: Rc<Profile>, mut params: Params) -> Answer {
    let text = params.needed("processName")?;
    let path = params.needed("filePath")?;
    let of_process = profile.processes.get(&text).map(|it| it.session.clone());
    let name = session_name(of_process.as_deref().unwrap_or(&text))?;
    let entry = profile.boxes.get(name.as_str());
    let shown = entry.map(|entry| entry.shown.borrow().clone());
    let places = profile.places();
    let read = profile.helper.blocking.within(PATIENCE, move || {
        let view = SessionView {
            name: &name,
            places: &places,
            mounts: shown.unwrap_or_default(),
        };
        reading::read_file(&view, &path)
    });
    let late = || Err("the disk that it lies on does not answer".to_owned());
    let content = read.await.unwrap_or_else(late)?;
    Ok(json!({ "content": content }))
}

/// `installSdk`: what cannot be run is told when it is to be run.
pub(super) async fn install_sdk(profile: Rc<Profile>, mut params: Params) -> Answer {
    let subpath = params.text("sdkSubpath").unwrap_or_default();
    let version = params.text("version").unwrap_or_default();
    let note = with_sdk(&profile, move |sdk| sdk.install(&subpath, &version)).await;
    let late = || Some("the disk that Claude Code lies on does not answer".to_owned());
    if let Some(note) = note.unwrap_or_else(late) {
        telling::warn(&note);
    }
    Ok(json!({}))
}

/// `addApprovedOauthToken`.
pub(super) fn approve(profile: &Profile, mut params: Params) -> Answer {
    let token = params.text("token").and_then(Token::new);
    if token.is_some() {
        *profile.token.borrow_mut() = token;
    }
    Ok(json!({}))
}

/// Those in which something runs.
fn running(profile: &Profile) -> HashSet<String> {
    let all = profile.processes.all();
    all.iter().map(|it| it.session.clone()).collect()
}

fn late() -> String {
    "the disk that sessions lie on does not answer".to_owned()
}

fn told(answer: Option<Result<Value, serde_json::Error>>) -> Answer {
    answer.ok_or_else(late)?.map_err(|error| error.to_string())
}

/// `getSessionsDiskInfo`.
pub(super) async fn disk_info(profile: Rc<Profile>, params: Params) -> Answer {
    let low_water = params.number("lowWaterBytes").unwrap_or(0);
    let (places, sizes) = (profile.places(), Arc::clone(&profile.sizes));
    let counted = profile.helper.blocking.within(PATIENCE, move || {
        serde_json::to_value(sizes.info(&places, low_water))
    });
    told(counted.await)
}

/// `deleteSessionDirs`: never one in which something runs; a box that only waits is ended before.
pub(super) async fn delete(profile: Rc<Profile>, mut params: Params) -> Answer {
    let names = params.list("names").unwrap_or_default();
    let running = running(&profile);
    for name in names.iter().filter(|name| !running.contains(*name)) {
        if let Some(entry) = profile.boxes.get(name) {
            entry.stop(&profile, GRACE).await;
            profile.boxes.forget(name);
        }
    }
    let (places, sizes) = (profile.places(), Arc::clone(&profile.sizes));
    let deleted = profile.helper.blocking.within(LONG_PATIENCE, move || {
        serde_json::to_value(sizes.delete(&places, &names, |id| running.contains(id.as_str())))
    });
    told(deleted.await)
}

/// `pruneSessionCaches`.
pub(super) async fn prune(profile: Rc<Profile>, params: Params) -> Answer {
    let older = params.number("sessionTmpOlderThanSeconds").unwrap_or(0);
    let how = Pruning {
        only_if_free_below: params.number("onlyIfFreeBytesBelow").unwrap_or(0),
        include_tmp: params.is("includeSessionTmp"),
        tmp_older_than: Duration::from_secs(older),
    };
    let running = running(&profile);
    let (places, sizes) = (profile.places(), Arc::clone(&profile.sizes));
    let pruned = profile.helper.blocking.within(LONG_PATIENCE, move || {
        serde_json::to_value(sizes.prune(&places, how, |id| running.contains(id.as_str())))
    });
    told(pruned.await)
}
