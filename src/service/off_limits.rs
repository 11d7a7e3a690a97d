//! What is never shared with a session of the app's. Looked at by its number on the disk as well
//! as by its name: a folder that is mounted twice has two names.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fstat};

use super::folders::Sources;

/// A system's own folders, with everything in them.
const SYSTEM: [&str; 13] = [
    "/bin",
    "/boot",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/root",
    "/run",
    "/sbin",
    "/usr",
    "/var/lib",
    "/lost+found",
];
/// Too wide by themselves; what lies in them is somebody's.
const TOO_WIDE: [&str; 5] = ["/", "/home", "/tmp", "/var", "/var/home"];
/// No folders of files; also where the home is said to lie in one.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];
/// What lies on removable disks is the user's, and what is kept in memory as a file.
const OF_USERS: [&str; 2] = ["/run/media", "/dev/shm"];
/// Below a home, with everything in them.
const KEYS: [&str; 15] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".kube",
    ".docker",
    ".password-store",
    ".azure",
    ".mozilla",
    ".pki",
    ".config/gcloud",
    ".config/google-chrome",
    ".config/chromium",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".config/cowork-linux",
];
/// No tree is deeper for anybody's purposes.
const DEEPEST: usize = 512;

type Number = (u64, u64);

#[derive(Debug)]
pub(super) struct OffLimits {
    home: PathBuf,
    allow_home: bool,
    app_data: Vec<PathBuf>,
    /// Not to be shared with anything in them.
    whole: Vec<(PathBuf, Option<Number>, &'static str)>,
    /// Those of the folders that hold one of the above.
    above: Vec<(Number, &'static str)>,
}

const SYSTEMS: &str = "that is a part of the system";
const VIEW: &str = "that is a view of the kernel, not a folder of files";
const WIDE: &str = "it holds more than a project";
const HOME: &str = "it is your whole home, with every key in it; start the helper with \
                    --allow-home if you mean it";
const ABOVE_HOME: &str = "it holds your whole home, with every key in it";
const HAS_KEYS: &str = "it holds keys or passwords";
const OURS: &str = "that is where sessions keep their state";
const ABOVE_OURS: &str = "it holds the state of all sessions";
const APPS: &str = "that is the app's own folder, with what it logs in with";

impl OffLimits {
    /// Looks everything up once, for one decision.
    pub(super) fn new(sources: &Sources) -> Self {
        let resolved = |path: &PathBuf| fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        let home = resolved(&sources.home);
        let usual = home.join(".config/Claude");
        let app_data: Vec<PathBuf> = sources
            .app_data
            .iter()
            .chain([&usual])
            .map(resolved)
            .collect();
        let mut whole = Vec::new();
        let mut above = BTreeMap::new();
        for own in sources.own.iter().map(resolved) {
            above_of(&own, ABOVE_OURS, &mut above);
            whole.push((own.clone(), number(&own), OURS));
        }
        for name in KEYS {
            let keys = resolved(&home.join(name));
            above_of(&keys, HAS_KEYS, &mut above);
            whole.push((keys.clone(), number(&keys), HAS_KEYS));
        }
        for data in &app_data {
            above_of(data, APPS, &mut above);
        }
        above_of(&home, ABOVE_HOME, &mut above);
        let above = above.into_iter();
        let above = above.filter_map(|(path, why)| Some((number(&path)?, why)));
        Self {
            above: above.collect(),
            allow_home: sources.allow_home,
            home,
            app_data,
            whole,
        }
    }

    /// Why this may not be shared. `path` is the one name that it has now.
    pub(super) fn objection(&self, opened: &OwnedFd, path: &Path) -> Option<&'static str> {
        let line = ancestry(opened);
        let own = line.first().copied();
        let is_home = path == self.home || (own.is_some() && own == number(&self.home));
        if is_home && !is_wide(path) {
            return (!self.allow_home).then_some(HOME);
        }
        self.by_name(path).or_else(|| self.by_number(&line))
    }

    /// Why nothing may be made at this path, below a folder that is there.
    pub(super) fn objection_to_making(&self, base: &OwnedFd, path: &Path) -> Option<&'static str> {
        self.by_name(path).or_else(|| self.within(&ancestry(base)))
    }

    fn by_name(&self, path: &Path) -> Option<&'static str> {
        let is_in = |folder: &&str| path.starts_with(folder);
        let in_home = is_below(path, &self.home);
        let holds = |folder: &Path| folder.starts_with(path);
        let whole = self
            .whole
            .iter()
            .find(|(folder, ..)| path.starts_with(folder));
        match () {
            () if KERNEL.iter().any(is_in) && !is_users(path) => Some(VIEW),
            () if whole.is_some() => whole.map(|(.., why)| *why),
            () if self.app_data.iter().any(|data| data == path) => Some(APPS),
            () if in_home => self.above_in_home(path),
            () if is_systems(path, &self.home) => Some(SYSTEMS),
            () if is_wide(path) => Some(WIDE),
            () if holds(&self.home) => Some(ABOVE_HOME),
            () if self.whole.iter().any(|(folder, ..)| holds(folder)) => Some(ABOVE_OURS),
            () => None,
        }
    }

    /// `.config` and its like hold what must not be shared, whether it is there yet or not.
    fn above_in_home(&self, path: &Path) -> Option<&'static str> {
        let held = self
            .whole
            .iter()
            .find(|(folder, ..)| folder.starts_with(path));
        let apps = self.app_data.iter().any(|data| data.starts_with(path));
        held.map(|(.., why)| *why).or(apps.then_some(APPS))
    }

    fn by_number(&self, line: &[Number]) -> Option<&'static str> {
        let own = line.first()?;
        let is_above = self.above.iter().find(|(number, _)| number == own);
        let is_app = self.app_data.iter().any(|data| number(data) == Some(*own));
        let is_system = |name: &&&str| number(Path::new(name)) == Some(*own);
        let system = SYSTEM.iter().chain(&TOO_WIDE).find(is_system);
        is_above
            .map(|(_, why)| *why)
            .or_else(|| self.within(line))
            .or(is_app.then_some(APPS))
            .or(system.map(|_| SYSTEMS))
    }

    fn within(&self, line: &[Number]) -> Option<&'static str> {
        let is_within = |number: &Option<Number>| number.is_some_and(|it| line.contains(&it));
        let mut all = self.whole.iter();
        all.find(|(_, number, _)| is_within(number))
            .map(|(.., why)| *why)
    }
}

fn is_wide(path: &Path) -> bool {
    TOO_WIDE.iter().any(|folder| path == Path::new(folder))
}

/// In a home there is nothing of the system's, wherever the home is; where it is the root, nobody has one.
fn is_below(path: &Path, home: &Path) -> bool {
    home.components().count() > 1 && path.starts_with(home) && path != home
}

/// Whether a folder belongs to the system or the kernel.
pub(super) fn is_systems(path: &Path, home: &Path) -> bool {
    let is_in = |folder: &&str| path.starts_with(folder);
    let is_its = SYSTEM.iter().any(is_in) && !is_below(path, home);
    (is_its || KERNEL.iter().any(is_in)) && !is_users(path)
}

/// Whether a folder among the system's is shown there for its user.
fn is_users(path: &Path) -> bool {
    let portal = format!("/run/user/{}/doc", nix::unistd::getuid());
    let below = |top: &str| path.starts_with(top) && path != Path::new(top);
    OF_USERS.into_iter().any(below) || below(&portal)
}

fn number(path: &Path) -> Option<Number> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

fn above_of(path: &Path, why: &'static str, above: &mut BTreeMap<PathBuf, &'static str>) {
    for folder in path.ancestors().skip(1) {
        above.entry(folder.to_owned()).or_insert(why);
    }
}

/// The numbers of a folder and of those it is in, up to the root or as far as one may look.
fn ancestry(opened: &OwnedFd) -> Vec<Number> {
    let mut line: Vec<Number> = Vec::new();
    let mut at = opened.try_clone();
    while let Ok(folder) = &at
        && let Ok(found) = fstat(folder)
        && line.len() < DEEPEST
    {
        let number = (found.st_dev, found.st_ino);
        // The root is its own parent.
        if line.last() == Some(&number) {
            break;
        }
        line.push(number);
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        at = openat(folder, "..", flags, Mode::empty()).map_err(Into::into);
    }
    line
}
