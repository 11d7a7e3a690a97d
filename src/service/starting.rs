//! What a program is started with: its words, its variables, its session's folders and hosts; and why
//! it was not.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use super::boxes::{Entry, Ready};
use super::environment::{self, SpawnEnv};
use super::output::Streams;
use super::process::Process;
use super::profile::Profile;
use super::request::Spawn;
use super::sdk::{self, Program, Sdk};
use super::{domains, mounts, telling};
use crate::report;
use crate::session::{Conversation, NotRun, Words};

/// How long the file of a program may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Says whether there is a program of that name.
const IS_THERE: [&str; 4] = ["/bin/sh", "-c", "command -v -- \"$1\" >/dev/null", "sh"];

/// A program that runs.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) conversation: Conversation,
    pub(super) streams: Streams,
    pub(super) failed: Vec<String>,
}

/// Everything up to the moment at which the program runs.
pub(super) async fn start(
    profile: &Rc<Profile>,
    entry: &Entry,
    process: &Process,
    asked: Spawn,
) -> Result<Launched, String> {
    let is_claude = environment::is_claude(&asked.command);
    if is_claude {
        let base = asked
            .env
            .get("ANTHROPIC_BASE_URL")
            .and_then(|it| it.as_str());
        let outside = profile.helper.outside.as_ref();
        let outside = outside.and_then(|it| it.base.as_deref());
        *process.claude.borrow_mut() = Some(base.or(outside).map(str::to_owned));
    }
    let mut ready = entry.ready(profile).await?;
    let failed = show_folders(profile, entry, process, &mut ready, &asked).await?;
    allow_hosts(profile, entry, &mut ready, &asked).await?;
    let command = match is_claude {
        true => claude(profile, entry, &mut ready).await?,
        false => asked.command.clone(),
    };
    let mut env = variables(profile, entry, &asked);
    if let Some(outside) = profile.helper.outside.as_ref().filter(|_| is_claude) {
        outside
            .keep(profile, entry, &mut ready, &asked, &mut env)
            .await?;
    }
    let line = ready.line(profile, &entry.name).await;
    let mut line = Some(line.map_err(|error| report::in_one_line(&error))?);
    drop(ready);
    let home = PathBuf::from(format!("/sessions/{}", entry.name));
    let folder = asked.cwd.as_ref().map_or(home.clone(), PathBuf::from);
    let argv = std::iter::once(&command).chain(&asked.args);
    let mut words = Words {
        argv: argv.map(OsString::from).collect(),
        env,
        folder,
    };
    loop {
        if process.is_cancelled() {
            return Err("the workspace was stopped".to_owned());
        }
        let (theirs, streams) = process
            .streams()
            .map_err(|error| format!("cannot connect the program's streams: {error}"))?;
        let conversation = match line.take() {
            Some(line) => Ok(line),
            None => entry.conversation(profile).await,
        };
        let conversation = conversation.map_err(|error| report::in_one_line(&error))?;
        match conversation.exec(&words, &theirs).await {
            Ok(()) => {
                return Ok(Launched {
                    conversation,
                    streams,
                    failed,
                });
            }
            // Where it was to start is a folder that could not be mounted.
            Err(NotRun::Folder(_))
                if words.folder != home && is_in(&words.folder, &home, &failed) =>
            {
                telling::warn(&format!(
                    "{} is not mounted: the program starts in {}",
                    words.folder.display(),
                    home.display()
                ));
                words.folder = home.clone();
            }
            Err(error) => return Err(why(error, &command, &words, profile, entry).await),
        }
    }
}

/// Whether a path lies in a mount that there is none of.
fn is_in(path: &Path, home: &Path, failed: &[String]) -> bool {
    let mounts = home.join("mnt");
    failed
        .iter()
        .any(|name| path.starts_with(mounts.join(name)))
}

/// Makes the session show what the program comes with; the names of what it cannot.
async fn show_folders(
    profile: &Profile,
    entry: &Entry,
    process: &Process,
    ready: &mut Ready<'_>,
    asked: &Spawn,
) -> Result<Vec<String>, String> {
    let Some(wanted) = &asked.mounts else {
        return Ok(Vec::new());
    };
    let finder = profile.finder();
    let (found, mut failed) = finder.find_all(wanted, &ready.mounts).await;
    *process.mounts.borrow_mut() = wanted.iter().map(|(name, _)| name.clone()).collect();
    let others = profile.processes.of(entry.name.as_str());
    // A command beside others takes nothing away from them.
    let is_used = |name: &str| {
        let others = others.iter().filter(|other| other.id != process.id);
        let mut names = others.map(|other| other.mounts.borrow());
        names.any(|names| names.iter().any(|used| used == name))
    };
    let desired = mounts::with_list(&ready.mounts, found, is_used);
    if mounts::is_so(&ready.mounts, &desired) {
        return Ok(failed);
    }
    let conversation = entry.conversation(profile).await;
    let conversation = conversation.map_err(|error| report::in_one_line(&error))?;
    let more = finder
        .change(&entry.name, &mut ready.mounts, desired, &conversation)
        .await;
    failed.extend(more.into_iter().map(|(name, _)| name));
    *entry.shown.borrow_mut() = mounts::shown(&entry.name, &ready.mounts);
    Ok(failed)
}

/// Tells the session's gateway which hosts may be reached. Claude Code keeps its own as long as it runs.
async fn allow_hosts(
    profile: &Profile,
    entry: &Entry,
    ready: &mut Ready<'_>,
    asked: &Spawn,
) -> Result<(), String> {
    let running = profile.processes.of(entry.name.as_str());
    let mut claudes = running.iter().filter_map(|it| it.claude.borrow().clone());
    let claude = claudes.next_back();
    let base = claude.clone().flatten();
    let allowed = domains::rules(
        asked.allowed_domains.as_deref(),
        claude.is_some(),
        base.as_deref(),
    );
    if ready.rules.as_ref() == Some(&allowed.rules) {
        return Ok(());
    }
    allowed.notes.iter().for_each(|note| telling::warn(note));
    let told = async {
        let conversation = entry.conversation(profile).await?;
        conversation.rules(&allowed.rules).await
    };
    told.await.map_err(|error| report::in_one_line(&error))?;
    ready.rules = Some(allowed.rules);
    Ok(())
}

/// What to call Claude Code in the session, once it is to be seen there.
async fn claude(profile: &Profile, entry: &Entry, ready: &mut Ready<'_>) -> Result<String, String> {
    let program = find_claude(profile).await?;
    if program.is_in_view() {
        let path = program.path.into_os_string().into_string();
        return path.map_err(|_| "the path of Claude Code is no text".to_owned());
    }
    if ready.claude.as_ref() != Some(&program) {
        let conversation = entry.conversation(profile).await;
        let conversation = conversation.map_err(|error| report::in_one_line(&error))?;
        let shown = conversation.mount(&program.wish()).await;
        shown.map_err(|error| report::in_one_line(&error))?;
        ready.claude = Some(program);
    }
    Ok(sdk::INSIDE.to_owned())
}

async fn find_claude(profile: &Profile) -> Result<Program, String> {
    let sdk = with_sdk(profile, |sdk| sdk.program()).await;
    sdk.unwrap_or_else(|| Err("the disk that Claude Code lies on does not answer".to_owned()))
}

/// Asks about Claude Code, in turn, and not on the thread that serves everybody.
pub(super) async fn with_sdk<T: Send + 'static>(
    profile: &Profile,
    ask: impl FnOnce(&mut Sdk) -> T + Send + 'static,
) -> Option<T> {
    let mut known = profile.sdk.lock().await;
    let search = || std::env::var_os("PATH").unwrap_or_default();
    let mut sdk = known
        .clone()
        .unwrap_or_else(|| Sdk::new(profile.sources(), search()));
    let blocking = &profile.helper.blocking;
    let (sdk, answer) = blocking
        .within(PATIENCE, move || {
            let answer = ask(&mut sdk);
            (sdk, answer)
        })
        .await?;
    *known = Some(sdk);
    Some(answer)
}

fn variables(profile: &Profile, entry: &Entry, asked: &Spawn) -> Vec<(OsString, OsString)> {
    let sent = Some(&asked.env);
    for name in environment::unfit(sent) {
        telling::warn(&format!("the variable `{name}` is left out: it is no text"));
    }
    let token = profile.token_for(asked);
    let spawn = SpawnEnv {
        session: &entry.name,
        command: &asked.command,
        sent,
        lang: std::env::var_os("LANG"),
        has_list: !domains::is_unrestricted(asked.allowed_domains.as_deref()),
    };
    environment::variables(&spawn, token.as_ref())
}

/// Why a program does not run, for the person who reads it in the app.
async fn why(
    error: NotRun,
    command: &str,
    words: &Words,
    profile: &Profile,
    entry: &Entry,
) -> String {
    let because = |errno: i32| {
        let error = std::io::Error::from_raw_os_error(errno);
        report::without_number(&error.to_string())
    };
    match error {
        NotRun::Asked(error) => report::in_one_line(&error),
        NotRun::Folder(errno) => {
            let folder = words.folder.display();
            format!("cannot start {command} in {folder}: {}", because(errno))
        }
        NotRun::Program(libc::ENOENT | libc::ENOTDIR) => {
            match is_there(words, profile, entry).await {
                true => format!(
                    "cannot run {command}: what it is run with, its interpreter or loader, is missing in the session"
                ),
                false => format!(
                    "{command}: not found in the session; programs there are those of the system, in /usr and /bin"
                ),
            }
        }
        NotRun::Program(libc::EACCES | libc::EPERM) => {
            format!(
                "cannot run {command}: permission denied; it is no program, or may not be executed"
            )
        }
        NotRun::Program(libc::ENOEXEC) => {
            format!("cannot run {command}: its format is not one of this computer's programs")
        }
        NotRun::Program(errno) => format!("cannot run {command}: {}", because(errno)),
    }
}

/// Whether there is a program of that name, whatever keeps it from being run.
async fn is_there(words: &Words, profile: &Profile, entry: &Entry) -> bool {
    let Some(name) = words.argv.first() else {
        return false;
    };
    let looks = IS_THERE.into_iter().map(OsString::from);
    let words = Words {
        argv: looks.chain([name.clone()]).collect(),
        env: words.env.clone(),
        folder: words.folder.clone(),
    };
    let Ok((theirs, _ours)) = Process::new("", entry.name.as_str(), true).streams() else {
        return false;
    };
    let Ok(conversation) = entry.conversation(profile).await else {
        return false;
    };
    let ran = conversation.exec(&words, &theirs).await.is_ok();
    ran && conversation
        .ended()
        .await
        .is_ok_and(|outcome| outcome.exit_code() == 0)
}
