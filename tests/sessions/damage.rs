//! Ways in which a file or a folder of sessions can be damaged, and what lies outside and must not be
//! touched by anybody who meets them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;

use crate::ground::Ground;
use crate::support::is_root;

/// What lies outside and must neither be told nor changed.
pub const SECRET: &str = "the-key-of-the-house";

/// Everything that is outside the directories of sessions, with what it is.
pub struct Outside {
    pub folder: PathBuf,
    before: Vec<String>,
}

impl Outside {
    /// A home with keys, a pipe nobody writes to, and a folder that looks like a session's.
    pub fn of(ground: &Ground) -> Self {
        let world = &ground.world;
        let folder = world.path("home");
        for name in ["home/.ssh/x", "home/kept/inner/home/file", "home/kept/lock"] {
            world.write(name, SECRET);
        }
        world.write("home/kept/outputs/work", SECRET);
        let record = r#"{"id":"SECRET","program":["SECRET"],"mounts":[],"network":"none","started":1,
            "detached":true,"supervisor":{"pid":1,"since":1},"ended":2,"outcome":{"exited":0}}"#;
        world.write("home/kept/record.json", &record.replace("SECRET", SECRET));
        nix::unistd::mkfifo(&folder.join("pipe"), Mode::S_IRWXU).unwrap();
        fs::set_permissions(folder.join("kept/inner"), Permissions::from_mode(0o500)).unwrap();
        let mut outside = Self {
            folder,
            before: Vec::new(),
        };
        outside.before = outside.now();
        outside
    }

    fn now(&self) -> Vec<String> {
        let mut all = Vec::new();
        note(&self.folder, &mut all);
        all.sort();
        all
    }

    #[track_caller]
    pub fn is_untouched(&self, what: &str) {
        let now = self.now();
        let differs = |one: &[String], other: &[String]| -> Vec<String> {
            let only = one.iter().filter(|line| !other.contains(line));
            only.cloned().collect()
        };
        let (lost, new) = (differs(&self.before, &now), differs(&now, &self.before));
        let is_same = lost.is_empty() && new.is_empty();
        assert!(is_same, "{what}: {lost:?} became {new:?}");
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let inner = self.folder.join("kept/inner");
        let _ = fs::set_permissions(inner, Permissions::from_mode(0o700));
    }
}

fn note(path: &Path, out: &mut Vec<String>) {
    let about = path.symlink_metadata().unwrap();
    let text = match about.is_file() {
        true => fs::read_to_string(path).unwrap(),
        false => String::new(),
    };
    out.push(format!("{} {:o} {text}", path.display(), about.mode()));
    if about.is_dir() {
        let entries = fs::read_dir(path).unwrap().flatten();
        entries.for_each(|entry| note(&entry.path(), out));
    }
}

/// A damage by name. It is given what is there, which may be a file or a folder.
pub type Damage = (&'static str, Box<dyn Fn(&Path)>);

pub fn clear(path: &Path) {
    match path.symlink_metadata() {
        Ok(about) if about.is_dir() => {
            fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
            let entries = fs::read_dir(path).unwrap().flatten();
            entries.for_each(|entry| clear(&entry.path()));
            fs::remove_dir(path).unwrap();
        }
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

/// What can be in the place of anything.
pub fn replacements(outside: &Outside) -> Vec<Damage> {
    let link = |to: PathBuf| -> Box<dyn Fn(&Path)> {
        Box::new(move |path| {
            clear(path);
            symlink(&to, path).unwrap();
        })
    };
    let home = &outside.folder;
    let mut all: Vec<Damage> = vec![
        ("a link to a key", link(home.join(".ssh/x"))),
        ("a link to a folder of keys", link(home.join(".ssh"))),
        ("a link to a session elsewhere", link(home.join("kept"))),
        ("a link to its record", link(home.join("kept/record.json"))),
        ("a link to zeros without end", link("/dev/zero".into())),
        ("a link to a pipe", link(home.join("pipe"))),
        ("a link to nowhere", link(home.join("nowhere"))),
        (
            "a link to itself",
            Box::new(|path| {
                clear(path);
                symlink(path, path).unwrap();
            }),
        ),
        (
            "a pipe",
            Box::new(|path| {
                clear(path);
                nix::unistd::mkfifo(path, Mode::S_IRWXU).unwrap();
            }),
        ),
        (
            "a socket",
            Box::new(|path| {
                clear(path);
                dead_socket(path);
            }),
        ),
        (
            "a folder",
            Box::new(|path| {
                clear(path);
                fs::create_dir_all(path.join("deep/er")).unwrap();
                fs::write(path.join("deep/er/file"), "x").unwrap();
            }),
        ),
        ("nothing", Box::new(clear)),
        (
            "unreadable",
            Box::new(|path| {
                fs::set_permissions(path, Permissions::from_mode(0o0)).unwrap();
            }),
        ),
    ];
    if is_root() {
        all.push((
            "somebody else's",
            Box::new(|path| {
                chown(path, Some(65534), Some(65534)).unwrap();
            }),
        ));
    }
    all
}

/// What can be in a file.
pub fn contents() -> Vec<Damage> {
    let cut = |length: fn(usize) -> usize| -> Box<dyn Fn(&Path)> {
        Box::new(move |path| {
            let bytes = fs::read(path).unwrap();
            fs::write(path, &bytes[..length(bytes.len())]).unwrap();
        })
    };
    let put = |bytes: Vec<u8>| -> Box<dyn Fn(&Path)> {
        Box::new(move |path| fs::write(path, &bytes).unwrap())
    };
    vec![
        ("empty", cut(|_| 0)),
        ("one byte", cut(|length| length.min(1))),
        ("a third", cut(|length| length / 3)),
        ("half", cut(|length| length / 2)),
        ("all but one byte", cut(|length| length.saturating_sub(1))),
        ("garbage", put((0..=255).cycle().take(5000).collect())),
        ("a sector of zeros", put(vec![0; 4096])),
        ("larger than it ever gets", put(vec![b'{'; 6 << 20])),
    ]
}

/// A socket that nobody listens behind.
pub fn dead_socket(path: &Path) {
    // Bound by a short name: that of the folder may be too long for a socket.
    let short = tempfile::tempdir().unwrap();
    let place = short.path().join("s");
    drop(UnixListener::bind(&place).unwrap());
    fs::rename(place, path).unwrap();
}
