//! Mounts in mounts: what has to be at the place of the second in the first one's folder on the
//! host. Nothing is ever made in a user's folder, and no link is removed.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2, readlinkat};
use nix::sys::stat::{Mode as Rights, SFlag, fstat, mkdirat};

use super::folders::{
    Folder, Mode, Sources, in_words, look, open_below, open_through_links, text_of,
};
use super::names::MountName;
use crate::policy::{InsidePath, SessionId};

/// Where a mount goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Point {
    /// Under its name: in the session's own folder of mounts, or in another mount's that has a
    /// folder at that place.
    Named,
    /// Its place is a link of the app's to the very folder that is wanted there. The link leads to
    /// this path in the session, so that is where the folder has to be.
    At(InsidePath),
}

impl Sources {
    /// Where a mount goes that may lie in one of those that are there already. A folder that is
    /// missing at its place is made where the app keeps its own files, and nowhere else.
    pub(super) fn nested_point<'a>(
        &self,
        session: &SessionId,
        mounted: impl IntoIterator<Item = (&'a MountName, &'a Folder)>,
        name: &MountName,
        wanted: &Folder,
    ) -> Result<Point, String> {
        let holding = mounted
            .into_iter()
            .filter_map(|(above, folder)| Some((above, folder, name.below(above)?)))
            .max_by_key(|(above, ..)| above.depth());
        let Some((above, parent, rest)) = holding else {
            return Ok(Point::Named);
        };
        let refuse = |why: &str| format!("cannot mount {name} in {above}, because {why}");
        let mut at = open_through_links(&parent.path).map_err(|e| refuse(&in_words(e)))?;
        let (_, metadata) = look(&at).map_err(|why| refuse(&why))?;
        if !parent.is_same(metadata.dev(), metadata.ino()) {
            return Err(refuse("the folder there was exchanged"));
        }
        let is_apps = self.is_apps(&parent.path);
        let parts: Vec<&str> = rest.split('/').collect();
        let mut inside = PathBuf::from(above.as_str());
        for (index, part) in parts.iter().enumerate() {
            match step(&at, part) {
                Ok(Step::Folder(next)) => at = next,
                Ok(Step::Link(link)) if is_apps && index + 1 == parts.len() => {
                    return self
                        .behind(session, &at, &link, &inside, wanted)
                        .map_err(|why| refuse(&why));
                }
                Ok(Step::Link(_)) => return Err(refuse("there is a link in its place")),
                Ok(Step::Other) => return Err(refuse("there is a file in its place")),
                Err(Errno::ENOENT) if is_apps && parent.mode != Mode::Read => {
                    return make(at, &parts[index..])
                        .map(|()| Point::Named)
                        .map_err(|e| refuse(&in_words(e)));
                }
                Err(Errno::ENOENT) if is_apps => {
                    return Err(refuse(
                        "nothing is there, and the folder is shared to be read only",
                    ));
                }
                Err(Errno::ENOENT) => {
                    return Err(refuse(
                        "nothing is there, and nothing is made in a folder of yours",
                    ));
                }
                Err(error) => return Err(refuse(&in_words(error))),
            }
            inside.push(part);
        }
        Ok(Point::Named)
    }

    /// Whether a folder lies among the app's own files.
    fn is_apps(&self, path: &Path) -> bool {
        self.real_data().is_some_and(|data| path.starts_with(data))
    }

    /// Where the folder has to be for a link in the session to lead to it.
    fn behind(
        &self,
        session: &SessionId,
        folder: &OwnedFd,
        link: &Path,
        inside: &Path,
        wanted: &Folder,
    ) -> Result<Point, String> {
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let elsewhere = "the link in its place leads elsewhere".to_owned();
        let target = openat2(folder, link, how).map_err(|_| elsewhere.clone())?;
        let (_, metadata) = look(&target)?;
        if !wanted.is_same(metadata.dev(), metadata.ino()) {
            return Err(elsewhere);
        }
        let mounts = Path::new("/sessions").join(session.as_str()).join("mnt");
        let literal = climbed(&mounts.join(inside), link);
        let text = text_of(&literal).ok_or("the link in its place is no text")?;
        // Anywhere else it could cover what the session needs of the system.
        let real = [self.real_home(), self.real_data()].into_iter().flatten();
        let said = self.real_home().map(|_| self.home.clone());
        let said = said
            .into_iter()
            .chain(self.real_data().and(self.app_data.clone()));
        let is_known = literal.starts_with(&mounts) && literal != mounts
            || real.chain(said).any(|folder| literal.starts_with(folder));
        match InsidePath::new(text) {
            Ok(place) if is_known => Ok(Point::At(place)),
            _ => Err("the link in its place cannot be followed in a session".to_owned()),
        }
    }
}

enum Step {
    Folder(OwnedFd),
    Link(PathBuf),
    Other,
}

fn step(folder: &OwnedFd, name: &str) -> Result<Step, Errno> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let found = openat2(folder, name, how)?;
    let kind = fstat(&found)?.st_mode & SFlag::S_IFMT.bits();
    Ok(match SFlag::from_bits_truncate(kind) {
        SFlag::S_IFLNK => Step::Link(readlinkat(&found, "")?.into()),
        SFlag::S_IFDIR => Step::Folder(found),
        _ => Step::Other,
    })
}

fn make(mut at: OwnedFd, parts: &[&str]) -> Result<(), Errno> {
    for part in parts {
        match mkdirat(&at, *part, Rights::S_IRWXU) {
            Ok(()) | Err(Errno::EEXIST) => at = open_below(&at, Path::new(part))?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Where a link in a folder without links leads, by its letters alone.
fn climbed(folder: &Path, link: &Path) -> PathBuf {
    let mut place = match link.is_absolute() {
        true => PathBuf::from("/"),
        false => folder.to_owned(),
    };
    for part in link.components() {
        match part {
            Component::Normal(name) => place.push(name),
            Component::ParentDir => {
                place.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    place
}
