//! A folder of programs that can change while the box runs: `/usr/local/bin`, where the system's own
//! folders never change. It is a folder of ours that shows what the host has there by links, so that
//! a place for another program can be made in it without anything being made on the host.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::policy::InsidePath;

/// Where programs can be mounted later.
const PROGRAMS: &str = "/usr/local/bin";
/// Where the host's own can be seen besides. As a whole: programs look for what is theirs beside
/// the folder that they lie in.
const HOST: &str = "/run/cowork/usr";

/// What the host has there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostPrograms {
    /// `/usr/local/bin`, or the nearest folder above it where there is none.
    pub folder: InsidePath,
    /// What is in that folder: names, and what those that are links say.
    #[serde(skip)]
    pub entries: Vec<(OsString, Option<PathBuf>)>,
}

/// The folder as it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Programs {
    pub at: InsidePath,
    /// The host's folder that it takes the place of.
    pub covers: InsidePath,
    /// Where the host's `/usr` is shown a second time.
    pub host: InsidePath,
    /// Links in what is covered: their names, and where they lead.
    #[serde(serialize_with = "pairs")]
    pub links: Vec<(OsString, PathBuf)>,
}

impl Programs {
    /// Folders that are missing on the host, from what is covered down.
    pub fn missing(&self) -> Vec<PathBuf> {
        let below = self.at.as_path().strip_prefix(self.covers.as_path());
        let below = below.unwrap_or(Path::new(""));
        let whole = below
            .ancestors()
            .filter(|path| !path.as_os_str().is_empty());
        let mut whole: Vec<_> = whole.map(Path::to_owned).collect();
        whole.reverse();
        whole
    }

    /// What a place in it leads to when nothing is mounted there.
    pub(super) fn link_at(&self, place: &InsidePath) -> Option<&PathBuf> {
        let name = place.as_path().strip_prefix(self.covers.as_path()).ok()?;
        let at = self.links.iter().find(|(link, _)| Path::new(link) == name);
        at.map(|(_, to)| to)
    }
}

impl fmt::Display for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            covers,
            host,
            links,
        } = self;
        write!(
            f,
            "make {at} a folder that programs can be mounted in later (read only): "
        )?;
        if at != covers {
            write!(f, "the host has none, so {covers} is made anew with ")?;
        }
        write!(
            f,
            "{} links to what the host has there, shown at {host}",
            links.len()
        )
    }
}

/// The folder for what the host has.
pub(super) fn programs(found: &HostPrograms) -> Programs {
    let covers = found.folder.clone();
    let at = InsidePath::fixed(PROGRAMS);
    let host = InsidePath::fixed(HOST);
    let below = covers.as_path().strip_prefix("/usr");
    let shown = host.as_path().join(below.unwrap_or(Path::new("")));
    let own = at.as_path().strip_prefix(covers.as_path()).ok();
    let own = own.and_then(|path| path.components().next());
    let links = found
        .entries
        .iter()
        // What stands where a folder is to be made, a link to nowhere say, gives way.
        .filter(|(name, _)| own.is_none_or(|own| own.as_os_str() != name))
        .map(|(name, link)| {
            // A link says the same from here as it does there.
            let to = link.clone().unwrap_or_else(|| shown.join(name));
            (name.clone(), to)
        })
        .collect();
    Programs {
        at,
        covers,
        host,
        links,
    }
}

fn pairs<S: Serializer>(links: &[(OsString, PathBuf)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(links.len()))?;
    for (name, to) in links {
        map.serialize_entry(&name.to_string_lossy(), &to.to_string_lossy())?;
    }
    map.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(folder: &'static str, entries: &[(&str, Option<&str>)]) -> HostPrograms {
        let entry = |(name, link): &(&str, Option<&str>)| ((*name).into(), link.map(Into::into));
        HostPrograms {
            folder: InsidePath::fixed(folder),
            entries: entries.iter().map(entry).collect(),
        }
    }

    #[test]
    fn files_become_links_and_links_say_what_they_said() {
        let made = programs(&found(
            "/usr/local/bin",
            &[("node", None), ("npm", Some("../lib/npm.js"))],
        ));
        let at = |name: &str| made.link_at(&made.at.join(name).unwrap()).cloned();
        assert_eq!(at("node"), Some("/run/cowork/usr/local/bin/node".into()));
        assert_eq!(at("npm"), Some("../lib/npm.js".into()));
        assert_eq!(at("claude"), None);
        assert!(made.missing().is_empty());
    }

    #[test]
    fn a_folder_that_the_host_lacks_is_made_in_the_nearest_one_above() {
        let usr = found("/usr", &[("bin", None), ("local", Some("../var/local"))]);
        let made = programs(&usr);
        assert_eq!(made.missing(), [Path::new("local"), Path::new("local/bin")]);
        assert_eq!(made.links, [("bin".into(), "/run/cowork/usr/bin".into())]);
        let local = programs(&found("/usr/local", &[("lib", None)]));
        assert_eq!(local.missing(), [Path::new("bin")]);
        let lib = "/run/cowork/usr/local/lib";
        assert_eq!(local.links, [("lib".into(), lib.into())]);
    }
}
