//! What is kept of a session on the disk, so that it can be listed when nobody is there to ask.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::Outcome;
use crate::plan::{BuildStep, OwnFolder, Place, Plan};
use crate::policy::NetMode;

const NAME: &str = "record.json";
const LONGEST: u64 = 256 << 10;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Record {
    pub id: String,
    pub program: Vec<String>,
    pub mounts: Vec<RecordedMount>,
    /// Its home and its outputs, if they are kept in a place of their own on the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<RecordedMount>,
    pub network: String,
    /// Unix milliseconds.
    pub started: u64,
    pub detached: bool,
    pub supervisor: Process,
    /// Unix milliseconds, and how, once it has.
    pub ended: Option<u64>,
    pub outcome: Option<Outcome>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedMount {
    pub source: String,
    pub place: String,
    pub mode: String,
}

/// A process that cannot be taken for another one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    /// In the kernel's clock ticks since it started.
    pub since: u64,
}

impl Process {
    pub fn myself() -> Self {
        let pid = nix::unistd::getpid().as_raw();
        Self {
            pid,
            since: start_time(pid).unwrap_or(0),
        }
    }

    pub fn is_alive(&self) -> bool {
        start_time(self.pid) == Some(self.since)
    }
}

fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything but the last closing parenthesis.
    let after = &stat[stat.rfind(')')? + 2..];
    let mut fields = after.split(' ');
    // Dead, and only not yet collected by its parent.
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

impl Record {
    pub fn of(plan: &Plan, detached: bool) -> Self {
        let lossy = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
        let mounts = plan.build.iter().filter_map(|step| match step {
            BuildStep::Bind { from, at, mode, .. } => Some(RecordedMount {
                source: lossy(from.as_os_str()),
                place: at.to_string(),
                mode: mode.word().to_owned(),
            }),
            _ => None,
        });
        Self {
            id: plan
                .session
                .as_ref()
                .map_or(String::new(), |it| it.id.to_string()),
            program: shortened(plan.program.argv.iter().map(|word| lossy(word))),
            mounts: mounts.collect(),
            own: own_folders(plan),
            network: match plan.network {
                NetMode::None => "none",
                NetMode::Allow => "allow",
                NetMode::Host => "host",
            }
            .to_owned(),
            started: now(),
            detached,
            supervisor: Process::myself(),
            ended: None,
            outcome: None,
        }
    }

    /// Writes it whole or not at all.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let draft = folder.join("record.json.new");
        // Left by one that was killed; or something that would hold us up.
        let _ = fs::remove_file(&draft);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_data()?;
        fs::rename(draft, folder.join(NAME))
    }

    /// What was written there; an error says what is wrong with the file.
    pub fn read(folder: &Path) -> io::Result<Self> {
        let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(folder.join(NAME));
        let file = opened.map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP) => wrong("it is a symbolic link"),
            Some(libc::ENXIO) => wrong("it is not a file"),
            _ => error,
        })?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(wrong("it is not a file"));
        }
        if found.uid() != nix::unistd::getuid().as_raw() {
            return Err(wrong("it belongs to somebody else"));
        }
        let mut text = Vec::new();
        File::take(file, LONGEST).read_to_end(&mut text)?;
        serde_json::from_slice(&text).map_err(|error| wrong(&error.to_string()))
    }
}

/// What a session with a name has of the host's besides what is shared with it.
fn own_folders(plan: &Plan) -> Vec<RecordedMount> {
    let Some(Place::Own(directory)) = plan.session.as_ref().map(|session| &session.place) else {
        return Vec::new();
    };
    let steps = plan.build.iter().filter_map(|step| match step {
        BuildStep::Own { folder, at, .. } if *folder != OwnFolder::Tmp => Some((folder, at)),
        _ => None,
    });
    let steps = steps.map(|(folder, at)| RecordedMount {
        source: directory.join(folder.path()).to_string_lossy().into_owned(),
        place: at.to_string(),
        mode: "rw".to_owned(),
    });
    steps.collect()
}

/// As many of a program's words as one needs to know it again: the kernel takes megabytes.
pub(super) fn shortened(words: impl Iterator<Item = String>) -> Vec<String> {
    const MOST: usize = 4 << 10;
    let mut room = MOST;
    let mut kept = Vec::new();
    for mut word in words {
        if word.len() >= room {
            let end = (0..=room).rev().find(|at| word.is_char_boundary(*at));
            word.truncate(end.unwrap_or(0));
            kept.push(word + "...");
            break;
        }
        room -= word.len() + 1;
        kept.push(word);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_no_other_is_taken_for_it() {
        let me = Process::myself();
        assert!(me.since > 0 && me.is_alive());
        let other = Process {
            since: me.since + 1,
            ..me
        };
        assert!(!other.is_alive());
    }
}
