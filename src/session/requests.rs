//! What is asked of a running session, and done by its supervisor.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::control::Control;
use super::record::RecordedMount;
use super::supervise::Life;
use super::talk::{Say, Seen};
use super::wish::Wish;
use crate::plan::{BindMode, Place};
use crate::sandbox::{LiveMount, Running};

/// Nobody waits longer than a day for a program to end.
const MOST_GRACE_MS: u64 = 24 * 3600 * 1000;
/// What is shown in one piece to whoever attaches.
const PIECE: usize = 32 << 10;

impl Life<'_> {
    pub(super) fn tell(&mut self, exec: u32, say: &Say) {
        if let Some(control) = &mut self.control {
            control.tell(exec, say);
        }
    }

    /// Those who ask something are answered, and what they wish is done.
    pub(super) fn serve(&mut self, asked: &[bool], running: &Running) -> io::Result<()> {
        let Some(control) = &mut self.control else {
            return Ok(());
        };
        self.limits.touch();
        for wish in control.serve(asked, self.plan, running)? {
            match wish {
                Wish::Inspect(client) => self.show_to(client, running),
                Wish::Signal(client, _) if !self.has_program => {
                    let why = "no program of its own runs there".to_owned();
                    self.answer(client, &Say::Refused { why });
                }
                Wish::Signal(client, signal) => {
                    self.diary.signalled(signal);
                    // A box that is gone by now says so itself.
                    let _ = running.signal(signal);
                    self.answer(client, &Say::Done);
                }
                Wish::Stop { grace_ms } => self.stop(running, grace_ms),
                Wish::Attach(client) => self.attach(client),
                Wish::Limit(client, wanted) => {
                    let done = self.limit(&wanted, running);
                    self.answer_done(client, done);
                }
                Wish::Pause { client, paused } => {
                    let done = self.pause(paused, running).map(|()| None);
                    self.answer_done(client, done);
                }
                Wish::Mount(client, wanted) => self.mount(client, wanted, running),
                Wish::Unmount {
                    client,
                    name,
                    force,
                } => self.unmount(client, &name, force, running),
                Wish::Input(bytes) => {
                    self.outputs.iter_mut().for_each(|it| it.type_in(&bytes));
                }
                Wish::Resize { rows, columns } => {
                    self.outputs.iter().for_each(|it| it.resize(rows, columns));
                }
                Wish::Executed { exec, program } => self.diary.executed(exec, program),
            }
        }
        Ok(())
    }

    fn answer_done(&mut self, client: usize, done: Result<Option<String>, String>) {
        let say = match done {
            Ok(None) => Say::Done,
            Ok(Some(note)) => Say::Noted { note },
            Err(why) => Say::Refused { why },
        };
        self.answer(client, &say);
    }

    /// Shows a folder; the answer comes when every process in the box sees it.
    fn mount(&mut self, client: usize, wanted: LiveMount, running: &Running) {
        let answer = match self.in_the_way_of(&wanted) {
            Some(why) => Say::Refused { why },
            None => match running.mount(self.plan, &wanted) {
                Ok(()) => {
                    self.diary.mounted(&noted(&wanted));
                    self.mounted.push(wanted);
                    Say::Done
                }
                Err(error) => Say::Refused {
                    why: why_not_mounted(&error),
                },
            },
        };
        self.answer(client, &answer);
    }

    /// What is there already, by name or by overlapping: a guard knows a file by its name below
    /// one folder.
    fn in_the_way_of(&self, wanted: &LiveMount) -> Option<String> {
        let at_start = self.record.mounts.iter();
        let later: Vec<_> = self.mounted.iter().map(noted).collect();
        for mount in at_start.chain(&later) {
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

    fn unmount(&mut self, client: usize, name: &str, force: bool, running: &Running) {
        let at = self.mounted.iter().position(|mount| mount.name == name);
        let answer = match at.map(|at| (at, running.unmount(self.plan, &self.mounted[at], force))) {
            None => Say::Refused {
                why: format!("nothing called `{name}` was mounted while it ran"),
            },
            Some((at, Ok(()))) => {
                let gone = self.mounted.remove(at);
                self.diary.unmounted(&gone.place());
                Say::Done
            }
            Some((_, Err(error))) => Say::Refused {
                why: match error.raw_os_error() {
                    Some(libc::EBUSY) => format!("a program uses `{name}`; --force takes it away"),
                    _ => format!("`{name}` cannot be taken away: {error}"),
                },
            },
        };
        self.answer(client, &answer);
    }

    fn attach(&mut self, client: usize) {
        let (Some(outputs), Some(control)) = (&self.outputs, &mut self.control) else {
            let why = "its program is in front of whoever started it".to_owned();
            return self.answer(client, &Say::Refused { why });
        };
        let terminal = outputs.has_terminal();
        control.answer(client, &Say::Attached { terminal });
        for (stream, bytes) in outputs.recent() {
            for piece in bytes.chunks(PIECE) {
                control.show(client, stream, piece);
            }
        }
    }

    /// Keeps what can be known when nobody is there to ask; a session in a room leaves nothing.
    pub(super) fn write_record(&self, folder: &Path) -> io::Result<()> {
        let place = self.plan.session.as_ref().map(|session| &session.place);
        match place {
            Some(Place::Own(_)) => self.record.write(folder),
            _ => Ok(()),
        }
    }

    fn answer(&mut self, client: usize, say: &Say) {
        if let Some(control) = &mut self.control {
            control.answer(client, say);
        }
    }

    fn show_to(&mut self, client: usize, running: &Running) {
        let Some(control) = &mut self.control else {
            return;
        };
        let seen = Seen {
            record: Some(self.record.clone()),
            pid: running.pid().as_raw(),
            execs: control.execs(),
            plan: serde_json::to_value(self.plan).unwrap_or_default(),
            refused: self.diary.refusals.all().to_vec(),
            mounted: self.mounted.iter().map(noted).collect(),
            paused: self.limits.is_paused,
            limits: self.limits.told(),
        };
        control.inspected(client, seen);
    }

    /// Asks what runs to end; what has not by then is ended.
    pub(super) fn stop(&mut self, running: &Running, grace_ms: u64) {
        self.is_stopping = true;
        self.diary.asked_to_stop();
        let until = Instant::now() + Duration::from_millis(grace_ms.min(MOST_GRACE_MS));
        self.end_at = Some(self.end_at.map_or(until, |at| at.min(until)));
        // A box that is gone by now says so itself.
        let execs = self.control.iter().flat_map(Control::execs);
        for exec in execs {
            let _ = running.signal_exec(exec.exec, libc::SIGTERM);
        }
        if self.has_program {
            let _ = running.signal(libc::SIGTERM);
        }
        self.stop_if_asked(running);
    }

    /// A box that stays has to be told when its last program has ended.
    pub(super) fn stop_if_asked(&mut self, running: &Running) {
        let has_execs = self.control.as_ref().is_some_and(Control::has_execs);
        if self.is_stopping && !self.has_program && !has_execs {
            let _ = running.stop();
        }
    }
}

/// A mount as it is told.
fn noted(mount: &LiveMount) -> RecordedMount {
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

fn why_not_mounted(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ESTALE) => "the folder was replaced by another one meanwhile".to_owned(),
        Some(libc::ELOOP) => "a link came in the way meanwhile".to_owned(),
        Some(libc::EEXIST) => "there is something of that name in the box".to_owned(),
        _ => format!("it cannot be shown: {error}"),
    }
}
