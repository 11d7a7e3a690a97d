//! A program of the app's, from the call that starts it to the news of its end.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::spawn_local;

use super::boxes::Entry;
use super::connection::Answer;
use super::names::session_name;
use super::process::Process;
use super::profile::Profile;
use super::request::Spawn;
use super::starting::{self, Launched};
use super::telling;
use crate::session::{Outcome, Record};

thread_local! {
    static UNNAMED: Cell<u64> = const { Cell::new(0) };
}

/// Takes the id at once; the rest is the future's.
pub(super) fn begin(
    profile: &Rc<Profile>,
    mut asked: Spawn,
) -> Result<impl Future<Output = Answer> + use<>, String> {
    let session = session_name(&asked.name)?;
    let is_named = !asked.id.is_empty();
    if !is_named {
        let number = UNNAMED.get() + 1;
        UNNAMED.set(number);
        asked.id = format!("process-{}-{number}", std::process::id());
    }
    let process = Process::new(&asked.id, session.as_str(), asked.one_shot);
    let process = profile.processes.begin(process)?;
    let entry = profile.boxes.entry(profile, &session);
    let profile = Rc::clone(profile);
    Ok(async move {
        let id = process.id.clone();
        let (started, answer) = oneshot::channel();
        // It goes on whether or not somebody waits for the answer.
        spawn_local(run(profile, entry, process, asked, started));
        let lost = || Err("the program was not started".to_owned());
        let failed = answer.await.unwrap_or_else(|_| lost())?;
        let mut result = json!({ "failedMounts": failed });
        if !is_named {
            result["id"] = id.into();
        }
        Ok(result)
    })
}

/// A process's whole life.
async fn run(
    profile: Rc<Profile>,
    entry: Rc<Entry>,
    process: Rc<Process>,
    asked: Spawn,
    started: oneshot::Sender<Result<Vec<String>, String>>,
) {
    let id = &process.id;
    let launched = match starting::start(&profile, &entry, &process, asked).await {
        Ok(launched) => launched,
        Err(why) => {
            process.input.close(format!("process {id} not found"));
            profile.processes.end(id, None);
            telling::note(&format!("a program was not started: {why}"));
            let _ = started.send(Err(why));
            return;
        }
    };
    let Launched {
        conversation,
        streams,
        failed,
    } = launched;
    let _ = started.send(Ok(failed));
    let memory = async || has_memory_run_out(&profile, &entry).await;
    let code = process
        .live(&conversation, streams, &profile.feed, memory)
        .await;
    profile.processes.end(id, Some(code));
    entry.touch();
}

/// Whether a limit of memory was the last that the session met; asked when something was killed and
/// nobody here did it.
async fn has_memory_run_out(profile: &Profile, entry: &Entry) -> bool {
    const WORD: &str = "memory ";
    if let Ok(conversation) = entry.conversation(profile).await
        && let Ok(seen) = conversation.inspect().await
    {
        let last = |line: &String| line.strip_prefix("last met: ").map(str::to_owned);
        let mut met = seen.limits.iter().filter_map(last);
        return met.any(|what| what.starts_with(WORD));
    }
    let folder = profile.places().own_folder(&entry.name);
    let record = folder.ok().and_then(|folder| Record::read(&folder).ok());
    let outcome = record.and_then(|record| record.outcome);
    matches!(outcome, Some(Outcome::OverLimit(what)) if what.starts_with(WORD))
}
