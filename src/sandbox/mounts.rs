//! Carries out the steps that build the box's file tree. Every place is resolved from a
//! descriptor of the new root, every source is opened once.

use std::ffi::{CStr, CString};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, mkdirat, mknodat};
use nix::unistd::{fchdir, symlinkat};

use super::asked::{self, Stage};
use super::owners::{self, Prepared};
use super::trouble::Trouble;
use crate::plan::{BindMode, BuildStep, FirstProcess, Identity, OwnFolder, Plan, Programs, Seen};
use crate::policy::InsidePath;
use crate::sys::mount::{self, ATTR_NO_DEVICES, ATTR_NO_EXEC, ATTR_NO_SETUID, ATTR_READ_ONLY};

const SAFE: u64 = ATTR_NO_SETUID | ATTR_NO_DEVICES;

/// What is known while the tree grows.
#[derive(Debug)]
pub(super) struct Site<'a> {
    pub(super) identity: &'a Identity,
    /// The session's own directory on the host.
    directory: Option<&'a Path>,
    /// Trees the launcher opened beforehand because only it could; by step number.
    pub(super) prepared: Prepared,
    root: Option<OwnedFd>,
    /// Writable copies of guarded mounts, for pid 1 alone.
    pub(super) doors: Vec<(PathBuf, OwnedFd)>,
    /// All that will be done, for steps that look ahead.
    pub(super) steps: &'a [BuildStep],
    /// Where steps in others' words build.
    pub(super) stage: Option<Stage>,
    pub(super) first: &'a FirstProcess,
    /// Whether the box was born in a control group of its own.
    pub(super) has_group: bool,
}

impl<'a> Site<'a> {
    pub(super) fn new(plan: &'a Plan, directory: Option<&'a Path>, prepared: Prepared) -> Self {
        Self {
            identity: &plan.identity,
            directory,
            prepared,
            root: None,
            doors: Vec::new(),
            steps: &plan.build,
            stage: None,
            first: &plan.terms.first,
            has_group: false,
        }
    }

    fn root(&self) -> io::Result<BorrowedFd<'_>> {
        self.root
            .as_ref()
            .map(AsFd::as_fd)
            .ok_or_else(|| errno(libc::ENOENT))
    }

    /// The object at a place in the box that this program made itself.
    fn place(&self, at: &InsidePath) -> io::Result<OwnedFd> {
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW)
            .resolve(inside_only());
        Ok(openat2(self.root()?, at.relative(), how)?)
    }

    fn attach(&self, tree: &OwnedFd, at: &InsidePath) -> io::Result<()> {
        mount::attach(tree.as_fd(), self.place(at)?.as_fd())
    }
}

fn inside_only() -> ResolveFlag {
    ResolveFlag::RESOLVE_IN_ROOT
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_MAGICLINKS
}

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

pub(super) fn apply(site: &mut Site<'_>, number: usize, step: &BuildStep) -> Result<(), Trouble> {
    match step {
        BuildStep::SwitchIds { uid, gid } => owners::switch(*uid, *gid),
        BuildStep::LoopbackFirst => Ok(crate::sys::net::loopback_up()?),
        BuildStep::MapCaller { uid, gid } => owners::map_caller(site.identity, *uid, *gid),
        BuildStep::Stage(terms) => asked::set_up(site, terms),
        BuildStep::Asked(step) => asked::apply(site, number, step),
        own => Ok(apply_own(site, number, own)?),
    }
}

fn apply_own(site: &mut Site<'_>, number: usize, step: &BuildStep) -> io::Result<()> {
    match step {
        BuildStep::MapIds => owners::become_inside(site.identity),
        BuildStep::NewRoot => new_root(site),
        BuildStep::Folder { at, mode } => {
            mkdirat(site.root()?, at.relative(), Mode::from_bits_truncate(*mode))?;
            Ok(())
        }
        BuildStep::Link { at, to } => Ok(symlinkat(to, site.root()?, at.relative())?),
        BuildStep::File { at, content } => write_file(site, at, content.as_bytes()),
        BuildStep::Copy { at, content } => write_file(site, at, content),
        BuildStep::System { path, at, .. } => {
            let tree = mount::copy_tree(mount::here(), path)?;
            mount::restrict_tree(tree.as_fd(), ATTR_READ_ONLY | SAFE)?;
            site.attach(&tree, at)
        }
        BuildStep::Bind {
            from,
            seen,
            at,
            mode,
            is_folder,
        } => bind(
            site,
            number,
            Wanted {
                from,
                seen,
                at,
                mode: *mode,
                is_folder: *is_folder,
            },
        ),
        BuildStep::Own {
            folder,
            at,
            guarded,
        } => own(site, number, *folder, at, *guarded),
        BuildStep::Programs(programs) => make_programs(site, programs),
        BuildStep::MountPoints { from, at } => {
            let tree = mount::copy_mount(site.place(from)?.as_fd(), Path::new(""))?;
            mount::restrict_tree(tree.as_fd(), ATTR_READ_ONLY | SAFE)?;
            site.attach(&tree, at)
        }
        BuildStep::Tmpfs { at, size, mode } => {
            let size = option(size.0)?;
            let inodes = option(1 << 20)?;
            let mode = CString::new(format!("{mode:o}"))?;
            let options = [
                (c"size", size.as_c_str()),
                (c"nr_inodes", &inodes),
                (c"mode", &mode),
            ];
            site.attach(&mount::new_filesystem(c"tmpfs", &options, SAFE)?, at)
        }
        BuildStep::Proc { at } => {
            let proc = mount::new_filesystem(c"proc", &[], SAFE | ATTR_NO_EXEC)?;
            site.attach(&proc, at)
        }
        BuildStep::Device { name } => device(site, name),
        BuildStep::Terminals { at } => {
            let options = [(c"ptmxmode", c"0666"), (c"mode", c"0600")];
            let attributes = ATTR_NO_SETUID | ATTR_NO_EXEC;
            site.attach(&mount::new_filesystem(c"devpts", &options, attributes)?, at)
        }
        // The group's files are the user's outside of the box, so nothing but the mount keeps
        // programs from writing there.
        BuildStep::OwnLimits { at } if site.has_group => {
            let attributes = ATTR_READ_ONLY | SAFE | ATTR_NO_EXEC;
            site.attach(&mount::new_filesystem(c"cgroup2", &[], attributes)?, at)
        }
        BuildStep::OwnLimits { .. } => Ok(()),
        BuildStep::Mask { at } => {
            let null = mount::copy_mount(mount::here(), Path::new("/dev/null"))?;
            mount::restrict_tree(null.as_fd(), ATTR_READ_ONLY | ATTR_NO_SETUID | ATTR_NO_EXEC)?;
            match site.attach(&null, at) {
                // A kernel without the file has nothing to hide.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
                other => other,
            }
        }
        BuildStep::EnterRoot => {
            let (root, covers) = match &site.stage {
                Some(stage) => (stage.root()?, stage.covers),
                None => (site.root()?, 0),
            };
            fchdir(root)?;
            mount::enter_current_directory_as_root(covers)
        }
        BuildStep::SwitchIds { .. }
        | BuildStep::LoopbackFirst
        | BuildStep::MapCaller { .. }
        | BuildStep::Stage(_)
        | BuildStep::Asked(_) => Err(errno(libc::ENOSYS)),
    }
}

fn option(value: u64) -> io::Result<CString> {
    Ok(CString::new(value.to_string())?)
}

fn new_root(site: &mut Site<'_>) -> io::Result<()> {
    let options: [(&CStr, &CStr); 3] = [
        (c"size", c"16m"),
        (c"nr_inodes", c"8192"),
        (c"mode", c"0755"),
    ];
    let root = mount::new_filesystem(c"tmpfs", &options, SAFE)?;
    // It has to hang somewhere until it is entered; on top of the old root nothing is hidden
    // from paths, because those start at the old root below it.
    let top = openat2(
        AT_FDCWD,
        "/",
        OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC),
    )?;
    mount::attach(root.as_fd(), top.as_fd())?;
    site.root = Some(root);
    Ok(())
}

/// Fills the folder of programs before anybody sees it.
fn make_programs(site: &Site<'_>, programs: &Programs) -> io::Result<()> {
    let host = mount::copy_tree(mount::here(), Path::new("/usr"))?;
    mount::restrict_tree(host.as_fd(), ATTR_READ_ONLY | SAFE)?;
    site.attach(&host, &programs.host)?;
    // Every name costs at most a page of memory, and as many may come later as are there.
    let inodes = 2 * programs.links.len() as u64 + 1024;
    let (size, inodes) = (option(inodes * 4096)?, option(inodes)?);
    let options: [(&CStr, &CStr); 3] = [
        (c"size", &size),
        (c"nr_inodes", &inodes),
        (c"mode", c"0755"),
    ];
    let folder = mount::new_filesystem(c"tmpfs", &options, SAFE)?;
    for missing in programs.missing() {
        mkdirat(&folder, &missing, Mode::from_bits_truncate(0o755))?;
    }
    for (name, to) in &programs.links {
        symlinkat(to, &folder, name.as_os_str())?;
    }
    mount::restrict_tree(folder.as_fd(), ATTR_READ_ONLY | SAFE)?;
    site.attach(&folder, &programs.covers)
}

fn write_file(site: &Site<'_>, at: &InsidePath, content: &[u8]) -> io::Result<()> {
    let how = OpenHow::new()
        .flags(OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC)
        .mode(Mode::from_bits_truncate(0o644))
        .resolve(inside_only());
    let fd = openat2(site.root()?, at.relative(), how)?;
    std::fs::File::from(fd).write_all(content)
}

fn own(
    site: &mut Site<'_>,
    number: usize,
    folder: OwnFolder,
    at: &InsidePath,
    guarded: bool,
) -> io::Result<()> {
    let (tree, door) = match site.prepared.take(number) {
        Some(tree) => (tree, site.prepared.take_door(number)),
        None => {
            let directory = site.directory.ok_or_else(|| errno(libc::ENOENT))?;
            let source = open_own(&directory.join(folder.path()))?;
            let copy = || mount::copy_tree(source.as_fd(), Path::new(""));
            (copy()?, guarded.then(copy).transpose()?)
        }
    };
    if let Some(door) = door {
        mount::restrict_tree(door.as_fd(), SAFE)?;
        site.doors.push((at.as_path().to_owned(), door));
    }
    let read_only = if guarded { ATTR_READ_ONLY } else { 0 };
    mount::restrict_tree(tree.as_fd(), SAFE | read_only)?;
    site.attach(&tree, at)
}

struct Wanted<'a> {
    from: &'a Path,
    seen: &'a Seen,
    at: &'a InsidePath,
    mode: BindMode,
    is_folder: bool,
}

fn bind(site: &mut Site<'_>, number: usize, wanted: Wanted<'_>) -> io::Result<()> {
    let (tree, door) = match site.prepared.take(number) {
        Some(tree) => (tree, site.prepared.take_door(number)),
        None => {
            // Opened once: both copies are of what was seen.
            let source = open_seen(wanted.from, wanted.seen, wanted.is_folder)?;
            let copy = || mount::copy_tree(source.as_fd(), Path::new(""));
            (copy()?, wanted.mode.is_guarded().then(copy).transpose()?)
        }
    };
    if let Some(door) = door {
        mount::restrict_tree(door.as_fd(), SAFE)?;
        site.doors.push((wanted.at.as_path().to_owned(), door));
    }
    let attributes = match wanted.mode {
        BindMode::Write => SAFE,
        BindMode::Read | BindMode::Guarded | BindMode::Kept => SAFE | ATTR_READ_ONLY,
    };
    mount::restrict_tree(tree.as_fd(), attributes)?;
    site.attach(&tree, wanted.at)
}

/// Opens what the planner looked at: no link on the way, and the same object as then.
pub(super) fn open_seen(path: &Path, seen: &Seen, is_folder: bool) -> io::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let fd = openat2(AT_FDCWD, path, how)?;
    let now = fstat(&fd)?;
    let same = (now.st_dev, now.st_ino) == (seen.device, seen.inode);
    if same && is_dir(&now) == is_folder {
        Ok(fd)
    } else {
        Err(errno(libc::ESTALE))
    }
}

/// Opens a folder of the session: the last step follows no link and it must be ours.
pub(super) fn open_own(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_DIRECTORY;
    Ok(nix::fcntl::open(path, flags, Mode::empty())?)
}

fn is_dir(stat: &FileStat) -> bool {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR
}

fn device(site: &Site<'_>, name: &str) -> io::Result<()> {
    let at = InsidePath::new(Path::new("/dev").join(name)).map_err(|_| errno(libc::EINVAL))?;
    let source = mount::copy_mount(mount::here(), at.as_path())?;
    let kind = SFlag::from_bits_truncate(fstat(&source)?.st_mode) & SFlag::S_IFMT;
    if kind != SFlag::S_IFCHR {
        return Err(errno(libc::ENODEV));
    }
    mknodat(
        site.root()?,
        at.relative(),
        SFlag::S_IFREG,
        Mode::from_bits_truncate(0o666),
        0,
    )?;
    mount::restrict_tree(source.as_fd(), ATTR_NO_SETUID | ATTR_NO_EXEC)?;
    site.attach(&source, &at)
}
