//! Looks at a folder that is to be shared, once, and decides whether it may be.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};

use super::etc::small_file;
use crate::plan::{Needed, Seen, Source};
use crate::policy::{Access, MountSpec};

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("cannot mount {path}")]
    Unreachable { path: String, source: io::Error },
    #[error("cannot mount {path}, because it is {what}")]
    NotAFolder { path: String, what: &'static str },
    #[error("cannot mount {path}, because {why}")]
    TooWide { path: String, why: &'static str },
}

impl SourceError {
    pub fn help(&self) -> Option<String> {
        Some(match self {
            Self::Unreachable { source, .. } => match source.raw_os_error() {
                Some(libc::ENOENT) => "check the spelling; nothing is created for you".into(),
                Some(libc::EACCES) => "you may not read it; choose a folder of your own".into(),
                _ => "name a folder that you can open".into(),
            },
            Self::NotAFolder { .. } => "mount the folder that holds it".into(),
            Self::TooWide { .. } => "mount the project's own folder".into(),
        })
    }
}

/// Resolves a mount's source: links are followed now and never again.
pub fn look_at(spec: &MountSpec, off_limits: &OffLimits) -> Result<Source, SourceError> {
    look(spec, off_limits, false).map(|(source, _)| source)
}

/// The same, for a folder or for a file that is only to be read. Says which it is.
pub fn look_at_either(
    spec: &MountSpec,
    off_limits: &OffLimits,
) -> Result<(Source, bool), SourceError> {
    look(spec, off_limits, spec.access == Access::Read)
}

fn look(
    spec: &MountSpec,
    off_limits: &OffLimits,
    or_file: bool,
) -> Result<(Source, bool), SourceError> {
    let shown = spec.source.display().to_string();
    let unreachable = |source| SourceError::Unreachable {
        path: shown.clone(),
        source,
    };
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let fd = openat2(AT_FDCWD, &spec.source, how).map_err(|error| match error {
        // In words of our own: those of the C libraries differ.
        Errno::ELOOP => SourceError::TooWide {
            path: shown.clone(),
            why: "its links lead in a circle or through /proc",
        },
        other => unreachable(other.into()),
    })?;
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let path = std::fs::read_link(&link).map_err(unreachable)?;
    let metadata = std::fs::metadata(&link).map_err(unreachable)?;
    let is_file = or_file && metadata.is_file();
    if let (Some(what), false) = (not_a_folder(&metadata), is_file) {
        return Err(SourceError::NotAFolder { path: shown, what });
    }
    let wanted = match is_file {
        true => nix::unistd::AccessFlags::R_OK,
        false => nix::unistd::AccessFlags::R_OK | nix::unistd::AccessFlags::X_OK,
    };
    nix::unistd::access(link.as_str(), wanted).map_err(|e| unreachable(e.into()))?;
    if let Some(why) = off_limits.objection(&path) {
        return Err(SourceError::TooWide { path: shown, why });
    }
    let name = own_name(&spec.source)
        .or_else(|| own_name(&path))
        .unwrap_or_else(|| "w".into());
    let seen = seen(&metadata);
    let source = Source {
        path,
        seen,
        place: spec.place.clone(),
        name,
        access: spec.access,
    };
    Ok((source, !is_file))
}

fn own_name(path: &Path) -> Option<OsString> {
    path.file_name().map(OsString::from)
}

pub(super) fn seen(metadata: &std::fs::Metadata) -> Seen {
    Seen {
        device: metadata.dev(),
        inode: metadata.ino(),
        uid: metadata.uid(),
        gid: metadata.gid(),
    }
}

fn not_a_folder(metadata: &std::fs::Metadata) -> Option<&'static str> {
    use std::os::unix::fs::FileTypeExt;
    let kind = metadata.file_type();
    match () {
        () if kind.is_dir() => None,
        () if kind.is_file() => Some("a file"),
        () if kind.is_socket() => Some("a socket"),
        () if kind.is_fifo() => Some("a FIFO"),
        () => Some("a device"),
    }
}

/// Folders of keys below a home, which no box is ever shown.
const KEYS: [&str; 9] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".kube",
    ".docker",
    ".password-store",
    ".azure",
    ".config/gcloud",
    ".mozilla",
];

pub(super) fn holds_keys(path: &Path, home: &Path) -> bool {
    let below = path.strip_prefix(home);
    below.is_ok_and(|below| KEYS.iter().any(|name| below.starts_with(name)))
}

/// What must not be shared: a folder that holds it would show more than a project, or let the
/// box change its own walls.
#[derive(Debug)]
pub struct OffLimits {
    state: PathBuf,
    home: Option<PathBuf>,
}

impl OffLimits {
    /// Resolves the two paths once for all mounts.
    pub fn new(state: &Path, home: Option<PathBuf>) -> Self {
        let resolved =
            |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let home = home
            .filter(|home| home.is_absolute())
            .map(|home| resolved(&home));
        Self {
            state: resolved(state),
            home: home.filter(|home| home != Path::new("/")),
        }
    }

    /// Why this folder may not be shared.
    fn objection(&self, path: &Path) -> Option<&'static str> {
        // On merged systems /bin is a link, so what it leads to is named as well.
        const SYSTEM: [&str; 17] = [
            "/",
            "/bin",
            "/boot",
            "/dev",
            "/etc",
            "/home",
            "/lib",
            "/proc",
            "/root",
            "/run",
            "/sbin",
            "/sys",
            "/usr",
            "/usr/bin",
            "/usr/lib",
            "/usr/sbin",
            "/var",
        ];
        const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];
        let is_home = self
            .home
            .as_ref()
            .is_some_and(|home| home.starts_with(path));
        let has_keys = |home: &PathBuf| holds_keys(path, home);
        Some(match () {
            () if SYSTEM.iter().any(|name| path == Path::new(name)) => {
                "that is a part of the system"
            }
            () if KERNEL.iter().any(|name| path.starts_with(name)) => {
                "that is a view of the kernel, not a folder of files"
            }
            () if path.starts_with(&self.state) => "that is where sessions keep their state",
            () if is_home => "it holds your whole home, with every key in it",
            () if self.state.starts_with(path) => "it holds the state of all sessions",
            () if self.home.as_ref().is_some_and(has_keys) => "it holds keys",
            () => return None,
        })
    }
}

/// A path the policy wants seen, read-only and at the same place.
pub fn visible(path: &Path) -> Result<Needed, SourceError> {
    let unreachable = |source| SourceError::Unreachable {
        path: path.display().to_string(),
        source,
    };
    let path = std::fs::canonicalize(path).map_err(unreachable)?;
    let metadata = std::fs::metadata(&path).map_err(unreachable)?;
    let system = ["/proc", "/sys", "/dev"]
        .iter()
        .any(|name| path.starts_with(name));
    if system || path == Path::new("/") {
        let why = "that is a part of the system";
        return Err(SourceError::TooWide {
            path: path.display().to_string(),
            why,
        });
    }
    Ok(Needed {
        seen: seen(&metadata),
        is_folder: metadata.is_dir(),
        why: "the policy shows it".to_owned(),
        link_to: None,
        access: Access::Read,
        path,
    })
}

/// What a linked worktree needs besides its own folder: the repository it belongs to.
///
/// The pointer is the repository's word against the disk's, so it must be answered: the folder
/// it names has to point back at this worktree, which a hostile checkout cannot arrange.
pub fn worktree(source: &Source) -> Option<Needed> {
    let pointer = small_file(&source.path.join(".git"))?;
    let target = String::from_utf8(pointer).ok()?;
    let target = PathBuf::from(target.strip_prefix("gitdir:")?.trim());
    let target = std::fs::canonicalize(source.path.join(target)).ok()?;
    let back = String::from_utf8(small_file(&target.join("gitdir"))?).ok()?;
    if std::fs::canonicalize(back.trim()).ok()? != source.path.join(".git") {
        return None;
    }
    let common = String::from_utf8(small_file(&target.join("commondir"))?).ok()?;
    let common = std::fs::canonicalize(target.join(common.trim())).ok()?;
    let whole = target.starts_with(&common)
        && common.join("HEAD").is_file()
        && common.join("objects").is_dir();
    if !whole || source.path.starts_with(&common) || common.starts_with(&source.path) {
        return None;
    }
    let metadata = std::fs::metadata(&common).ok()?;
    Some(Needed {
        path: common,
        seen: seen(&metadata),
        is_folder: true,
        why: format!(
            "{} is a worktree of the repository there",
            source.path.display()
        ),
        link_to: None,
        access: source.access,
    })
}
