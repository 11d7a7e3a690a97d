//! Folders that come and go while a session runs. Each change is begun here, made by a process of
//! its own and answered when that has ended, so that a folder that never answers costs whoever
//! asked for it some seconds, and everybody else nothing.

use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};

use super::idlers::NO_ANSWER;
use super::obstacles::why_not_changed;
use super::record::RecordedMount;
use super::supervise::Life;
use super::talk::Say;
use crate::plan::point;
use crate::policy::InsidePath;
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
    /// In the place of this one.
    Exchange(Box<LiveMount>),
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

impl Aim {
    /// What the place of is taken.
    fn old(self) -> Option<LiveMount> {
        match self {
            Self::Exchange(old) => Some(*old),
            _ => None,
        }
    }
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

    /// What is coming or going.
    pub(super) fn mounts(&self) -> impl Iterator<Item = &LiveMount> {
        self.0.iter().map(|begun| &begun.mount)
    }

    /// Whether something is changing at this place, above it or below it.
    pub(super) fn touch(&self, place: &InsidePath) -> bool {
        let mut places = self.0.iter().map(|begun| &begun.mount.point.at);
        places.any(|other| other.starts_with(place) || place.starts_with(other))
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
    pub(super) fn mount(
        &mut self,
        client: usize,
        wanted: LiveMount,
        replace: bool,
        running: &Running,
    ) {
        let aim = match self.in_the_way_of(&wanted, replace) {
            Err(why) => return self.answer(client, &Say::Refused { why }),
            Ok(None) => Aim::Show,
            Ok(Some(old)) if differs_in_mode_alone(&old, &wanted) => {
                return self.change_mode(client, old, wanted, running);
            }
            Ok(Some(old)) => Aim::Exchange(Box::new(old)),
        };
        self.begin_change(client, wanted, aim, running);
    }

    /// Another mode that only pid 1 has to know of.
    fn change_mode(&mut self, client: usize, old: LiveMount, wanted: LiveMount, running: &Running) {
        let mount = LiveMount {
            mode: wanted.mode,
            name: wanted.name,
            despite_overlap: wanted.despite_overlap,
            ..old.clone()
        };
        let say = match running.keeps(&mount) {
            Ok(()) => {
                let (overlaps, replaces) = (self.overlapping(&mount), Some(noted(&old).source));
                self.diary.mounted(&noted(&mount), overlaps, replaces);
                let place = mount.point.at.clone();
                self.mounted.retain(|other| other.point.at != place);
                self.mounted.push(mount);
                Say::Done
            }
            Err(_) => Say::Refused {
                why: NO_ANSWER.to_owned(),
            },
        };
        self.answer(client, &say);
    }

    pub(super) fn unmount(&mut self, client: usize, name: &str, force: bool, running: &Running) {
        let known = point(self.plan, name).ok().and_then(|point| {
            let mut mounted = self.mounted.iter();
            mounted.find(|mount| mount.point.at == point.at).cloned()
        });
        let why = match known {
            None => format!("nothing called `{name}` was mounted while it ran"),
            Some(mount) if self.changes.touch(&mount.point.at) => {
                format!("`{name}` is being changed already; ask again")
            }
            Some(mount) => match self.first_in(&mount.point.at) {
                Some(inner) if !force => {
                    let inner = &inner.name;
                    format!(
                        "`{inner}` is mounted in `{name}`: unmount that first; or --force takes away both"
                    )
                }
                _ => return self.begin_change(client, mount, Aim::Hide { force }, running),
            },
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
            Aim::Exchange(old) => running.exchange(self.plan, old, &mount),
            Aim::Hide { force } => running.unmount(self.plan, &mount, *force),
            Aim::TakeBack { .. } => running.unmount(self.plan, &mount, true),
        };
        let change = change.map_err(|error| why_not_changed(&error, &mount, false))?;
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
        let is_taking_back = matches!(begun.aim, Aim::TakeBack { .. });
        let refused = |why: &str| {
            Some(Say::Refused {
                why: why.to_owned(),
            })
        };
        match (begun.aim, result) {
            (aim @ (Aim::Show | Aim::Exchange(_)), Changed::Done(trees)) => {
                let old = aim.old();
                if let Some(old) = &old {
                    mount.over = lower(old);
                    // Files may be open through those that are closed to others now.
                    mount.doors.clone_from(&old.doors);
                }
                if running.has_shown(&mut mount, trees).is_err() {
                    return self.take_back(client, mount, NO_ANSWER.to_owned(), 1, running);
                }
                let overlaps = self.overlapping(&mount);
                let replaces = old.map(|old| noted(&old).source);
                self.diary.mounted(&noted(&mount), overlaps, replaces);
                let place = mount.point.at.clone();
                self.mounted.retain(|other| other.point.at != place);
                self.mounted.push(mount);
                Some(Say::Done)
            }
            (aim @ (Aim::Show | Aim::Exchange(_)), Changed::Vanished { in_box }) => {
                let why = match begun.is_late {
                    true => "the folder does not answer; is its disk or its network gone?",
                    false => "the process that was to show it was killed; ask again",
                };
                if !in_box {
                    return refused(why);
                }
                let mut why = why.to_owned();
                if let Some(old) = aim.old() {
                    mount.over = lower(&old);
                    why.push_str(" (what was there before is gone too)");
                }
                self.take_back(client, mount, why, 1, running)
            }
            (Aim::Hide { .. }, Changed::Done(_)) => {
                self.is_gone(&mount.point.at, running);
                Some(Say::Done)
            }
            (_, Changed::Failed { error, in_box }) if !is_taking_back => {
                refused(&why_not_changed(&error, &mount, in_box))
            }
            (Aim::Hide { .. }, Changed::Vanished { .. }) => {
                refused("the process that was to take it away was killed; ask again")
            }
            (Aim::TakeBack { why, .. }, Changed::Done(_)) => {
                self.is_gone(&mount.point.at, running);
                refused(&why)
            }
            (Aim::TakeBack { why, tries }, _) if tries < TRIES => {
                self.take_back(client, mount, why, tries + 1, running)
            }
            (Aim::TakeBack { why, .. }, _) => refused(&out_of_hand(&why)),
            (Aim::Show | Aim::Exchange(_) | Aim::Hide { .. }, Changed::Failed { .. }) => None,
        }
    }

    /// Nothing is there any more, and nothing of what was mounted in it.
    fn is_gone(&mut self, place: &InsidePath, running: &Running) {
        let is_in = |mount: &LiveMount| mount.point.at.starts_with(place);
        let (gone, rest) = std::mem::take(&mut self.mounted)
            .into_iter()
            .partition(is_in);
        self.mounted = rest;
        let gone: Vec<LiveMount> = gone;
        for mount in gone {
            let _ = running.close_door(&mount);
            self.diary.unmounted(&mount.place());
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
}

/// The numbers of a mount and of those under it, for the one that takes its place.
fn lower(old: &LiveMount) -> Vec<u64> {
    old.over.iter().copied().chain(old.shown).collect()
}

/// Whether both show the same in the same place, and pid 1 does the writing in either.
fn differs_in_mode_alone(old: &LiveMount, wanted: &LiveMount) -> bool {
    (&old.source, old.seen) == (&wanted.source, wanted.seen)
        && old.mode.is_guarded()
        && wanted.mode.is_guarded()
        && old.mode != wanted.mode
}

/// A mount as it is told.
pub(super) fn noted(mount: &LiveMount) -> RecordedMount {
    RecordedMount {
        source: mount.source.to_string_lossy().into_owned(),
        place: mount.place(),
        mode: mount.mode.word().to_owned(),
    }
}

fn out_of_hand(why: &str) -> String {
    format!("{why}; it may be seen in the box all the same: end the session to be sure")
}
