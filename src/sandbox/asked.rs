//! Carries out the steps of an argument list in others' words, each on the result of those before.
//! The host is never below the new root: what a step reaches for there is not to be found.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, readlinkat};
use nix::sys::stat::{FchmodatFlags, Mode, fchmod, fchmodat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

use super::mounts::Site;
use super::place::{self, Kind};
use super::sources::{self, Found};
use super::trouble::{InPart, Trouble};
use super::{asked_systems, overlay, owners};
use crate::plan::{AskedMode, AskedStep, BuildStep, Ground, Origin, OverlayWrites, Part};
use crate::sys::mount::{self, ATTR_NO_DEVICES, ATTR_NO_SETUID, ATTR_READ_ONLY};
use crate::sys::{self, at};

/// What new folders on the way to a place look like when nothing is said about the place itself.
const PRIVATE: u32 = 0o700;

/// The new root while it grows, on top of the host's. Paths of the host start below it, places in
/// the box start from its descriptor.
#[derive(Debug)]
pub(super) struct Stage {
    /// Nothing is there yet when the first step brings the root.
    root: Option<(OwnedFd, at::Identity)>,
    /// Memory without a name inside, for what is to appear there.
    store: Option<OwnedFd>,
    /// The host's /proc, for what has to be said to the kernel when the host is gone.
    pub(super) proc: OwnedFd,
    pub(super) terms: Ground,
    /// By the step's number: what was found out about sources before anything changed.
    found: Vec<(usize, Found)>,
    /// Mounts on top of the host's root that are not the new one.
    pub(super) covers: usize,
    /// Files and folders made in the store so far.
    made: usize,
    /// The caller's descriptors that were used: each is good for one step.
    spent: Vec<RawFd>,
    /// Places whose mounts could not be restricted, for a caller who does not mind.
    pub(super) loose: Vec<PathBuf>,
}

impl Stage {
    pub(super) fn root(&self) -> io::Result<BorrowedFd<'_>> {
        let root = self.root.as_ref().map(|(root, _)| root.as_fd());
        root.ok_or_else(|| Errno::ENOENT.into())
    }

    /// From now on this is the root.
    fn set_root(&mut self, root: OwnedFd) -> io::Result<()> {
        let who = at::identify(root.as_raw_fd(), c"", libc::AT_EMPTY_PATH)?;
        if self.root.replace((root, who)).is_some() {
            self.covers += 1;
        }
        Ok(())
    }

    fn is_root(&self, target: &OwnedFd) -> io::Result<bool> {
        let who = at::identify(target.as_raw_fd(), c"", libc::AT_EMPTY_PATH)?;
        Ok(self.root.as_ref().is_some_and(|(_, root)| *root == who))
    }

    pub(super) fn next_number(&mut self) -> usize {
        self.made += 1;
        self.made
    }

    /// Takes a descriptor of the caller's for one step.
    fn spend(&mut self, fd: RawFd) -> io::Result<()> {
        if self.spent.contains(&fd) {
            return Err(Errno::EBADF.into());
        }
        self.spent.push(fd);
        Ok(())
    }

    pub(super) fn store(&self) -> io::Result<BorrowedFd<'_>> {
        let store = self.store.as_ref().map(AsFd::as_fd);
        store.ok_or_else(|| Errno::ENOENT.into())
    }

    fn take_found(&mut self, number: usize) -> Option<Found> {
        let at = self.found.iter().position(|(step, _)| *step == number)?;
        Some(self.found.swap_remove(at).1)
    }
}

/// Looks for every source, then makes the empty root.
pub(super) fn set_up(site: &mut Site<'_>, terms: &Ground) -> Result<(), Trouble> {
    let found = sources::look_for(site.steps)?;
    let top = at::open_path(Path::new("/"))?;
    if terms.cut_off {
        mount::restrict_tree(top.as_fd(), 0)?;
    }
    let mut stage = Stage {
        root: None,
        store: None,
        proc: at::open_path(Path::new("/proc")).in_part(Part::SourceKind)?,
        terms: terms.clone(),
        found,
        covers: 0,
        made: 0,
        spent: Vec::new(),
        loose: Vec::new(),
    };
    if let Some(label) = &terms.label {
        owners::write_at(&stage.proc, "self/attr/fscreate", label.as_bytes())?;
    }
    if site.steps.iter().any(needs_store) {
        let store = memory().in_part(Part::Mount)?;
        mount::attach(store.as_fd(), top.as_fd())?;
        stage.store = Some(store);
        stage.covers += 1;
    }
    if !brings_root(site.steps) {
        let root = memory().in_part(Part::Mount)?;
        let mode = Mode::from_bits_truncate(0o755);
        fchmodat(&root, ".", mode, FchmodatFlags::FollowSymlink).in_part(Part::Folder)?;
        mount::attach(root.as_fd(), top.as_fd())?;
        stage.set_root(root)?;
    }
    site.stage = Some(stage);
    Ok(())
}

fn memory() -> io::Result<OwnedFd> {
    let safe = ATTR_NO_SETUID | ATTR_NO_DEVICES;
    mount::new_filesystem(c"tmpfs", &[(c"source", c"tmpfs")], safe)
}

/// Whether the first of others' steps puts something at the top, for sure.
fn brings_root(steps: &[BuildStep]) -> bool {
    let first = steps.iter().find_map(|step| match step {
        BuildStep::Asked(step) => Some(step),
        _ => None,
    });
    match first {
        Some(AskedStep::Bind {
            at,
            optional: false,
            ..
        }) => at.as_os_str() == "/",
        _ => false,
    }
}

fn needs_store(step: &BuildStep) -> bool {
    let BuildStep::Asked(step) = step else {
        return false;
    };
    let hidden = OverlayWrites::Hidden;
    matches!(step, AskedStep::Data { .. })
        || matches!(step, AskedStep::Overlay { writes, .. } if *writes == hidden)
}

pub(super) fn apply(site: &mut Site<'_>, number: usize, step: &AskedStep) -> Result<(), Trouble> {
    let Some(stage) = &mut site.stage else {
        return Err(io::Error::from_raw_os_error(libc::ENOENT).into());
    };
    match step {
        AskedStep::Bind {
            from,
            at,
            mode,
            optional,
        } => {
            let found = stage.take_found(number);
            bind(stage, from, found, at, *mode, *optional)
        }
        AskedStep::RemountReadOnly { at } => remount(stage, at),
        AskedStep::Overlay { lower, writes, at } => {
            let target = place::mount_point(stage.root()?, at, Kind::Folder, PRIVATE)?;
            overlay::mount(stage, lower, writes, &target)?;
            if stage.is_root(&target).in_part(Part::Mount)? {
                // Upwards from the top is what lies on top of it.
                let root = at::open_path(Path::new("/..")).in_part(Part::Mount)?;
                stage.set_root(root).in_part(Part::Mount)?;
            }
            Ok(())
        }
        AskedStep::Proc { at } => asked_systems::proc(stage, at),
        AskedStep::Dev { at } => asked_systems::dev(stage, at),
        AskedStep::Tmpfs { at, mode, size } => {
            let label = stage.terms.label.as_deref();
            let tree = asked_systems::tmpfs(*mode, *size, label).in_part(Part::Mount);
            put(stage, tree, at, Kind::Folder, parents_of(*mode))
        }
        AskedStep::MessageQueue { at } => {
            let tree = mount::new_filesystem(c"mqueue", &[(c"source", c"mqueue")], 0);
            put(stage, tree.in_part(Part::Mount), at, Kind::Folder, PRIVATE)
        }
        AskedStep::Folder { at, mode } => {
            let root = stage.root()?;
            place::make_parents(root, at, parents_of(*mode))?;
            place::make_folder(root, at, *mode).in_part(Part::Folder)
        }
        AskedStep::File { from, at, mode } => {
            let root = stage.root()?;
            place::make_parents(root, at, parents_of(*mode))?;
            let made = place::create(root, at, *mode).in_part(Part::File)?;
            stage.spend(*from).in_part(Part::Write)?;
            copy(*from, made).in_part(Part::Write)
        }
        AskedStep::Data {
            from,
            at,
            mode,
            read_only,
        } => data(stage, *from, at, *mode, *read_only),
        AskedStep::Link { to, at } => link(stage.root()?, to, at),
        AskedStep::Chmod { at, mode } => {
            let there = place::open(stage.root()?, at)?;
            let mode = Mode::from_bits_truncate(*mode);
            let by_descriptor = sources::descriptor_link(there.as_raw_fd());
            Ok(fchmodat(
                AT_FDCWD,
                &by_descriptor,
                mode,
                FchmodatFlags::FollowSymlink,
            )?)
        }
        AskedStep::Hostname(name) => Ok(nix::unistd::sethostname(name)?),
    }
}

/// New folders on the way to something that groups or others are kept out of keep them out too.
fn parents_of(mode: u32) -> u32 {
    let group = if mode & 0o070 == 0 { 0o050 } else { 0 };
    let others = if mode & 0o007 == 0 { 0o005 } else { 0 };
    0o755 & !group & !others
}

/// Mounts a tree at a place. What went wrong with the tree is said only when there is a place.
pub(super) fn put(
    stage: &mut Stage,
    tree: Result<OwnedFd, Trouble>,
    at: &Path,
    kind: Kind,
    parent_mode: u32,
) -> Result<(), Trouble> {
    if stage.root.is_none() {
        let (tree, top) = (tree?, at::open_path(Path::new("/")).in_part(Part::Mount)?);
        if kind == Kind::File {
            return Err(Trouble::new(Part::File, Errno::EISDIR.into()));
        }
        mount::attach(tree.as_fd(), top.as_fd()).in_part(Part::Mount)?;
        return stage.set_root(tree).in_part(Part::Mount);
    }
    let target = place::mount_point(stage.root()?, at, kind, parent_mode)?;
    let (tree, is_root) = (tree?, stage.is_root(&target).in_part(Part::Mount)?);
    mount::attach(tree.as_fd(), target.as_fd()).in_part(Part::Mount)?;
    match is_root {
        true => stage.set_root(tree).in_part(Part::Mount),
        false => Ok(()),
    }
}

fn bind(
    stage: &mut Stage,
    from: &Origin,
    found: Option<Found>,
    at: &Path,
    mode: AskedMode,
    optional: bool,
) -> Result<(), Trouble> {
    let tree = match sources::tree_of(from, found) {
        Err(trouble) if optional && trouble.errno() == libc::ENOENT => return Ok(()),
        other => other?,
    };
    let attributes = ATTR_NO_SETUID
        | match mode {
            AskedMode::Write => ATTR_NO_DEVICES,
            AskedMode::Read => ATTR_NO_DEVICES | ATTR_READ_ONLY,
            AskedMode::Devices => 0,
        };
    match mount::restrict_tree(tree.as_fd(), attributes) {
        // The caller said that nobody relies on it, and is told.
        Err(_) if stage.terms.lenient => stage.loose.push(at.to_owned()),
        other => other.in_part(Part::Mount)?,
    }
    let kind = match place::is_folder(tree.as_fd()).in_part(Part::SourceKind)? {
        true => Kind::Folder,
        false => Kind::File,
    };
    put(stage, Ok(tree), at, kind, PRIVATE)?;
    match from {
        Origin::Descriptor(fd) => stage.spend(*fd).in_part(Part::Swapped),
        Origin::Path(_) => Ok(()),
    }
}

fn remount(stage: &Stage, at: &Path) -> Result<(), Trouble> {
    let root = stage.root()?;
    let there = match place::open(root, at) {
        Ok(there) => there,
        Err(_) => {
            place::make_parents(root, at, PRIVATE)?;
            place::open(root, at).in_part(Part::Destination)?
        }
    };
    if !at::is_mount_root(there.as_fd()).in_part(Part::Destination)? {
        return Err(Trouble::new(Part::NotMounted, Errno::EINVAL.into()));
    }
    let attributes = ATTR_READ_ONLY | ATTR_NO_SETUID | ATTR_NO_DEVICES;
    mount::restrict_mount(there.as_fd(), attributes).in_part(Part::Mount)
}

/// Copies what the caller's descriptor has to give.
fn copy(from: RawFd, to: OwnedFd) -> io::Result<()> {
    // Another handle on the same open file: it goes on where the caller's stood.
    let mut from = File::from(sys::fds::duplicate(from)?);
    io::copy(&mut from, &mut File::from(to)).map(drop)
}

fn data(
    stage: &mut Stage,
    from: RawFd,
    at: &Path,
    mode: u32,
    read_only: bool,
) -> Result<(), Trouble> {
    let name = format!("bindfile{}", stage.next_number());
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    let store = stage.store().in_part(Part::Temporary)?;
    let made = nix::fcntl::openat(store, name.as_str(), flags, Mode::from_bits_truncate(0o600))
        .in_part(Part::Temporary)?;
    fchmod(&made, Mode::from_bits_truncate(mode)).in_part(Part::Mode)?;
    stage.spend(from).in_part(Part::Write)?;
    let store = stage.store().in_part(Part::Temporary)?;
    copy(from, made).in_part(Part::Write)?;
    let tree = mount::copy_mount(store, Path::new(&name)).in_part(Part::Mount)?;
    let read_only = if read_only { ATTR_READ_ONLY } else { 0 };
    let attributes = ATTR_NO_SETUID | ATTR_NO_DEVICES | read_only;
    mount::restrict_tree(tree.as_fd(), attributes).in_part(Part::Mount)?;
    put(stage, Ok(tree), at, Kind::File, parents_of(mode))?;
    // Nobody could name it anyway; the mount alone keeps it.
    let store = stage.store().in_part(Part::Temporary)?;
    unlinkat(store, name.as_str(), UnlinkatFlags::NoRemoveDir).in_part(Part::Temporary)
}

fn link(root: BorrowedFd<'_>, to: &Path, at: &Path) -> Result<(), Trouble> {
    place::make_parents(root, at, PRIVATE)?;
    let (parent, name) = place::parent_of(root, at)?;
    let made = symlinkat(to, &parent, name);
    if made != Err(Errno::EEXIST) {
        return Ok(made?);
    }
    match readlinkat(&parent, name) {
        Ok(there) if there == to.as_os_str() => Ok(()),
        Ok(there) => {
            Err(Trouble::new(Part::OtherLink, Errno::EEXIST.into()).with(there.as_bytes()))
        }
        Err(error) => Err(Trouble::new(Part::NotALink, error.into())),
    }
}
