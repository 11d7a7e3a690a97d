//! How much a session's folders hold, counted a little at a time.
//!
//! No quota is to be had without root, so the folders are walked. When is decided by the free
//! space of their disk, which costs one call to ask and is taken from there by whoever fills a
//! folder, and by what the box's processes have written, which others cannot make up for.

use std::collections::HashSet;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::dir::{Dir, OwningIter};
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{SFlag, fstat, fstatat};
use nix::sys::statvfs::fstatvfs;

/// How long one step of a walk may take.
const STEP: Duration = Duration::from_millis(5);
/// How many entries are looked at between two looks at the clock.
const BATCH: usize = 64;
/// The kernel takes no longer names at once.
const LONGEST_PATH: usize = 4000;
/// Without a sign that something fills up, the folders of a busy box are walked this often.
const SELDOM: Duration = Duration::from_secs(30);
/// After the last walk, how soon a box that has come to rest is walked for good.
const AT_REST: Duration = Duration::from_secs(1);
/// No more than a twentieth of the time is spent walking.
const SHARE: u32 = 20;

/// What the folders hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Total {
    pub(super) bytes: u64,
    pub(super) files: u64,
    /// Folders that could not be looked into.
    pub(super) hidden: u64,
}

/// Free space on the disks below the folders: bytes and inodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Free {
    bytes: u64,
    files: u64,
}

/// What the box is doing, as far as that says something about its folders.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Signs {
    pub(super) is_quiet: bool,
    /// What its processes have written since they were born.
    pub(super) written: u64,
}

#[derive(Debug)]
pub(super) struct Folders {
    /// The most that the disks were seen to have free.
    most_free: Free,
    /// Somebody has done something since the last walk.
    is_stale: bool,
    walk: Option<Walk>,
    last: Option<Walked>,
}

#[derive(Debug, Clone, Copy)]
struct Walked {
    total: Total,
    free: Free,
    written: u64,
    at: Instant,
    spent: Duration,
}

impl Folders {
    pub(super) fn new(roots: &[OwnedFd]) -> Self {
        Self {
            most_free: free(roots),
            is_stale: true,
            walk: None,
            last: None,
        }
    }

    pub(super) fn last(&self) -> Option<Total> {
        self.last.map(|walked| walked.total)
    }

    /// Whether there is something to do even though the box rests.
    pub(super) fn is_at_work(&self) -> bool {
        self.walk.is_some() || self.is_stale
    }

    pub(super) fn is_walking(&self) -> bool {
        self.walk.is_some()
    }

    /// How much less the disks have free than they had, whoever took it.
    pub(super) fn taken(&self, roots: &[OwnedFd]) -> u64 {
        self.most_free.bytes.saturating_sub(free(roots).bytes)
    }

    /// Goes on counting if there is a reason to, for a moment. Returns what is known to be there
    /// as soon as that is everything, or more than `enough`.
    pub(super) fn step(&mut self, roots: &[OwnedFd], enough: Total, signs: Signs) -> Option<Total> {
        let now = Instant::now();
        self.is_stale |= !signs.is_quiet;
        if self.walk.is_none() {
            let free = free(roots);
            self.most_free.bytes = self.most_free.bytes.max(free.bytes);
            if !self.is_due(now, free, enough, signs) {
                return None;
            }
            self.walk = Some(Walk::new(roots, free, signs.written));
            self.is_stale = !signs.is_quiet;
        }
        let walk = self.walk.as_mut()?;
        let is_done = walk.step(roots, enough, now + STEP);
        walk.spent += now.elapsed();
        if !is_done {
            return None;
        }
        let total = walk.total;
        self.last = Some(Walked {
            total,
            free: walk.free,
            written: walk.written,
            at: Instant::now(),
            spent: walk.spent,
        });
        self.walk = None;
        Some(total)
    }

    fn is_due(&self, now: Instant, free: Free, enough: Total, signs: Signs) -> bool {
        let Some(last) = self.last else { return true };
        let since = now.saturating_duration_since(last.at);
        if since < last.spent * SHARE {
            return false;
        }
        // Less free than at the last walk by a good part of what the box may still take.
        let is_taken = |before: u64, now: u64, room: u64| before.saturating_sub(now) > room / 4;
        let room = enough.bytes.saturating_sub(last.total.bytes);
        let entries = enough.files.saturating_sub(last.total.files);
        let is_seldom_enough = match signs.is_quiet {
            false => since >= SELDOM,
            true => self.is_stale && since >= AT_REST,
        };
        is_taken(last.free.bytes, free.bytes, room)
            || is_taken(last.free.files, free.files, entries)
            || signs.written.saturating_sub(last.written) > room / 4
            || is_seldom_enough
    }
}

/// Of several disks the sum; folders on the same one count it once.
fn free(roots: &[OwnedFd]) -> Free {
    let mut seen = HashSet::new();
    let mut sum = Free::default();
    for root in roots {
        if let (Ok(place), Ok(disk)) = (fstat(root.as_fd()), fstatvfs(root))
            && seen.insert(place.st_dev)
        {
            sum.bytes += disk.blocks_free() * disk.fragment_size();
            sum.files += disk.files_free();
        }
    }
    sum
}

struct Walk {
    total: Total,
    free: Free,
    written: u64,
    spent: Duration,
    /// Folders still to be looked into: which root, and the path below it.
    ahead: Vec<(usize, PathBuf)>,
    here: Option<Here>,
    /// Files with several names count once.
    linked: HashSet<(u64, u64)>,
}

struct Here {
    root: usize,
    path: PathBuf,
    device: u64,
    folder: OwnedFd,
    entries: OwningIter,
}

impl std::fmt::Debug for Walk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walk")
            .field("total", &self.total)
            .field("ahead", &self.ahead.len())
            .finish_non_exhaustive()
    }
}

impl Walk {
    fn new(roots: &[OwnedFd], free: Free, written: u64) -> Self {
        let ahead = (0..roots.len()).map(|root| (root, PathBuf::new()));
        Self {
            total: Total::default(),
            free,
            written,
            spent: Duration::ZERO,
            ahead: ahead.collect(),
            here: None,
            linked: HashSet::new(),
        }
    }

    /// Whether all has been seen, or enough.
    fn step(&mut self, roots: &[OwnedFd], enough: Total, until: Instant) -> bool {
        loop {
            for _ in 0..BATCH {
                if self.total.bytes > enough.bytes || self.total.files > enough.files {
                    return true;
                }
                if !self.look_at_next(roots) {
                    return true;
                }
            }
            if Instant::now() >= until {
                return false;
            }
        }
    }

    /// Looks at one entry, or opens one folder; false when nothing is left.
    fn look_at_next(&mut self, roots: &[OwnedFd]) -> bool {
        let Some(here) = &mut self.here else {
            let Some((root, path)) = self.ahead.pop() else {
                return false;
            };
            match Here::open(roots, root, path) {
                Some(here) => self.here = Some(here),
                None => self.total.hidden += 1,
            }
            return true;
        };
        let Some(Ok(entry)) = here.entries.next() else {
            self.here = None;
            return true;
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            return true;
        }
        // What has gone meanwhile takes no room.
        let Ok(seen) = fstatat(&here.folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) else {
            return true;
        };
        let is_folder = SFlag::from_bits_truncate(seen.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR;
        if seen.st_dev != here.device {
            return true;
        }
        if !is_folder && seen.st_nlink > 1 && !self.linked.insert((seen.st_dev, seen.st_ino)) {
            return true;
        }
        self.total.files += 1;
        self.total.bytes += seen.st_blocks as u64 * 512;
        if is_folder {
            let below = here.path.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
            self.ahead.push((here.root, below));
        }
        true
    }
}

impl Here {
    fn open(roots: &[OwnedFd], root: usize, path: PathBuf) -> Option<Self> {
        let folder = open_below(&roots[root], &path)?;
        let device = fstat(folder.as_fd()).ok()?.st_dev;
        let entries = Dir::from_fd(folder.try_clone().ok()?).ok()?.into_iter();
        Some(Self {
            root,
            path,
            device,
            folder,
            entries,
        })
    }
}

/// Opens a folder below another, never through a link and never out of it, however deep.
fn open_below(root: &OwnedFd, path: &Path) -> Option<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let open = |from: &OwnedFd, name: &[u8]| {
        let how = OpenHow::new().flags(flags).resolve(
            ResolveFlag::RESOLVE_BENEATH
                | ResolveFlag::RESOLVE_NO_SYMLINKS
                | ResolveFlag::RESOLVE_NO_XDEV,
        );
        openat2(from, CString::new(name).ok()?.as_c_str(), how).ok()
    };
    let mut left = path.as_os_str().as_bytes();
    let mut at = open(root, b".")?;
    while !left.is_empty() {
        let cut = match left.len() {
            short if short <= LONGEST_PATH => short,
            _ => left[..LONGEST_PATH].iter().rposition(|b| *b == b'/')?,
        };
        at = open(&at, &left[..cut])?;
        left = left.get(cut + 1..).unwrap_or_default();
    }
    Some(at)
}

#[cfg(test)]
#[path = "folders_tests.rs"]
mod tests;
