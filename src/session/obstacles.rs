//! What is in the way of a mount that comes or goes while a session runs, and how that is said.

use std::io;
use std::path::Path;

use super::changes::noted;
use super::supervise::Life;
use crate::plan::BindMode;
use crate::policy::InsidePath;
use crate::sandbox::LiveMount;

impl Life<'_> {
    /// What was mounted while it ran below a place.
    pub(super) fn first_in(&self, place: &InsidePath) -> Option<&LiveMount> {
        let mut mounted = self.mounted.iter();
        mounted.find(|mount| mount.point.at != *place && mount.point.at.starts_with(place))
    }

    /// What would be hidden or confused by it is in its way. What it is to take the place of is
    /// not, and comes back.
    pub(super) fn in_the_way_of(
        &self,
        wanted: &LiveMount,
        replace: bool,
    ) -> Result<Option<LiveMount>, String> {
        let place = &wanted.point.at;
        let old = self.mounted.iter().find(|live| live.point.at == *place);
        // Where the same goes on being seen, nothing in it is hidden.
        let hides = !old.is_some_and(|old| replace && old.looks_like(wanted));
        let at_start = self.record.mounts.iter().cloned();
        for mount in at_start.chain(self.mounted.iter().map(noted)) {
            let is_below = Path::new(&mount.place).starts_with(place.as_path());
            if is_below && hides && mount.place != wanted.place() {
                return Err(format!(
                    "{} is mounted below it and would be hidden; unmount that first",
                    mount.place
                ));
            }
            let is_live = self.mounted.iter().any(|live| live.place() == mount.place);
            if mount.place == wanted.place() && !(replace && is_live) {
                let remedy = match is_live {
                    true => "; --replace exchanges it",
                    false => ", since the session started",
                };
                let (at, source) = (&mount.place, &mount.source);
                return Err(format!("{at} is there already: {source}{remedy}"));
            }
        }
        if self.changes.touch(place) {
            return Err(format!("{place} is being changed already; ask again"));
        }
        match self.overlapping(wanted) {
            Some(other) if !wanted.despite_overlap => {
                return Err(format!(
                    "{other} is shared already, and what is written through one would go past the \
                     guard of the other"
                ));
            }
            _ => {}
        }
        match old {
            Some(old) if old.is_folder != wanted.is_folder => {
                Err("a file and a folder cannot be exchanged; unmount it first".to_owned())
            }
            old => Ok(old.cloned()),
        }
    }

    /// Another source, shared elsewhere, that this one's overlaps with: a guard knows a file by its
    /// name below one folder. Where both are only read it does not matter.
    pub(super) fn overlapping(&self, wanted: &LiveMount) -> Option<String> {
        let at_start = self.record.mounts.iter().cloned();
        let coming = self.changes.mounts();
        let later = self.mounted.iter().chain(coming).map(noted);
        let mut others = at_start
            .chain(later)
            .filter(|mount| mount.place != wanted.place());
        let found = others.find(|mount| {
            let (one, other) = (Path::new(&mount.source), wanted.source.as_path());
            let both_read = mount.mode == "ro" && wanted.mode == BindMode::Read;
            (one.starts_with(other) || other.starts_with(one)) && !both_read
        });
        found.map(|mount| mount.source)
    }
}

/// `in_box` says where it went wrong: there, or with the folder that was to be shown.
pub(super) fn why_not_changed(error: &io::Error, mount: &LiveMount, in_box: bool) -> String {
    let (name, at) = (&mount.name, &mount.point.at);
    match (error.raw_os_error(), in_box) {
        (Some(libc::EINTR), _) => "a process that was to do it was killed; ask again".to_owned(),
        (Some(libc::ESTALE), false) => {
            "the folder was replaced by another one meanwhile".to_owned()
        }
        (Some(libc::ELOOP), false) => "a link came in the way meanwhile".to_owned(),
        (Some(libc::EEXIST), true) => "there is something of that name in the box".to_owned(),
        (Some(libc::EBUSY), true) => format!("a program uses `{name}`; --force takes it away"),
        (Some(libc::EAGAIN), true) => "others were in the way; ask again".to_owned(),
        (Some(libc::ESTALE), true) => {
            format!("what was mounted at `{name}` is not there any more; unmount it, then mount")
        }
        (Some(libc::ELOOP), true) => format!(
            "there is a link at {at} or on the way there, and links are not followed; put a folder \
             there on the host"
        ),
        (Some(libc::ENOENT), true) => format!(
            "{at} would lie in another mount, where nothing is made for it; make that folder on \
             the host first"
        ),
        (Some(libc::ENOTDIR | libc::EISDIR), true) => {
            format!("what is at {at} or on the way there is not of the right kind")
        }
        _ => format!("`{name}` cannot be changed: {error}"),
    }
}
