//! One profile of the app's: what it runs, who listens, whether its workspace is started. Profiles
//! know nothing of each other.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::sleep;

use super::boxes::Boxes;
use super::disk::Sizes;
use super::environment::Token;
use super::events::{self, Feed};
use super::folders::Sources;
use super::helper::Helper;
use super::launch;
use super::mounts::Finder;
use super::processes::Processes;
use super::request::Spawn;
use super::sdk::Sdk;
use super::{reachability, telling};
use crate::session::Places;

/// How long programs may take to end when the workspace is stopped.
const GRACE: Duration = Duration::from_secs(2);
/// The same when the app is gone.
const LAST_GRACE: Duration = Duration::from_millis(300);
/// How long a profile may be without a connection where nobody tells that its app is gone.
const ALONE: Duration = Duration::from_secs(60);

/// How often the API is asked whether it is there, and when it counts as gone.
const BETWEEN_PROBES: Duration = Duration::from_secs(30);
const MANY_FAILURES: u32 = 3;

/// Names a profile: where the app keeps its data, and under which name.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) root: String,
    pub(super) name: String,
}

impl Key {
    /// Short, because it becomes part of many paths.
    fn folder(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.root.as_bytes());
        hash.update([0]);
        hash.update(self.name.as_bytes());
        let bytes = hash.finalize();
        bytes[..6]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// The app's own folder.
    pub(super) fn data(&self) -> Option<PathBuf> {
        let root = PathBuf::from(&self.root);
        (root.is_absolute() && !self.name.is_empty()).then(|| root.join(&self.name))
    }
}

#[derive(Debug)]
pub(super) struct Profile {
    key: RefCell<Key>,
    pub(super) helper: Rc<Helper>,
    pub(super) feed: Rc<Feed>,
    pub(super) processes: Processes,
    pub(super) boxes: Boxes,
    is_started: Cell<bool>,
    /// One start or stop at a time.
    changing: Mutex<()>,
    connections: Cell<usize>,
    /// Counts how often the last connection was closed.
    left: Cell<u64>,
    probing: RefCell<Option<JoinHandle<()>>>,
    /// What the app approved last, for Claude Code.
    pub(super) token: RefCell<Option<Token>>,
    /// Which Claude Code is run; asked in the order in which the app says it.
    pub(super) sdk: Mutex<Option<Sdk>>,
    pub(super) sizes: Arc<Sizes>,
}

impl Profile {
    /// What Claude Code logs in with: what came with it, or what the app approved last.
    pub(super) fn token_for(&self, asked: &Spawn) -> Option<Token> {
        let own = asked.oauth_token.clone().and_then(Token::new);
        own.or_else(|| self.token.borrow().clone())
    }

    pub(super) fn new(key: Key, helper: Rc<Helper>) -> Rc<Self> {
        Rc::new(Self {
            key: RefCell::new(key),
            helper,
            feed: Rc::default(),
            processes: Processes::default(),
            boxes: Boxes::default(),
            is_started: Cell::new(false),
            changing: Mutex::new(()),
            connections: Cell::new(0),
            left: Cell::new(0),
            probing: RefCell::default(),
            token: RefCell::default(),
            sdk: Mutex::new(None),
            sizes: Arc::default(),
        })
    }

    /// Whether it has no name yet and nothing that depends on one.
    pub(super) fn can_be_renamed(&self) -> bool {
        *self.key.borrow() == Key::default() && self.boxes.is_empty()
    }

    pub(super) fn rename(&self, key: Key) {
        *self.key.borrow_mut() = key;
    }

    /// What our own program is told to use instead of the user's folders.
    pub(super) fn bases(&self) -> (PathBuf, PathBuf) {
        let folder = self.key.borrow().folder();
        let ground = &self.helper.ground;
        let below = |path: &PathBuf| path.join("desktop").join(&folder);
        (below(&ground.state), below(&ground.runtime))
    }

    pub(super) fn places(&self) -> Places {
        let (state, runtime) = self.bases();
        Places {
            state: state.join("cowork-linux"),
            runtime: runtime.join("cowork-linux"),
        }
    }

    /// Where folders of this profile's come from.
    pub(super) fn sources(&self) -> Sources {
        let ground = &self.helper.ground;
        let socket = ground.socket.parent().map(PathBuf::from);
        let own = [ground.state.clone(), ground.runtime.clone()];
        Sources {
            home: ground.home.clone(),
            allow_home: self.helper.options.allow_home,
            own: own.into_iter().chain(socket).collect(),
            app_data: self.key.borrow().data(),
            written: self.helper.written.clone(),
        }
    }

    pub(super) fn finder(&self) -> Finder {
        Finder {
            sources: self.sources(),
            blocking: self.helper.blocking.clone(),
            allow_delete: self.helper.options.allow_delete,
        }
    }

    pub(super) fn is_started(&self) -> bool {
        self.is_started.get()
    }

    /// Makes sure that boxes can be made, by making one.
    pub(super) async fn start(self: &Rc<Self>, probe: Option<String>) -> Result<(), String> {
        let _alone = self.changing.lock().await;
        if self.is_started.get() {
            return Ok(());
        }
        self.feed.state(events::begun("vm_boot"));
        let tried = launch::trial(self).await;
        self.feed.state(events::ended("vm_boot", tried.is_ok()));
        tried?;
        self.is_started.set(true);
        self.feed.state(events::CONNECTED);
        self.watch_api(probe);
        Ok(())
    }

    /// Tells whether the API answers, where the app wants to know.
    fn watch_api(self: &Rc<Self>, probe: Option<String>) {
        self.stop_probing();
        let Some(url) = probe else {
            self.feed.state(events::REACHABLE);
            return;
        };
        let feed = Rc::clone(&self.feed);
        let watching = spawn_local(async move {
            let (mut failures, mut last) = (0, None);
            loop {
                failures = match reachability::probe(&url).await {
                    true => 0,
                    false => failures + 1,
                };
                let now = match failures {
                    0 => events::REACHABLE,
                    1..MANY_FAILURES => events::PROBABLY_UNREACHABLE,
                    _ => events::UNREACHABLE,
                };
                if last.replace(now) != Some(now) {
                    feed.state(now);
                }
                sleep(BETWEEN_PROBES).await;
            }
        });
        *self.probing.borrow_mut() = Some(watching);
    }

    fn stop_probing(&self) {
        if let Some(probing) = self.probing.take() {
            probing.abort();
        }
    }

    /// Ends everything that runs; what sessions have on the disk stays.
    pub(super) async fn stop(&self) {
        let _alone = self.changing.lock().await;
        let was_started = self.is_started.replace(false);
        self.stop_probing();
        self.feed.forget_reachability();
        let live = self.processes.all();
        live.iter().for_each(|process| process.cancel());
        self.boxes.stop_all(self, GRACE).await;
        self.processes.over(&live).await;
        if was_started {
            self.feed.state(events::NOT_CONNECTED);
        }
    }

    /// Ends everything at once: nobody is left to hear of it.
    pub(super) async fn end(&self) {
        self.processes.all().iter().for_each(|it| it.cancel());
        self.boxes.stop_all(self, LAST_GRACE).await;
    }

    /// Counts a connection for as long as it is there.
    pub(super) fn presence(self: &Rc<Self>) -> Presence {
        self.connections.set(self.connections.get() + 1);
        Presence(Rc::clone(self))
    }

    pub(super) fn has_connections(&self) -> bool {
        self.connections.get() > 0
    }

    fn left_alone(self: &Rc<Self>) {
        let left = self.left.get() + 1;
        self.left.set(left);
        if self.helper.is_held_by_app {
            return;
        }
        let profile = Rc::clone(self);
        spawn_local(async move {
            sleep(ALONE).await;
            if !profile.has_connections() && profile.left.get() == left {
                telling::note("nobody has been connected for a minute: its processes are ended");
                profile.stop().await;
            }
        });
    }
}

/// A connection that belongs to a profile.
#[derive(Debug)]
pub(super) struct Presence(Rc<Profile>);

impl Drop for Presence {
    fn drop(&mut self) {
        let profile = &self.0;
        profile.connections.set(profile.connections.get() - 1);
        if profile.connections.get() == 0 {
            profile.left_alone();
        }
    }
}
