//! Folders that come and go while a session runs. Each change is begun here, made by a process of
//! its own and answered when that has ended, so that a folder that never answers costs whoever
//! asked for it some seconds, and everybody else nothing.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};

use super::idlers::NO_ANSWER;
use super::record::RecordedMount;
use super::supervise::Life;
use super::talk::Say;
use crate::plan::BindMode;
use crate::sandbox::{Change, Changed, LiveMount, Running};

/// How long a folder may take to answer. Whoever asks waits longer than this.
pub(super) const LONGEST: Duration = Duration::from_secs(5);
/// As many as may be under way at the same time.
const MOST: usize = 8;
/// How often it is tried to take back what was interrupted.
const TRIES: u32 = 3;

/// Changes that have begun and not ended.
#[derive(Debug, Default)]
pub(super) struct Changes(Vec<Begun>);

#[derive(Debug)]
struct Begun {
    /// Who hears of it.
    client: u64,
    mount: LiveMount,
    aim: Aim,
    change: Change,
    until: Instant,
    is_late: bool,
}

#[derive(Debug)]
enum Aim {
    Show,
    Hide {
        force: bool,
    },
    /// Nobody knows how far it had come: whatever there is of it is taken away again, and then it
    /// is said why.
    TakeBack {
        why: String,
        tries: u32,
    },
}

impl Changes {
    pub(super) fn interests<'a>(&'a self, out: &mut Vec<PollFd<'a>>) {
        let processes = self.0.iter().map(|begun| begun.change.process());
        out.extend(processes.map(|process| PollFd::new(process, PollFlags::POLLIN)));
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        let waited_for = self.0.iter().filter(|begun| !begun.is_late);
        waited_for.map(|begun| begun.until).min()
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|begun| begun.mount.name == name)
    }

    /// Ends those that take too long, and gives back those that have ended.
    fn ended(&mut self) -> Vec<(Begun, Changed)> {
        let mut ended = Vec::new();
        let mut at = 0;
        while let Some(begun) = self.0.get_mut(at) {
            if let Some(result) = begun.change.result() {
                ended.push((self.0.swap_remove(at), result));
                continue;
            }
            if !begun.is_late && begun.until <= Instant::now() {
                begun.is_late = true;
                begun.change.kill();
            }
            at += 1;
        }
        ended
    }
}

impl Life<'_> {
    /// Begins to show a folder; the answer comes when every process in the box sees it.
    pub(super) fn mount(&mut self, client: usize, wanted: LiveMount, running: &Running) {
        match self.in_the_way_of(&wanted) {
            Some(why) => self.answer(client, &Say::Refused { why }),
            None => self.begin_change(client, wanted, Aim::Show, running),
        }
    }

    pub(super) fn unmount(&mut self, client: usize, name: &str, force: bool, running: &Running) {
        let known = self.mounted.iter().find(|mount| mount.name == name);
        let why = match known.cloned() {
            None => format!("nothing called `{name}` was mounted while it ran"),
            Some(_) if self.changes.has(name) => format!("`{name}` is being taken away already"),
            Some(mount) => return self.begin_change(client, mount, Aim::Hide { force }, running),
        };
        self.answer(client, &Say::Refused { why });
    }

    fn begin_change(&mut self, client: usize, mount: LiveMount, aim: Aim, running: &Running) {
        let Some(number) = self.control.as_mut().and_then(|it| it.keep(client)) else {
            return;
        };
        let begun = match self.changes.0.len() < MOST {
            true => self.start_change(number, mount, aim, running),
            false => Err("too many changes are under way; ask again".to_owned()),
        };
        if let (Err(why), Some(control)) = (begun, &mut self.control) {
            control.answer_at_last(number, &Say::Refused { why });
        }
    }

    fn start_change(
        &mut self,
        client: u64,
        mount: LiveMount,
        aim: Aim,
        running: &Running,
    ) -> Result<(), String> {
        let change = match &aim {
            Aim::Show => running.mount(self.plan, &mount),
            Aim::Hide { force } => running.unmount(self.plan, &mount, *force),
            Aim::TakeBack { .. } => running.unmount(self.plan, &mount, true),
        };
        let change = change.map_err(|error| why_not_changed(&error, &mount.name))?;
        self.changes.0.push(Begun {
            client,
            mount,
            aim,
            change,
            until: Instant::now() + LONGEST,
            is_late: false,
        });
        Ok(())
    }

    /// Answers for what has been done since the last time.
    pub(super) fn keep_changes(&mut self, running: &Running) {
        for (begun, result) in self.changes.ended() {
            let client = begun.client;
            let answer = self.outcome_of(begun, result, running);
            if let (Some(say), Some(control)) = (answer, &mut self.control) {
                control.answer_at_last(client, &say);
            }
        }
    }

    /// What is to be answered; nothing yet, when something is to be taken back first.
    fn outcome_of(&mut self, begun: Begun, result: Changed, running: &Running) -> Option<Say> {
        let Begun {
            client, mut mount, ..
        } = begun;
        let refused = |why: &str| {
            Some(Say::Refused {
                why: why.to_owned(),
            })
        };
        match (begun.aim, result) {
            (Aim::Show, Changed::Done(door)) => {
                let opened = door.map_or(Ok(()), |door| running.open_door(&mut mount, door));
                if opened.is_err() {
                    return self.take_back(client, mount, NO_ANSWER.to_owned(), 1, running);
                }
                self.diary.mounted(&noted(&mount));
                self.mounted.push(mount);
                Some(Say::Done)
            }
            (Aim::Show, Changed::Vanished) => {
                let why = match begun.is_late {
                    true => "the folder does not answer; is its disk or its network gone?",
                    false => "the process that was to show it was killed; ask again",
                };
                self.take_back(client, mount, why.to_owned(), 1, running)
            }
            (Aim::Hide { .. }, Changed::Done(_)) => {
                let _ = running.close_door(&mount);
                self.mounted.retain(|other| other.name != mount.name);
                self.diary.unmounted(&mount.place());
                Some(Say::Done)
            }
            (Aim::Show | Aim::Hide { .. }, Changed::Failed(error)) => {
                refused(&why_not_changed(&error, &mount.name))
            }
            (Aim::Hide { .. }, Changed::Vanished) => {
                refused("the process that was to take it away was killed; ask again")
            }
            (Aim::TakeBack { why, .. }, Changed::Done(_)) => refused(&why),
            (Aim::TakeBack { why, tries }, _) if tries < TRIES => {
                self.take_back(client, mount, why, tries + 1, running)
            }
            (Aim::TakeBack { why, .. }, _) => refused(&out_of_hand(&why)),
        }
    }

    fn take_back(
        &mut self,
        client: u64,
        mount: LiveMount,
        why: String,
        tries: u32,
        running: &Running,
    ) -> Option<Say> {
        let aim = Aim::TakeBack {
            why: why.clone(),
            tries,
        };
        let begun = self.start_change(client, mount, aim, running);
        begun.err().map(|_| Say::Refused {
            why: out_of_hand(&why),
        })
    }

    /// What is there already, by name or by overlapping: a guard knows a file by its name below
    /// one folder.
    fn in_the_way_of(&self, wanted: &LiveMount) -> Option<String> {
        let at_start = self.record.mounts.iter().cloned();
        let coming = self.changes.0.iter().map(|begun| &begun.mount);
        let later = self.mounted.iter().chain(coming).map(noted);
        for mount in at_start.chain(later) {
            if mount.place == wanted.place() {
                return Some(format!(
                    "{} is there already: {}",
                    mount.place, mount.source
                ));
            }
            let (one, other) = (Path::new(&mount.source), wanted.source.as_path());
            let both_read = mount.mode == "ro" && wanted.mode == BindMode::Read;
            if (one.starts_with(other) || other.starts_with(one)) && !both_read {
                return Some(format!(
                    "{} is shared already, and what is written through one would go past the \
                     guard of the other",
                    mount.source
                ));
            }
        }
        None
    }
}

/// A mount as it is told.
pub(super) fn noted(mount: &LiveMount) -> RecordedMount {
    let mode = if mount.mode == BindMode::Read {
        "ro"
    } else {
        "rw"
    };
    RecordedMount {
        source: mount.source.to_string_lossy().into_owned(),
        place: mount.place(),
        mode: mode.to_owned(),
    }
}

fn out_of_hand(why: &str) -> String {
    format!("{why}; it may be seen in the box all the same: end the session to be sure")
}

fn why_not_changed(error: &io::Error, name: &str) -> String {
    match error.raw_os_error() {
        Some(libc::ESTALE) => "the folder was replaced by another one meanwhile".to_owned(),
        Some(libc::ELOOP) => "a link came in the way meanwhile".to_owned(),
        Some(libc::EEXIST) => "there is something of that name in the box".to_owned(),
        Some(libc::EINTR) => "a process that was to do it was killed; ask again".to_owned(),
        Some(libc::EBUSY) => format!("a program uses `{name}`; --force takes it away"),
        _ => format!("`{name}` cannot be changed: {error}"),
    }
}
