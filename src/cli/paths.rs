//! What a path of the host's is called in a session's box, and the other way round. Only names are
//! compared, part by part: no link is followed, neither outside nor inside.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command};
use serde_json::json;

use super::sessions::{Done, Refusal, one, print_json, session_argument};
use super::switch;
use crate::policy::SessionId;
use crate::session::{FindError, Known, Places, RecordedMount};
use crate::terminal::printable;

pub(super) fn commands() -> [Command; 1] {
    let path = |help: &'static str| {
        Arg::new("path")
            .value_name("PATH")
            .required(true)
            .value_parser(clap::value_parser!(OsString))
            .help(help)
    };
    let verb = |name: &'static str, about: &'static str, help: &'static str| {
        Command::new(name)
            .about(about)
            .arg(switch(
                "json",
                "Print it as JSON, with the mount it lies in",
            ))
            .arg(session_argument())
            .arg(path(help))
    };
    [Command::new("path")
        .about("What a path is called on the other side of a session's walls")
        .long_about(
            "What a path is called on the other side of a session's walls: in the folders that are shared with it, now or \
             when it ended, and in its home. Links are not followed, and nothing has to be there. Sessions that the helper \
             keeps for Claude Desktop are known here too.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(verb(
            "to-host",
            "A path in the box, as this computer calls it",
            "As programs in the box write it, from / on",
        ))
        .subcommand(verb(
            "to-guest",
            "A path of this computer, as the box calls it",
            "As you write it, from / or from this folder on",
        ))]
}

pub(super) fn verb(name: &str) -> Option<fn(&Places, &ArgMatches) -> Done> {
    (name == "path").then_some(path)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    ToHost,
    ToGuest,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotShared {
    #[error(
        "cannot tell where {0} is, because it has a .. in it, and what that is depends on links"
    )]
    Upwards(String),
    #[error("cannot tell where {0} is in the box, because it does not begin with a /")]
    Relative(String),
    #[error(
        "cannot find {path} on this computer, because it is in nothing that is shared with {id}"
    )]
    NotOutside {
        path: String,
        id: SessionId,
        shared: String,
    },
    #[error("cannot find {path} in the box, because it is in nothing that is shared with {id}")]
    NotInside {
        path: String,
        id: SessionId,
        shared: String,
    },
    #[error("cannot find {path} in the box, because {by} lies over it there")]
    Covered { path: String, by: String },
}

impl NotShared {
    pub(super) fn help(&self) -> Option<String> {
        Some(match self {
            Self::Upwards(_) => "write the path without it".into(),
            Self::Relative(_) => "write the whole path, such as /sessions/ID/mnt/NAME".into(),
            Self::NotOutside { shared, .. } | Self::NotInside { shared, .. } => {
                match shared.as_str() {
                    "" => "nothing is shared with it; `cowork-linux mount` shares a folder".into(),
                    shared => format!("shared are {shared}; links are not followed"),
                }
            }
            Self::Covered { .. } => "share the folder by another name".into(),
        })
    }
}

fn path(places: &Places, matches: &ArgMatches) -> Done {
    let (way, matches) = match matches.subcommand() {
        Some(("to-guest", matches)) => (Way::ToGuest, matches),
        Some((_, matches)) => (Way::ToHost, matches),
        None => (Way::ToHost, matches),
    };
    let (places, id) = find(places, matches)?;
    let known = places.look(&id);
    let shared = Shared::of(&known);
    let text = matches
        .get_one::<OsString>("path")
        .cloned()
        .unwrap_or_default();
    let path = plain(Path::new(&text), way)?;
    let (found, through) = match way {
        Way::ToHost => shared.to_host(&path)?,
        Way::ToGuest => shared.to_guest(&path)?,
    };
    if matches.get_flag("json") {
        let (host, guest) = match way {
            Way::ToHost => (&found, &path),
            Way::ToGuest => (&path, &found),
        };
        print_json(&json!({
            "session": id,
            "state": known.state,
            "host": host.to_string_lossy(),
            "guest": guest.to_string_lossy(),
            "mount": through,
        }))?;
    } else {
        print_path(&found)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The session that is meant: one of the user's own, or else one that the helper keeps for an app.
fn find(places: &Places, matches: &ArgMatches) -> Result<(Places, SessionId), Refusal> {
    let none = match one(places, matches) {
        Ok(id) => return Ok((places.clone(), id)),
        Err(refusal @ Refusal::Find(FindError::None(_))) => refusal,
        Err(refusal) => return Err(refusal),
    };
    let profiles = places.of_apps().into_iter();
    let found = profiles.filter_map(|places| {
        let id = one(&places, matches).ok()?;
        Some((places, id))
    });
    let mut found: Vec<_> = found.collect();
    match (found.pop(), found.pop()) {
        (Some(only), None) => Ok(only),
        (Some((_, one)), Some((_, other))) => {
            let which = format!("{one} or {other}");
            Err(FindError::Several(one.to_string(), which).into())
        }
        (None, _) => Err(none),
    }
}

/// For a program every byte of it; for a person nothing that a terminal would obey.
fn print_path(path: &Path) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let line = match out.is_terminal() {
        true => printable(&path.to_string_lossy()).into_owned().into_bytes(),
        false => path.as_os_str().as_bytes().to_vec(),
    };
    match out
        .write_all(&[&line, &b"\n"[..]].concat())
        .and_then(|()| out.flush())
    {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// A path as names from the root on, without asking any disk.
fn plain(path: &Path, way: Way) -> Result<PathBuf, NotShared> {
    let shown = || path.to_string_lossy().into_owned();
    let whole = match (path.is_absolute(), way) {
        (true, _) => path.to_owned(),
        (false, Way::ToGuest) => {
            std::path::absolute(path).map_err(|_| NotShared::Relative(shown()))?
        }
        (false, Way::ToHost) => return Err(NotShared::Relative(shown())),
    };
    let mut plain = PathBuf::new();
    for part in whole.components() {
        match part {
            Component::ParentDir => return Err(NotShared::Upwards(shown())),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    Ok(plain)
}

/// Everything that a session has of the host's, what lies on top of other things later.
#[derive(Debug)]
struct Shared {
    id: SessionId,
    mounts: Vec<RecordedMount>,
    /// A folder that only the box has, although it lies in one that is the host's.
    closed: Option<PathBuf>,
}

type Found<'a> = Result<(PathBuf, &'a RecordedMount), NotShared>;

impl Shared {
    fn of(known: &Known) -> Self {
        let own = known.record.iter().flat_map(|record| &record.own);
        let mut mounts: Vec<RecordedMount> = own.cloned().collect();
        // The folder in it that mounts come to is the box's own, and so is what lies in it beside them.
        let home = Path::new("/sessions").join(known.id.as_str());
        let is_kept = mounts.iter().any(|own| Path::new(&own.place) == home);
        let closed = is_kept.then(|| home.join("mnt"));
        let recorded = known.record.iter().flat_map(|record| &record.mounts);
        let later = known.seen.iter().flat_map(|seen| &seen.mounted);
        mounts.extend(recorded.chain(later).cloned());
        // A name that is no text was not kept as it is, and would lead somewhere else.
        let is_exact = |text: &str| !text.contains(char::REPLACEMENT_CHARACTER);
        mounts.retain(|mount| is_exact(&mount.source) && is_exact(&mount.place));
        Self {
            id: known.id.clone(),
            mounts,
            closed,
        }
    }

    fn to_host(&self, path: &Path) -> Found<'_> {
        self.outside(path).ok_or_else(|| NotShared::NotOutside {
            path: path.to_string_lossy().into_owned(),
            id: self.id.clone(),
            shared: self.list(|mount| &mount.place),
        })
    }

    /// The mount that is seen at a place is the one that begins nearest to it; of two in the same
    /// place, the later one.
    fn outside(&self, path: &Path) -> Option<(PathBuf, &RecordedMount)> {
        let holding = self
            .mounts
            .iter()
            .filter(|mount| path.starts_with(&mount.place));
        let nearest = holding.max_by_key(|mount| depth(&mount.place))?;
        let closed = self.closed.iter().find(|closed| path.starts_with(closed));
        if closed.is_some_and(|closed| closed.starts_with(&nearest.place)) {
            return None;
        }
        Some((moved(path, &nearest.place, &nearest.source)?, nearest))
    }

    /// What is shared twice is called by its nearest name that nothing lies over.
    fn to_guest(&self, path: &Path) -> Found<'_> {
        let holding = self
            .mounts
            .iter()
            .filter(|mount| path.starts_with(&mount.source));
        let mut holding: Vec<_> = holding.collect();
        holding.reverse();
        holding.sort_by_key(|mount| std::cmp::Reverse(depth(&mount.source)));
        let mut by = None;
        for mount in holding {
            let Some(inside) = moved(path, &mount.source, &mount.place) else {
                continue;
            };
            match self.outside(&inside) {
                Some((back, _)) if back == path => return Ok((inside, mount)),
                other => by = by.or(other.map(|(_, mount)| mount.place.clone())),
            }
        }
        let path = path.to_string_lossy().into_owned();
        Err(match by {
            Some(by) => NotShared::Covered { path, by },
            None => NotShared::NotInside {
                path,
                id: self.id.clone(),
                shared: self.list(|mount| &mount.source),
            },
        })
    }

    /// Some of what is shared, for whoever guessed wrong.
    fn list(&self, name: impl Fn(&RecordedMount) -> &String) -> String {
        let names: Vec<_> = self
            .mounts
            .iter()
            .map(|mount| name(mount).as_str())
            .collect();
        match names.len() {
            0..=8 => names.join(", "),
            more => format!("{} and {} more", names[..8].join(", "), more - 8),
        }
    }
}

fn depth(path: &str) -> usize {
    Path::new(path).components().count()
}

fn moved(path: &Path, from: &str, to: &str) -> Option<PathBuf> {
    let rest = path.strip_prefix(from).ok()?;
    Some(match rest.as_os_str().is_empty() {
        true => PathBuf::from(to),
        false => Path::new(to).join(rest),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(mounts: &[(&str, &str)]) -> Shared {
        let mounts = mounts.iter().map(|(source, place)| RecordedMount {
            source: (*source).to_owned(),
            place: (*place).to_owned(),
            mode: "rw".to_owned(),
        });
        Shared {
            id: SessionId::parse("one").unwrap(),
            mounts: mounts.collect(),
            closed: Some(PathBuf::from("/sessions/one/mnt")),
        }
    }

    fn host(shared: &Shared, path: &str) -> Option<String> {
        let (found, _) = shared.to_host(Path::new(path)).ok()?;
        Some(found.to_str().unwrap().to_owned())
    }

    fn guest(shared: &Shared, path: &str) -> Result<String, NotShared> {
        let (found, _) = shared.to_guest(Path::new(path))?;
        Ok(found.to_str().unwrap().to_owned())
    }

    #[test]
    fn whole_parts_are_compared_and_the_nearest_mount_counts() {
        let shared = shared(&[
            ("/state/home", "/sessions/one"),
            ("/home/u/proj", "/sessions/one/mnt/proj"),
            ("/home/u/skills", "/sessions/one/mnt/proj/skills"),
        ]);
        let host = |path| host(&shared, path);
        assert_eq!(host("/sessions/one").as_deref(), Some("/state/home"));
        assert_eq!(
            host("/sessions/one/.bashrc").as_deref(),
            Some("/state/home/.bashrc")
        );
        assert_eq!(
            host("/sessions/one/mnt/proj").as_deref(),
            Some("/home/u/proj")
        );
        assert_eq!(
            host("/sessions/one/mnt/proj/a/b").as_deref(),
            Some("/home/u/proj/a/b")
        );
        assert_eq!(
            host("/sessions/one/mnt/proj/skills/x").as_deref(),
            Some("/home/u/skills/x")
        );
        for other in [
            // Beside what is shared there is only what the box made for itself.
            "/sessions/one/mnt/proj2",
            "/sessions/one/mnt",
            "/sessions/onetwo",
            "/sessions/two",
            "/sessions",
            "/",
            "/usr/bin/env",
        ] {
            assert_eq!(host(other), None, "{other}");
        }
    }

    #[test]
    fn the_way_in_is_the_way_back() {
        let shared = shared(&[
            ("/state/home", "/sessions/one"),
            ("/home/u", "/sessions/one/mnt/all"),
            ("/home/u/proj", "/sessions/one/mnt/proj"),
            ("/srv/other", "/sessions/one/mnt/proj/sub"),
        ]);
        for (outside, inside) in [
            ("/home/u/x", "/sessions/one/mnt/all/x"),
            ("/home/u/proj/a", "/sessions/one/mnt/proj/a"),
            ("/home/u/project", "/sessions/one/mnt/all/project"),
            ("/srv/other", "/sessions/one/mnt/proj/sub"),
            // By its nearest name something else is seen there, by the other one it is itself.
            ("/home/u/proj/sub/a", "/sessions/one/mnt/all/proj/sub/a"),
        ] {
            assert_eq!(guest(&shared, outside).as_deref(), Ok(inside));
            assert_eq!(host(&shared, inside).as_deref(), Some(outside));
        }
        let error = guest(&shared, "/home/user").unwrap_err();
        assert!(error.to_string().contains("/home/user"), "{error}");
        assert!(error.help().unwrap().contains("/home/u/proj"));
    }

    #[test]
    fn what_something_else_lies_over_is_not_found_at_all() {
        let over = shared(&[
            ("/home/u/proj", "/sessions/one/mnt/proj"),
            ("/srv/other", "/sessions/one/mnt/proj/sub"),
        ]);
        let error = guest(&over, "/home/u/proj/sub/a").unwrap_err();
        assert!(
            matches!(&error, NotShared::Covered { by, .. } if by.ends_with("/proj/sub")),
            "{error}"
        );
        // A later mount in the same place is the one that is seen.
        let replaced = shared(&[("/a", "/sessions/one/mnt/x"), ("/b", "/sessions/one/mnt/x")]);
        assert_eq!(
            host(&replaced, "/sessions/one/mnt/x/f").as_deref(),
            Some("/b/f")
        );
        assert!(guest(&replaced, "/a/f").is_err());
        assert_eq!(
            guest(&replaced, "/b/f").as_deref(),
            Ok("/sessions/one/mnt/x/f")
        );
    }

    #[test]
    fn odd_spellings_are_made_plain_or_refused() {
        let plain = |path: &str, way| plain(Path::new(path), way);
        assert_eq!(
            plain("/a//b/./c/", Way::ToHost),
            Ok(PathBuf::from("/a/b/c"))
        );
        let upwards = plain("/a/../b", Way::ToHost);
        assert!(matches!(upwards, Err(NotShared::Upwards(_))));
        assert!(matches!(
            plain("../b", Way::ToGuest),
            Err(NotShared::Upwards(_))
        ));
        assert!(matches!(
            plain("b", Way::ToHost),
            Err(NotShared::Relative(_))
        ));
        let here = std::env::current_dir().unwrap();
        assert_eq!(plain("b/c", Way::ToGuest), Ok(here.join("b/c")));
    }
}
