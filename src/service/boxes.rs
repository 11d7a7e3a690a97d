//! The boxes of a profile, one for each session of the app's, from the first program in it until the
//! workspace is stopped or nobody has used it for long.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::environment::Token;
use super::launch::{self, Hold};
use super::mounts::Mounts;
use super::profile::Profile;
use super::reading::Shown;
use super::sdk::Program;
use super::telling;
use crate::policy::SessionId;
use crate::policy::egress::Rules;
use crate::session::{AskError, Conversation};

/// How long a box stays that nothing runs in and nobody is connected for.
const IDLE: Duration = Duration::from_secs(30 * 60);
const BETWEEN_LOOKS: Duration = Duration::from_secs(60);

/// A box that runs, as we know it.
#[derive(Debug)]
pub(super) struct Running {
    hold: Hold,
    /// Over which other lines are brought to it.
    line: Option<Conversation>,
    /// What it was told last; nothing before it was told anything.
    pub(super) rules: Option<Rules>,
    pub(super) mounts: Mounts,
    /// The Claude Code that it sees.
    pub(super) claude: Option<Program>,
    /// What its gateway was told, where the token stays outside.
    pub(super) token: Option<Token>,
}

impl Running {
    /// Whether it can be talked to. One that ends takes its socket away first.
    fn is_up(&self, profile: &Profile, name: &SessionId) -> bool {
        self.hold.is_held() && profile.places().is_listening(name)
    }

    /// A line to it for one program. One that is brought over another saves both sides to introduce themselves.
    pub(super) async fn line(
        &mut self,
        profile: &Profile,
        name: &SessionId,
    ) -> Result<Conversation, AskError> {
        if let Some(line) = &self.line
            && let Ok(another) = line.another().await
        {
            return Ok(another);
        }
        let line = Conversation::with(&profile.places().runtime, name).await?;
        let another = line.another().await?;
        self.line = Some(line);
        Ok(another)
    }
}

/// One session's box, which may run or not.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: SessionId,
    /// Held while the box is started, changed or stopped; programs are started without it.
    running: Mutex<Option<Running>>,
    used: Cell<Instant>,
    /// What it saw last, for those who cannot wait for a change to be over.
    pub(super) shown: RefCell<Vec<Shown>>,
}

#[derive(Debug, Default)]
pub(super) struct Boxes {
    all: RefCell<HashMap<String, Rc<Entry>>>,
    is_watched: Cell<bool>,
}

impl Boxes {
    pub(super) fn is_empty(&self) -> bool {
        self.all.borrow().is_empty()
    }

    pub(super) fn get(&self, name: &str) -> Option<Rc<Entry>> {
        self.all.borrow().get(name).cloned()
    }

    /// Forgets a session that is no more.
    pub(super) fn forget(&self, name: &str) {
        self.all.borrow_mut().remove(name);
    }

    /// The entry of a session, made when there is none.
    pub(super) fn entry(&self, profile: &Rc<Profile>, name: &SessionId) -> Rc<Entry> {
        self.watch(profile);
        let mut all = self.all.borrow_mut();
        let entry = all.entry(name.to_string()).or_insert_with(|| {
            Rc::new(Entry {
                name: name.clone(),
                running: Mutex::new(None),
                used: Cell::new(Instant::now()),
                shown: RefCell::default(),
            })
        });
        entry.used.set(Instant::now());
        Rc::clone(entry)
    }

    /// Ends all boxes, at the same time.
    pub(super) async fn stop_all(&self, profile: &Profile, grace: Duration) {
        let entries: Vec<_> = self.all.borrow().values().cloned().collect();
        let stops = entries.iter().map(|entry| entry.stop(profile, grace));
        all(stops.collect()).await;
    }

    /// Looks from time to time for boxes that nobody uses.
    fn watch(&self, profile: &Rc<Profile>) {
        if self.is_watched.replace(true) {
            return;
        }
        let profile = Rc::downgrade(profile);
        spawn_local(async move {
            loop {
                sleep(BETWEEN_LOOKS).await;
                let Some(profile) = profile.upgrade() else {
                    return;
                };
                profile.boxes.stop_idle(&profile).await;
            }
        });
    }

    async fn stop_idle(&self, profile: &Profile) {
        let entries: Vec<_> = self.all.borrow().values().cloned().collect();
        for entry in entries {
            let is_used = || {
                profile.has_connections() || !profile.processes.of(entry.name.as_str()).is_empty()
            };
            if is_used() {
                entry.used.set(Instant::now());
            } else if entry.used.get().elapsed() >= IDLE {
                telling::note(&format!(
                    "the session {} is not used: it is ended",
                    entry.name
                ));
                entry.stop(profile, Duration::from_secs(2)).await;
            }
        }
    }
}

impl Entry {
    pub(super) fn touch(&self) {
        self.used.set(Instant::now());
    }

    /// The box, started if it does not run. Nobody else changes it until this is let go.
    pub(super) async fn ready(&self, profile: &Profile) -> Result<Ready<'_>, String> {
        let mut running = self.running.lock().await;
        if let Some(ending) = running.as_ref().filter(|it| !it.is_up(profile, &self.name)) {
            ending.hold.is_let_go().await;
            telling::warn(&format!(
                "the session {} was gone: it is started anew",
                self.name
            ));
            *running = None;
        }
        if running.is_none() {
            let hold = launch::start(profile, &self.name).await?;
            *running = Some(Running {
                hold,
                line: None,
                rules: None,
                mounts: Mounts::new(),
                claude: None,
                token: None,
            });
        }
        let running = MutexGuard::try_map(running, Option::as_mut);
        running.map_err(|_| "the session's box is gone".to_owned())
    }

    pub(super) async fn conversation(&self, profile: &Profile) -> Result<Conversation, AskError> {
        Conversation::with(&profile.places().runtime, &self.name).await
    }

    /// Ends the box if it runs, and waits for its end.
    pub(super) async fn stop(&self, profile: &Profile, grace: Duration) {
        let mut running = self.running.lock().await;
        if running.is_none() {
            return;
        }
        let asked = match self.conversation(profile).await {
            Ok(conversation) => conversation.stop(grace).await,
            Err(error) => Err(error),
        };
        if let Err(error) = asked {
            telling::detail(|| format!("{error}"));
        }
        // Whatever did not end when it was asked ends with this.
        *running = None;
        self.shown.take();
    }
}

/// A box that runs and that nobody else changes meanwhile.
pub(super) type Ready<'a> = MappedMutexGuard<'a, Running>;

/// Waits for all of these at the same time.
pub(super) async fn all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        let mut is_ready = true;
        for (future, done) in futures.iter_mut().zip(&mut done) {
            if done.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(output) => *done = Some(output),
                    std::task::Poll::Pending => is_ready = false,
                }
            }
        }
        match is_ready {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    done.into_iter().flatten().collect()
}
