//! The folders that a session sees, made to be what the app wants: what is missing comes, what is
//! different is exchanged, what is not wanted any more goes. One that cannot be shown never keeps a
//! program from starting.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tokio::task::JoinSet;

use super::blocking::Blocking;
use super::folders::{Folder, Found, Mode, Sources};
use super::names::{MountName, mount_name, shortened};
use super::points::Point;
use super::reading::Shown;
use super::request::Mount;
use super::telling;
use crate::policy::SessionId;
use crate::report;
use crate::session::Conversation;

/// How long a folder may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// A folder that is shown now.
#[derive(Debug, Clone)]
pub(super) struct Mounted {
    folder: Folder,
    /// As the session knows it: a name, or a path.
    place: String,
    point: Point,
    /// Granted while programs ran, and not part of what each of them is started with.
    is_granted: bool,
}

/// What one session is shown.
pub(super) type Mounts = BTreeMap<MountName, Mounted>;

/// What is to be shown, and whether it was granted in passing.
pub(super) type Desired = BTreeMap<MountName, (Folder, bool)>;

/// Finds folders for one profile.
#[derive(Debug, Clone)]
pub(super) struct Finder {
    pub(super) sources: Sources,
    pub(super) blocking: Blocking,
    /// What the app lets be written may be deleted too.
    pub(super) allow_delete: bool,
}

impl Finder {
    fn mode(&self, mount: &Mount) -> Mode {
        match Mode::of(mount.mode.as_deref()) {
            Mode::Keep if self.allow_delete => Mode::Write,
            mode => mode,
        }
    }

    /// The folder that is meant; none for what is passed over in silence.
    pub(super) async fn find(&self, mount: &Mount) -> Result<Option<Folder>, String> {
        let mode = self.mode(mount);
        let (sources, path) = (self.sources.clone(), mount.path.clone());
        let found = self
            .blocking
            .within(PATIENCE, move || sources.find(&path, mode));
        let late = || {
            let path = shortened(&mount.path);
            Err(format!("cannot share {path}, because it does not answer"))
        };
        Ok(match found.await.unwrap_or_else(late)? {
            Found::Folder(folder) => Some(folder),
            Found::Skipped => None,
        })
    }

    /// What is wanted that can be had, and the names of what cannot. What is shown already is not looked for
    /// again where it is certainly the same: most commands come with the list of the one before.
    pub(super) async fn find_all(
        &self,
        wanted: &[(String, Mount)],
        shown: &Mounts,
    ) -> (BTreeMap<MountName, Folder>, Vec<String>) {
        let mut failed = Vec::new();
        let mut names = Vec::new();
        let mut folders = BTreeMap::new();
        for (text, mount) in wanted {
            let is_it = |it: &&Mounted| {
                it.folder.mode == self.mode(mount) && it.folder.is_certainly(&mount.path)
            };
            match mount_name(text) {
                Ok(name) => match shown.get(&name).filter(is_it) {
                    Some(same) => {
                        folders.insert(name, same.folder.clone());
                    }
                    None => names.push((name, mount)),
                },
                Err(why) => {
                    telling::warn(&why);
                    failed.push(text.clone());
                }
            }
        }
        // All at the same time: one that does not answer holds up no other.
        let mut looks = JoinSet::new();
        for (name, mount) in names {
            let (finder, mount) = (self.clone(), mount.clone());
            looks.spawn_local(async move { (name, finder.find(&mount).await) });
        }
        while let Some(Ok((name, found))) = looks.join_next().await {
            match found {
                Ok(Some(folder)) => {
                    folders.insert(name, folder);
                }
                Ok(None) => telling::detail(|| format!("{name} is a file: it is passed over")),
                Err(why) => {
                    telling::warn(&why);
                    failed.push(name.as_str().to_owned());
                }
            }
        }
        (folders, failed)
    }

    async fn point(
        &self,
        session: &SessionId,
        mounts: &Mounts,
        name: &MountName,
        folder: &Folder,
    ) -> Result<Point, String> {
        let is_nested = mounts.keys().any(|above| name.below(above).is_some());
        if !is_nested {
            return Ok(Point::Named);
        }
        let mounted: Vec<_> = mounts
            .iter()
            .map(|(name, it)| (name.clone(), it.folder.clone()))
            .collect();
        let (sources, session) = (self.sources.clone(), session.clone());
        let (name, folder) = (name.clone(), folder.clone());
        let looked = self.blocking.within(PATIENCE, move || {
            let mounted = mounted.iter().map(|(name, folder)| (name, folder));
            sources.nested_point(&session, mounted, &name, &folder)
        });
        let late = || Err("its place does not answer".to_owned());
        looked.await.unwrap_or_else(late)
    }

    /// Makes a session show what is desired and nothing else. The names of those that it does not, and why.
    pub(super) async fn change(
        &self,
        session: &SessionId,
        mounts: &mut Mounts,
        desired: Desired,
        conversation: &Conversation,
    ) -> Vec<(String, String)> {
        let difference = Difference::of(mounts, &desired);
        for name in difference.leaving.iter().rev() {
            if let Some(mounted) = mounts.get(name) {
                match conversation.unmount(&mounted.place, true).await {
                    Ok(()) => {
                        mounts.remove(name);
                    }
                    Err(error) => telling::warn(&report::in_one_line(&error)),
                }
            }
        }
        let mut failed = Vec::new();
        for (name, (folder, is_granted)) in desired {
            if !difference.coming.contains(&name) {
                if let Some(mounted) = mounts.get_mut(&name) {
                    mounted.is_granted = is_granted;
                }
                continue;
            }
            let shown = self
                .show(session, mounts, &name, &folder, conversation)
                .await;
            match shown {
                Ok((place, point)) => {
                    let mounted = Mounted {
                        folder,
                        place,
                        point,
                        is_granted,
                    };
                    mounts.insert(name, mounted);
                }
                Err(why) => {
                    telling::warn(&format!("{name} is not mounted: {why}"));
                    failed.push((name.as_str().to_owned(), why));
                    // What was there before is not what is wanted now.
                    if let Some(old) = mounts.remove(&name) {
                        let _ = conversation.unmount(&old.place, true).await;
                    }
                }
            }
        }
        failed
    }

    async fn show(
        &self,
        session: &SessionId,
        mounts: &Mounts,
        name: &MountName,
        folder: &Folder,
        conversation: &Conversation,
    ) -> Result<(String, Point), String> {
        if let Some(other) = mounts
            .iter()
            .find(|(it, _)| is_overlap(name, folder, it, mounts))
        {
            return Err(format!(
                "{} is shared already as {}, and what is written through one would go past what guards \
                 the other",
                other.1.folder.path.display(),
                other.0
            ));
        }
        if folder.mode != Mode::Read {
            let (device, inode) = (folder.seen.device, folder.seen.inode);
            self.sources.written.note(&folder.path, device, inode)?;
        }
        let point = self.point(session, mounts, name, folder).await?;
        let place = match &point {
            Point::Named => name.as_str().to_owned(),
            Point::At(place) => place.to_string(),
        };
        let wish = folder.wish(&place);
        let shown = conversation.mount(&wish).await;
        shown.map_err(|error| report::in_one_line(&error))?;
        Ok((place, point))
    }
}

/// Whether one of two folders lies in the other, so that a file has two names with rights of their own. Where
/// one is mounted in the other at the very place where it lies, it has one.
fn is_overlap(name: &MountName, folder: &Folder, other: &MountName, mounts: &Mounts) -> bool {
    let Some(shown) = mounts.get(other).filter(|_| name != other) else {
        return false;
    };
    let theirs = &shown.folder;
    if folder.path == theirs.path || folder.mode == Mode::Read && theirs.mode == Mode::Read {
        return false;
    }
    let ((inner, in_path), (outer, out_path)) = match folder.path.starts_with(&theirs.path) {
        true => ((name, &folder.path), (other, &theirs.path)),
        false => ((other, &theirs.path), (name, &folder.path)),
    };
    match in_path.strip_prefix(out_path) {
        Ok(rest) => inner
            .below(outer)
            .is_none_or(|below| Path::new(below) != rest),
        Err(_) => false,
    }
}

/// The difference between what is shown and what is desired.
#[derive(Debug, Default, PartialEq, Eq)]
struct Difference {
    /// From the outside in; taken away in the other order.
    leaving: Vec<MountName>,
    coming: Vec<MountName>,
}

impl Difference {
    fn of(mounts: &Mounts, desired: &Desired) -> Self {
        let mut difference = Self::default();
        // Those that hold others come before them.
        for (name, (folder, _)) in desired {
            let is_in = |above: &MountName| name.below(above).is_some();
            let is_moved = difference.coming.iter().any(is_in);
            let is_same = mounts.get(name).is_some_and(|it| it.folder == *folder);
            if !is_same || is_moved {
                difference.coming.push(name.clone());
            }
        }
        for name in mounts.keys() {
            let is_in = |above: &MountName| name.below(above).is_some();
            let is_held_by = difference
                .coming
                .iter()
                .chain(&difference.leaving)
                .any(is_in);
            if !desired.contains_key(name) || is_held_by {
                difference.leaving.push(name.clone());
            }
        }
        // One that stays is shown anew when what holds it goes.
        for name in &difference.leaving {
            if desired.contains_key(name) && !difference.coming.contains(name) {
                difference.coming.push(name.clone());
            }
        }
        difference.coming.sort();
        difference
    }
}

/// What is to be shown when a program comes with this list: what it names, what was granted in
/// passing, and what others that run were started with.
pub(super) fn with_list(
    mounts: &Mounts,
    found: BTreeMap<MountName, Folder>,
    is_used: impl Fn(&str) -> bool,
) -> Desired {
    let mut desired: Desired = mounts
        .iter()
        .filter(|(name, mounted)| mounted.is_granted || is_used(name.as_str()))
        .map(|(name, mounted)| (name.clone(), (mounted.folder.clone(), mounted.is_granted)))
        .collect();
    for (name, folder) in found {
        desired.insert(name, (folder, false));
    }
    desired
}

/// The same, and one more folder.
pub(super) fn with_one(mounts: &Mounts, name: MountName, folder: Folder) -> Desired {
    let mut desired = with_list(mounts, BTreeMap::new(), |_| true);
    desired.insert(name, (folder, true));
    desired
}

/// Whether nothing has to be changed for that.
pub(super) fn is_so(mounts: &Mounts, desired: &Desired) -> bool {
    Difference::of(mounts, desired) == Difference::default()
        && desired.iter().all(|(name, (_, is_granted))| {
            mounts
                .get(name)
                .is_some_and(|it| it.is_granted == *is_granted)
        })
}

/// What a session sees, for whoever reads its files.
pub(super) fn shown(session: &SessionId, mounts: &Mounts) -> Vec<Shown> {
    let each = mounts.iter().map(|(name, mounted)| match &mounted.point {
        Point::Named => Shown::named(session, name, mounted.folder.clone()),
        Point::At(place) => Shown::at(place, mounted.folder.clone()),
    });
    each.collect()
}

#[cfg(test)]
#[path = "mounts_tests.rs"]
mod tests;
