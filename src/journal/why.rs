//! Answers `why PATH|HOST|SYSCALL` from journals: what was refused, by which rule, what would allow
//! it. Where there is nothing, it says what could have been seen, what not, and what to type.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use super::asked::{Asked, lies_in};
use super::calls;
use super::entry::{Entry, MountNote, RefusalKind, What};
use super::folder::list;
use super::read::Verdict;
use super::tell::look;
use super::when::{ago, stamp, time};
use crate::policy::SessionId;
use crate::policy::guard::KEEP;

/// How many different refusals are told of; older ones are only counted.
const MOST: usize = 20;

/// How many mounts of a run are kept in mind; a file from elsewhere may name any number.
const MOUNTS: usize = 256;

const TO_TYPE: [&str; 2] = [
    "To see what a box has before it starts, add --dry-run to `cowork-linux run`; `cowork-linux \
     policy show --explain` says which layer set each value.",
    "To see every refusal as the program meets it, run it under strace in the box: `cowork-linux \
     run --seccomp debug ... -- strace -f PROGRAM`.",
];
const FILES: &str = "Of files, what a guard refuses is seen and written down. A read-only folder, a missing one and \
     Landlock answer the program itself (EROFS, ENOENT, EACCES) and nobody else is told; since \
     Linux 6.15 the kernel's audit log can have Landlock's refusals, for whoever may read it.";
const HOSTS: &str = "Of the network, what is refused by name is seen and written down. Where there is no network at \
     all, the kernel answers the program itself (ENETUNREACH) and nobody else is told.";
const CALLS: &str = "Of system calls, what the filter refuses with EPERM is seen and written down, where guards are \
     on. Nobody but the program is told of what it answers as a kernel without the call would \
     (ENOSYS and the like), of set-user-ID bits and devices refused to chmod, open and mknod, and \
     of what the kernel refuses by itself.";

/// What tells one refusal from another. Files from elsewhere may hold many: they are found by it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Refused {
    id: String,
    kind: RefusalKind,
    object: String,
    rule: String,
    allow: String,
    program: Option<String>,
}

/// How often it happened, and when for the last time.
#[derive(Debug, Clone, Copy, Default)]
struct Often {
    count: u64,
    last: u64,
}

/// What a run had, as far as its journal says.
#[derive(Debug, Default)]
struct Had {
    started: u64,
    mounts: Vec<MountNote>,
    network: String,
    layers: Vec<String>,
}

impl Had {
    fn note(&mut self, entry: &Entry) {
        match &entry.what {
            What::Start {
                mounts,
                network,
                layers,
                ..
            } => {
                *self = Self {
                    started: entry.at,
                    mounts: mounts.clone(),
                    network: network.clone(),
                    layers: layers.clone(),
                };
            }
            What::Mount {
                source,
                place,
                mode,
                ..
            } if self.mounts.len() < MOUNTS => {
                // It may have taken the place of another.
                self.mounts.retain(|mount| mount.place != *place);
                self.mounts.push(MountNote {
                    source: source.clone(),
                    place: place.clone(),
                    mode: mode.clone(),
                });
            }
            What::Unmount { place } => self.mounts.retain(|mount| mount.place != *place),
            _ => {}
        }
    }
}

/// Sentences about everything that journals in `folder`, or one session's, have on `object`. They
/// hold no control characters.
pub fn why(folder: &Path, session: Option<&SessionId>, object: &str) -> io::Result<Vec<String>> {
    let asked = Asked::about(object);
    let mut refused = BTreeMap::new();
    let mut newest: Option<(SessionId, Had)> = None;
    let mut broken = Vec::new();
    let mut number = 0;
    for found in list(folder)? {
        if found.is_aside || session.is_some_and(|id| *id != found.id) {
            continue;
        }
        let mut had = Had::default();
        let seen = look(&found.path, &mut |entry| {
            had.note(&entry);
            collect(&mut refused, &found.id, &asked, &had.mounts, &entry);
        });
        let Some(seen) = seen else { continue };
        number += 1;
        if matches!(
            seen.verdict,
            Verdict::Tampered { .. } | Verdict::Foreign { .. }
        ) {
            broken.push(format!(
                "The journal of {} cannot be relied on: {}.",
                found.id, seen.verdict
            ));
        }
        let is_newer = newest
            .as_ref()
            .is_none_or(|(_, other)| other.started <= had.started);
        if had.started > 0 && is_newer {
            newest = Some((found.id, had));
        }
    }
    let mut said = match refused.is_empty() {
        false => answer(refused, SystemTime::now()),
        true => nothing(&asked, session, number, newest),
    };
    said.extend(broken);
    Ok(said.iter().map(|line| visible(line)).collect())
}

fn collect(
    refused: &mut BTreeMap<Refused, Often>,
    id: &SessionId,
    asked: &Asked<'_>,
    mounts: &[MountNote],
    entry: &Entry,
) {
    let What::Refusal {
        kind,
        object,
        rule,
        allow,
        program,
        count,
    } = &entry.what
    else {
        return;
    };
    if !asked.is_met_by(*kind, object, mounts) {
        return;
    }
    let same = Refused {
        id: id.to_string(),
        kind: *kind,
        object: object.clone(),
        rule: rule.clone(),
        allow: allow.clone(),
        program: program.clone(),
    };
    let often = refused.entry(same).or_default();
    often.count = often.count.saturating_add(*count);
    often.last = often.last.max(entry.at);
}

fn answer(refused: BTreeMap<Refused, Often>, now: SystemTime) -> Vec<String> {
    let mut refused: Vec<(Refused, Often)> = refused.into_iter().collect();
    refused.sort_by_key(|(_, often)| std::cmp::Reverse(often.last));
    let newest = refused.iter().take(MOST);
    let mut said: Vec<String> = newest
        .map(|(one, often)| sentence(one, *often, now))
        .collect();
    let older = refused.len() - said.len();
    if older > 0 {
        said.push(format!(
            "{older} more are in the journals; ask about one of them more exactly."
        ));
    }
    said
}

fn sentence(one: &Refused, often: Often, now: SystemTime) -> String {
    let what = match one.kind {
        RefusalKind::File if one.rule == KEEP => "deleting",
        RefusalKind::File => "access to",
        RefusalKind::Syscall => "the system call",
        RefusalKind::Network => "the connection to",
    };
    let times = match (&one.program, often.count) {
        (None, 0 | 1) => String::new(),
        (Some(program), 0 | 1) => format!(" to {program}"),
        (None, count) => format!(" {count} times, the last time then,"),
        (Some(program), count) => {
            format!(" {count} times, first to {program}, the last time then,")
        }
    };
    let allow = match one.allow.as_str() {
        "" => "Nothing allows it.".to_owned(),
        allow => format!("To allow it: {allow}"),
    };
    let (id, object, rule) = (&one.id, &one.object, &one.rule);
    let (stamp, ago) = (stamp(time(often.last)), ago(time(often.last), now));
    format!("{stamp} ({ago}) in {id}: {what} {object} was refused{times} by {rule}. {allow}")
}

/// There is no such refusal: what else is known, and how to know more.
fn nothing(
    asked: &Asked<'_>,
    session: Option<&SessionId>,
    number: usize,
    newest: Option<(SessionId, Had)>,
) -> Vec<String> {
    let text = asked.text;
    let mut said = vec![match (session, number) {
        (Some(id), 0) => format!(
            "There is no journal of {id}; `cowork-linux history` lists the sessions that have one."
        ),
        (None, 0) => "No session has a journal yet.".to_owned(),
        (Some(id), _) => format!("No refusal of {text} is in the journal of {id}."),
        (None, 1) => format!("No refusal of {text} is in the only journal there is."),
        (None, _) => format!("No refusal of {text} is in any of {number} journals."),
    }];
    if let Some((id, had)) = newest {
        said.extend(surroundings(asked, &id, &had));
    }
    let means = [
        (asked.may_be_path(), FILES),
        (asked.may_be_host(), HOSTS),
        (asked.may_be_syscall(), CALLS),
    ];
    let fitting = means.into_iter().filter(|(may_be, _)| *may_be);
    said.extend(fitting.map(|(_, words)| words.to_owned()));
    said.extend(TO_TYPE.map(str::to_owned));
    said
}

/// What the newest run had of it.
fn surroundings(asked: &Asked<'_>, id: &SessionId, had: &Had) -> Vec<String> {
    let text = asked.text;
    let mut said = Vec::new();
    if text.starts_with('/') {
        let holds =
            |mount: &&MountNote| lies_in(text, &mount.source) || lies_in(text, &mount.place);
        // The last one lies on top.
        said.push(match had.mounts.iter().rev().find(holds) {
            Some(mount) if mount.mode.starts_with("ro") => format!(
                "In {id}, it lies in {}, which is shared read-only ({}): to write there, share it \
                 as rw.",
                mount.source, mount.mode
            ),
            Some(mount) => format!(
                "In {id}, it lies in {}, which is shared as {}.",
                mount.source, mount.mode
            ),
            None => format!(
                "In {id}, no shared folder holds it: what lies outside of them and is not part of \
                 the system is not there. To share it: cowork-linux run --mount {text}"
            ),
        });
    }
    if asked.may_be_host() && had.network == "none" {
        said.push(format!(
            "{id} has no network, so that no host is reached from it. To give it the host's: \
             cowork-linux run --network host"
        ));
    }
    if asked.may_be_syscall() {
        said.extend(calls::outlook(id.as_str(), text, &had.layers));
    }
    said
}

/// Names come from programs; nothing in them may act on a terminal.
fn visible(line: &str) -> String {
    let spelled = line.escape_debug().to_string();
    spelled.replace("\\\"", "\"").replace("\\'", "'")
}
