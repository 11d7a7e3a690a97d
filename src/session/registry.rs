//! Which sessions there are: those that answer, and what the others left on the disk. There is no
//! central list, so that nothing can be wrong with one.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::client::{AskError, Call};
use super::places::Places;
use super::record::Record;
use super::talk::Seen;
use crate::policy::SessionId;

/// How many are asked at the same time, and how long their answers may take together.
const AT_ONCE: usize = 100;
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Running,
    Ended,
    /// Its supervisor is gone and did not say how it ended.
    Crashed,
    /// Nothing runs; its home is there for the next time.
    Kept,
    /// What it left cannot be read.
    Damaged,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Ended => "ended",
            Self::Crashed => "crashed",
            Self::Kept => "kept",
            Self::Damaged => "damaged",
        }
    }
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Known {
    pub id: SessionId,
    pub state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<Record>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen: Option<Seen>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("cannot find a session called `{0}`")]
    None(String),
    #[error("cannot tell which session is meant by `{0}`, because it could be {1}")]
    Several(String, String),
}

impl FindError {
    pub fn help(&self) -> Option<String> {
        Some(match self {
            Self::None(_) => "`cowork-linux ls -a` lists all there are".into(),
            Self::Several(..) => "write more of its name".into(),
        })
    }
}

impl Places {
    /// Everything that is known, by id.
    pub fn list(&self) -> Vec<Known> {
        self.ids()
            .chunks(AT_ONCE)
            .flat_map(|some| self.look_at(some))
            .collect()
    }

    /// The names of all that are known, without asking any.
    pub fn ids(&self) -> Vec<SessionId> {
        let names = self.listening().into_iter().chain(self.left_behind());
        let all: BTreeSet<String> = names.collect();
        let ids = all.iter().filter_map(|name| SessionId::parse(name).ok());
        ids.collect()
    }

    /// Whether somebody listens; nothing is asked.
    pub fn is_running(&self, id: &SessionId) -> bool {
        super::socket::has_listener(&self.runtime, id)
    }

    /// One session as it is.
    pub fn look(&self, id: &SessionId) -> Known {
        self.known(
            id,
            Call::to(&self.runtime, id).and_then(|call| call.inspect()),
        )
    }

    /// Several as they are. All are asked before any is listened to, so that those who do not
    /// answer are waited for together.
    fn look_at(&self, ids: &[SessionId]) -> Vec<Known> {
        let asked = ids.iter().map(|id| {
            let call = Call::to(&self.runtime, id)?;
            call.ask_to_inspect()?;
            Ok(call)
        });
        let asked: Vec<Result<Call, AskError>> = asked.collect();
        let until = Instant::now() + PATIENCE;
        let answers = asked.into_iter();
        let answers = answers.map(|call| call.and_then(|call| call.inspected(until)));
        ids.iter()
            .zip(answers)
            .map(|(id, answer)| self.known(id, answer))
            .collect()
    }

    fn known(&self, id: &SessionId, answer: Result<Seen, AskError>) -> Known {
        let mut known = Known {
            id: id.clone(),
            state: State::Kept,
            record: None,
            seen: None,
            trouble: None,
        };
        if let Ok(mut seen) = answer {
            known.state = State::Running;
            known.record = seen.record.take();
            known.seen = Some(seen);
            return known;
        }
        let folder = match self.own_folder(id) {
            Ok(folder) => folder,
            Err(error) => {
                known.state = State::Damaged;
                known.trouble = Some(error.to_string());
                return known;
            }
        };
        match Record::read(&folder) {
            Ok(record) => {
                known.state = match (&record.outcome, record.supervisor.is_alive()) {
                    (Some(_), _) => State::Ended,
                    (None, true) => State::Running,
                    (None, false) => State::Crashed,
                };
                known.record = Some(record);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if fs::symlink_metadata(folder).is_err() {
                    known.state = State::Crashed;
                }
            }
            Err(error) => {
                known.state = State::Damaged;
                known.trouble = Some(error.to_string());
            }
        }
        known
    }

    /// The session that a name or the beginning of one stands for.
    pub fn find(&self, name: &str) -> Result<SessionId, FindError> {
        let exact = SessionId::parse(name).ok();
        let is_there = |id: &SessionId| {
            let there = |path: PathBuf| fs::symlink_metadata(path).is_ok();
            self.own_socket(id).is_ok_and(there) || there(self.folder(id))
        };
        if let Some(id) = exact.filter(is_there) {
            return Ok(id);
        }
        let mut ids = self.ids();
        ids.retain(|id| id.as_str().starts_with(name));
        match ids.as_slice() {
            [] => Err(FindError::None(name.to_owned())),
            [id] => Ok(id.clone()),
            several => {
                let names: Vec<_> = several.iter().take(5).map(SessionId::as_str).collect();
                Err(FindError::Several(name.to_owned(), names.join(" or ")))
            }
        }
    }

    /// Removes sockets that nobody listens behind; those that were removed.
    pub fn sweep(&self) -> Vec<SessionId> {
        let mut swept = Vec::new();
        for name in self.listening() {
            let Ok(id) = SessionId::parse(&name) else {
                continue;
            };
            if self.sweep_one(&id) {
                swept.push(id);
            }
        }
        swept
    }

    /// The same for one session. What is no socket was put there by somebody, and is theirs.
    pub(super) fn sweep_one(&self, id: &SessionId) -> bool {
        let Ok(path) = self.own_socket(id) else {
            return false;
        };
        let found = fs::symlink_metadata(&path);
        if !found.is_ok_and(|found| found.file_type().is_socket()) {
            return false;
        }
        let dead = match super::socket::call(&self.runtime, id) {
            Err(error) => error.raw_os_error() == Some(libc::ECONNREFUSED),
            Ok(_) => false,
        };
        dead && fs::remove_file(path).is_ok()
    }
}
