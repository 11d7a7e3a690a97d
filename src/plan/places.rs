//! Where each mount goes. Two may not share a place, and none may lie inside another.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::error::PlanError;
use super::{Facts, Request, Session, Source};
use crate::policy::{Access, InsidePath, Isolation, PathError, Policy};

/// Places that belong to the box: no mount may go there or above them.
const RESERVED: [&str; 16] = [
    "/bin",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/run",
    "/sbin",
    "/sessions",
    "/sys",
    "/tmp",
    "/usr",
    "/var/tmp",
    "/workspace",
];

/// The place of every mount, in the order of the request.
pub(super) fn places(
    policy: &Policy,
    request: &Request,
    session: &Session,
) -> Result<Vec<InsidePath>, PlanError> {
    let below = session.home.join("mnt").map_err(PlanError::Path)?;
    let outputs = below.join("outputs").map_err(PlanError::Path)?;
    let mut taken: BTreeMap<InsidePath, &Path> = BTreeMap::new();
    let mut places = Vec::with_capacity(request.mounts.len());
    for source in &request.mounts {
        let at = match &source.place {
            Some(place) if place.is_absolute() => elsewhere(place)?,
            Some(place) => checked(&below, place)?,
            None => checked(&below, Path::new(&source.name))?,
        };
        let by = match clash(&taken, &at) {
            _ if at == below => Some("the folder of all mounts".to_owned()),
            _ if policy.files.own_outputs && at.starts_with(&outputs) => {
                Some("the session's outputs".to_owned())
            }
            other => other.map(|path| path.display().to_string()),
        };
        if let Some(by) = by {
            return Err(PlanError::PlaceTaken { at, by });
        }
        taken.insert(at.clone(), &source.path);
        places.push(at);
    }
    Ok(places)
}

/// Refuses folders that overlap on the host while a guard is on: a folder that is renamed through
/// one of them has another name than the other's guard believes.
pub(super) fn no_overlap(request: &Request) -> Result<(), PlanError> {
    let shared = request
        .mounts
        .iter()
        .map(|source| (&source.path, source.access));
    let needed = request
        .needed
        .iter()
        .filter(|needed| needed.access != Access::Read);
    let mut all: Vec<_> = shared
        .chain(needed.map(|needed| (&needed.path, needed.access)))
        .collect();
    // Paths sort by component: what lies below a folder comes right after it.
    all.sort_by(|one, other| one.0.cmp(other.0));
    let mut outer: Option<(&PathBuf, Access)> = None;
    for (path, access) in all {
        match outer {
            Some((above, its)) if path.starts_with(above) => {
                if its != Access::Read || access != Access::Read {
                    let (one, other) = (above.display().to_string(), path.display().to_string());
                    return Err(PlanError::Overlap { one, other });
                }
            }
            _ => outer = Some((path, access)),
        }
    }
    Ok(())
}

/// Only pid 1 can keep programs from deleting, and only where it does all writing for them.
pub(super) fn can_keep(policy: &Policy, facts: &Facts, request: &Request) -> Result<(), PlanError> {
    let because = match () {
        () if policy.files.read_only_workspace => return Ok(()),
        () if policy.lock.isolation == Isolation::Landlock => {
            "`--isolation landlock` cannot tell deleting from renaming"
        }
        () if !policy.guard.enabled => "the policy lifts the guard",
        () if !facts.seccomp_notify => "this kernel has no seccomp user notification",
        () => return Ok(()),
    };
    let kept = |source: &&Source| source.access == Access::Keep;
    match request.mounts.iter().find(kept) {
        Some(source) => Err(PlanError::Keep {
            path: source.path.display().to_string(),
            because: because.to_owned(),
        }),
        None => Ok(()),
    }
}

/// Who is at this place, above it or below it.
fn clash<'a>(taken: &BTreeMap<InsidePath, &'a Path>, at: &InsidePath) -> Option<&'a Path> {
    let above = at.as_path().ancestors().find_map(|up| {
        InsidePath::new(up)
            .ok()
            .and_then(|up| taken.get(&up).copied())
    });
    // Paths sort by component, so what lies below a path comes right after it.
    let below = || {
        taken
            .range(at..)
            .next()
            .filter(|(other, _)| other.starts_with(at))
    };
    above.or_else(|| below().map(|(_, path)| *path))
}

fn checked(below: &InsidePath, place: &Path) -> Result<InsidePath, PlanError> {
    InsidePath::new(place).map_err(PlanError::Path)?;
    InsidePath::new(below.as_path().join(place)).map_err(PlanError::Path)
}

pub(super) fn elsewhere(place: &Path) -> Result<InsidePath, PlanError> {
    let at = InsidePath::new(place).map_err(PlanError::Path)?;
    let reserved = RESERVED
        .iter()
        .map(Path::new)
        .any(|name| at.as_path().starts_with(name) || name.starts_with(at.as_path()));
    match reserved {
        true => Err(PlanError::Path(PathError::Reserved(at.to_string()))),
        false => Ok(at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_clash_with_the_same_with_what_holds_them_and_with_what_they_hold() {
        let path = |text: &str| InsidePath::new(text).unwrap();
        let there = Path::new("/src");
        let taken = BTreeMap::from([(path("/a/b"), there), (path("/a-c"), there)]);
        for text in ["/a/b", "/a/b/c/d", "/a", "/a-c/x"] {
            assert!(clash(&taken, &path(text)).is_some(), "{text}");
        }
        for text in ["/a/bc", "/a/c", "/a-", "/b"] {
            assert!(clash(&taken, &path(text)).is_none(), "{text}");
        }
    }
}
