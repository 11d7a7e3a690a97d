use std::ffi::CString;
use std::fs::{self, Permissions};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::stat::Mode as Rights;
use nix::unistd::{getuid, mkfifo};

use super::folders::{Folder, Found, Mode, Sources};

/// A home, the app's data in it, our state, and a folder elsewhere.
pub(super) struct Ground {
    dir: tempfile::TempDir,
    pub(super) sources: Sources,
}

impl Ground {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(dir.path()).unwrap();
        for name in [
            "h/u/proj",
            "h/u/.config/Claude/s",
            "state/x",
            "else/where",
            "h/u/.ssh",
        ] {
            fs::create_dir_all(top.join(name)).unwrap();
        }
        let sources = Sources {
            home: top.join("h/u"),
            allow_home: false,
            own: vec![top.join("state")],
            app_data: Some(top.join("h/u/.config/Claude")),
            written: Default::default(),
        };
        Self { dir, sources }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.dir.path()).unwrap().join(name)
    }

    /// As the app writes it: without the first slash.
    pub(super) fn said(&self, name: &str) -> String {
        let path = self.path(name);
        path.to_str().unwrap().trim_start_matches('/').to_owned()
    }

    pub(super) fn folder(&self, name: &str, mode: Mode) -> Folder {
        match self.sources.find(&self.said(name), mode).unwrap() {
            Found::Folder(folder) => folder,
            Found::Skipped => panic!("{name} is a file"),
        }
    }

    /// All names there are, for seeing that nothing was left.
    pub(super) fn census(&self) -> Vec<PathBuf> {
        let (mut all, mut ahead) = (Vec::new(), vec![self.path("")]);
        while let Some(folder) = ahead.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    ahead.push(entry.path());
                }
                all.push(entry.path());
            }
        }
        all.sort();
        all
    }
}

fn number(path: &Path) -> (u64, u64) {
    let found = fs::metadata(path).unwrap();
    (found.dev(), found.ino())
}

fn seen(folder: &Folder) -> (u64, u64) {
    (folder.seen.device, folder.seen.inode)
}

#[test]
fn m6_every_way_to_write_a_folder_leads_to_it() {
    let mut ground = Ground::new();
    let wanted = number(&ground.path("h/u/proj"));
    let absolute = format!("/{}", ground.said("h/u/proj"));
    let slashes = format!("//{}//./", ground.said("h/u/proj"));
    for text in [ground.said("h/u/proj"), absolute, slashes, "proj".into()] {
        let Found::Folder(found) = ground.sources.find(&text, Mode::Keep).unwrap() else {
            panic!("{text} was skipped")
        };
        assert_eq!(seen(&found), wanted, "{text}");
        assert_eq!(found.path, ground.path("h/u/proj"));
    }
    // A home behind a link, as where /home is one to /var/home.
    symlink(ground.path("h"), ground.path("link")).unwrap();
    ground.sources.home = ground.path("link/u");
    for text in [
        "proj".into(),
        ground.said("link/u/proj"),
        ground.said("h/u/proj"),
    ] {
        let found = ground.sources.find(&text, Mode::Keep);
        assert!(matches!(found, Ok(Found::Folder(found)) if seen(&found) == wanted));
    }
    for home in ["link/u", "h/u", "link"] {
        assert!(ground.sources.find(&ground.said(home), Mode::Read).is_err());
    }
}

#[test]
fn m7_a_home_in_the_home_does_not_confuse_it() {
    let ground = Ground::new();
    let doubled = ground.path("h/u").join(ground.said("h/u/proj"));
    fs::create_dir_all(&doubled).unwrap();
    let found = ground.folder("h/u/proj", Mode::Keep);
    assert_eq!(found.path, ground.path("h/u/proj"));
}

#[test]
fn m8_a_folder_outside_the_home_is_that_folder() {
    let ground = Ground::new();
    let other_disk = tempfile::tempdir_in("/dev/shm").unwrap();
    let text = other_disk.path().to_str().unwrap();
    let found = ground.sources.find(text, Mode::Keep);
    assert!(matches!(found, Ok(Found::Folder(it)) if seen(&it) == number(other_disk.path())));
    fs::create_dir_all(ground.path("h/u/else/where")).unwrap();
    let found = ground.folder("else/where", Mode::Read);
    assert_eq!(seen(&found), number(&ground.path("else/where")));
}

#[test]
fn m9_a_link_is_what_it_leads_to() {
    let ground = Ground::new();
    let before = |name: &str, target: &Path| symlink(target, ground.path(name)).unwrap();
    before("h/u/good", &ground.path("else/where"));
    before("h/u/etc", Path::new("/etc"));
    before("h/u/keys", &ground.path("h/u/.ssh"));
    before("h/u/nowhere", Path::new("/nonexistent/at/all"));
    before("h/u/gone", Path::new("not-there"));
    before("h/u/itself", Path::new("itself"));
    before("h/u/magic", Path::new("/proc/self/cwd"));
    before("h/u/root", Path::new("/proc/self/root"));
    let census = ground.census();
    assert_eq!(
        ground.folder("h/u/good", Mode::Keep).path,
        ground.path("else/where")
    );
    for name in ["etc", "keys", "nowhere", "gone", "itself", "magic", "root"] {
        for mode in [Mode::Read, Mode::Keep, Mode::Write] {
            let found = ground
                .sources
                .find(&ground.said(&format!("h/u/{name}")), mode);
            assert!(found.is_err(), "{name} {found:?}");
            let below = format!("h/u/{name}/new");
            let found = ground.sources.find(&ground.said(&below), mode);
            assert!(found.is_err(), "{below} {found:?}");
        }
    }
    assert_eq!(ground.census(), census);
}

#[test]
fn m10_a_file_is_skipped_and_what_is_neither_is_refused_without_waiting() {
    let ground = Ground::new();
    fs::write(ground.path("h/u/app.asar"), "x").unwrap();
    mkfifo(&ground.path("h/u/fifo"), Rights::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(ground.path("h/u/socket")).unwrap();
    let find = |name: &str| ground.sources.find(&ground.said(name), Mode::Keep);
    assert_eq!(find("h/u/app.asar"), Ok(Found::Skipped));
    for name in ["h/u/fifo", "h/u/socket", "h/u/app.asar/x"] {
        assert!(find(name).is_err(), "{name}");
    }
}

#[test]
fn m11_only_the_app_and_the_home_get_new_folders() {
    let ground = Ground::new();
    let census = ground.census();
    for (name, mode) in [
        ("h/u/.config/Claude/s/outputs", Mode::Read),
        ("else/new", Mode::Keep),
        ("else/where/new/deep", Mode::Write),
        ("h/u/.ssh/new", Mode::Write),
        ("h/u/.gnupg", Mode::Write),
        ("h/u/.gnupg/new", Mode::Write),
        ("h/u/.config/cowork-linux/policies", Mode::Write),
        ("state/new", Mode::Write),
        ("h/other/new", Mode::Write),
        ("h/u/new/deep", Mode::Write),
    ] {
        assert!(
            ground.sources.find(&ground.said(name), mode).is_err(),
            "{name}"
        );
        assert_eq!(ground.census(), census, "{name}");
    }
    for (name, mode) in [
        ("h/u/.config/Claude/s/local_1/outputs", Mode::Keep),
        ("h/u/new", Mode::Write),
        ("h/u/odd \n\"'$(x) 😀", Mode::Keep),
        ("h/u/proj/new", Mode::Keep),
    ] {
        let found = ground.folder(name, mode);
        assert_eq!(seen(&found), number(&ground.path(name)), "{name}");
        let made = fs::metadata(ground.path(name)).unwrap();
        assert_eq!(made.mode() & 0o7777, 0o700, "{name}");
        assert_eq!(made.uid(), getuid().as_raw());
    }
    // Words that are nowhere in the root are the app's own folders, or nothing.
    let census = ground.census();
    for text in [
        "cowork-test-word",
        "$HOME",
        "~",
        "cowork-test-word/of/one",
        "*",
    ] {
        assert!(ground.sources.find(text, Mode::Keep).is_err(), "{text}");
    }
    assert_eq!(ground.census(), census);
    let found = ground
        .sources
        .find(".config/Claude/s/local_2/outputs", Mode::Keep);
    assert!(matches!(found, Ok(Found::Folder(_))), "{found:?}");
    assert!(ground.path("h/u/.config/Claude/s/local_2/outputs").is_dir());
}

#[test]
fn m16_what_is_wider_than_a_project_is_refused() {
    let mut ground = Ground::new();
    fs::create_dir_all(ground.path("h/u/.local/share/keyrings")).unwrap();
    fs::create_dir_all(ground.path("h/u/.ssh/sub")).unwrap();
    fs::create_dir_all(ground.path("h/u/.config/other")).unwrap();
    let runtime = format!("/run/user/{}", getuid());
    let system = [
        "",
        "/",
        "//",
        ".",
        "/.",
        "/proc",
        "/proc/self",
        "/sys",
        "/dev",
        "/dev/pts",
        "/dev/shm",
        "/run",
        "/etc",
        "/etc/ssl",
        "/usr",
        "/usr/share",
        "/bin",
        "/lib",
        "/var/lib",
        "/var",
        "/home",
        "/boot",
        "/tmp",
        "/var/run",
        "etc",
        "usr/share",
        runtime.as_str(),
    ];
    for text in system {
        for mode in [Mode::Read, Mode::Write] {
            let found = ground.sources.find(text, mode);
            assert!(found.is_err(), "{text:?} {found:?}");
        }
    }
    let refused = [
        "h/u",
        "h",
        "",
        "state",
        "state/x",
        "h/u/.ssh",
        "h/u/.ssh/sub",
        "h/u/.config",
        "h/u/.config/Claude",
        "h/u/.local",
        "h/u/.local/share",
        "h/u/.local/share/keyrings",
    ];
    let check = |ground: &Ground, refused: &[&str]| {
        for name in refused {
            let found = ground.sources.find(&ground.said(name), Mode::Read);
            assert!(found.is_err(), "{name} {found:?}");
        }
    };
    check(&ground, &refused);
    for name in [
        "h/u/proj",
        "h/u/.config/Claude/s",
        "h/u/.config/other",
        "else",
        "else/where",
    ] {
        let _ = ground.folder(name, Mode::Read);
    }
    // Those who say so share their home, and nothing more by it.
    ground.sources.allow_home = true;
    let _ = ground.folder("h/u", Mode::Keep);
    check(
        &ground,
        &["h", "", "state", "h/u/.ssh", "h/u/.config/Claude"],
    );
}

#[test]
fn m19_nothing_climbs() {
    let ground = Ground::new();
    let census = ground.census();
    let home = ground.said("h/u");
    let deep = "x/".repeat(3000);
    let long = "x".repeat(300);
    for text in [
        "..",
        "../../etc",
        "../etc",
        "proj/../../../etc",
        "proj/..",
        &format!("{home}/../../../etc"),
        &format!("{home}/.."),
        &format!("/{home}/proj/../../u"),
        &format!("{home}/new/../../.."),
        "a\0b",
        "\0",
        &deep,
        &long,
        &format!("{home}/{long}"),
    ] {
        for mode in [Mode::Read, Mode::Keep, Mode::Write] {
            let found = ground.sources.find(text, mode);
            assert!(found.is_err(), "{text:?} {found:?}");
            assert!(found.unwrap_err().len() < 2000);
        }
    }
    assert_eq!(ground.census(), census);
    // What only looks like it is a name.
    fs::create_dir(ground.path("h/u/..proj..")).unwrap();
    let _ = ground.folder("h/u/..proj..", Mode::Read);
}

#[test]
fn a_home_or_an_app_that_is_everywhere_opens_nothing() {
    let mut ground = Ground::new();
    let census = ground.census();
    let new = ground.said("else/new");
    for data in ["/", "/etc", "/usr/share", "/proc/self", "/nonexistent"] {
        ground.sources.app_data = Some(data.into());
        for text in ["/", "/etc", "/usr/share/new", "/etc/new", new.as_str()] {
            assert!(
                ground.sources.find(text, Mode::Write).is_err(),
                "{data} {text}"
            );
        }
    }
    ground.sources.home = "/".into();
    ground.sources.allow_home = true;
    for text in [
        "/",
        "",
        "/etc",
        "/etc/new",
        "/usr",
        "/root",
        "/nonexistent/x",
        new.as_str(),
    ] {
        assert!(ground.sources.find(text, Mode::Write).is_err(), "{text}");
    }
    assert_eq!(ground.census(), census);
    let _ = ground.folder("else/where", Mode::Read);
}

#[test]
fn what_may_not_be_read_is_refused() {
    let ground = Ground::new();
    let closed = ground.path("h/u/closed");
    fs::create_dir(&closed).unwrap();
    let _ = ground.folder("h/u/closed", Mode::Read);
    fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
    let found = ground.sources.find(&ground.said("h/u/closed"), Mode::Read);
    // Nothing is closed to root.
    assert_eq!(found.is_err(), !getuid().is_root(), "{found:?}");
    fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_second_name_of_a_forbidden_folder_is_no_way_around() {
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};
    if !getuid().is_root() {
        // A name of this kind is a mount, which only root makes.
        return;
    }
    let ground = Ground::new();
    fs::create_dir_all(ground.path("h/u/.ssh/sub")).unwrap();
    for name in ["m1", "m2", "m3", "m4"] {
        fs::create_dir(ground.path("else").join(name)).unwrap();
    }
    std::thread::scope(|scope| {
        let done = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let none = None::<&str>;
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(none, "/", none, private, none).unwrap();
            for (from, to) in [
                ("h/u", "else/m1"),
                ("h/u/.ssh", "else/m2"),
                ("state", "else/m3"),
                ("h/u/proj", "else/m4"),
            ] {
                let (from, to) = (ground.path(from), ground.path(to));
                mount(Some(&from), &to, none, MsFlags::MS_BIND, none).unwrap();
            }
            for name in [
                "m1",
                "m1/.ssh",
                "m1/.ssh/sub",
                "m1/.config",
                "m1/.config/Claude",
                "m2",
                "m2/sub",
                "m3",
                "m3/x",
            ] {
                let text = ground.said(&format!("else/{name}"));
                let found = ground.sources.find(&text, Mode::Read);
                assert!(found.is_err(), "{name} {found:?}");
            }
            let _ = ground.folder("else/m4", Mode::Read);
            let _ = ground.folder("else/m1/proj", Mode::Read);
        });
        done.join().unwrap();
    });
}

/// Exchanges two names over and over, so that neither is ever missing, while something else is done.
pub(super) fn while_exchanged(first: &Path, second: &Path, mut done: impl FnMut()) {
    let over = AtomicBool::new(false);
    let parent = fs::File::open(first.parent().unwrap()).unwrap();
    assert_eq!(first.parent(), second.parent());
    let name = |path: &Path| CString::new(path.file_name().unwrap().as_bytes()).unwrap();
    let (first, second) = (name(first), name(second));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let folder = parent.as_fd();
            while !over.load(Ordering::Relaxed) {
                let flags = libc::RENAME_EXCHANGE;
                crate::sys::at::rename(folder, &first, folder, &second, flags).unwrap();
            }
        });
        for _ in 0..1000 {
            done();
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn m22_a_folder_that_turns_into_a_link_is_never_what_the_link_leads_to() {
    let ground = Ground::new();
    let (real, link) = (ground.path("h/u/proj"), ground.path("h/u/other"));
    symlink("/etc", &link).unwrap();
    let own = number(&real);
    let text = ground.said("h/u/proj");
    let (mut found, mut refused) = (0, 0);
    while_exchanged(&real, &link, || {
        match ground.sources.find(&text, Mode::Read) {
            Ok(Found::Folder(folder)) => {
                assert_eq!(seen(&folder), own);
                assert!(!folder.path.starts_with("/etc"));
                found += 1;
            }
            Ok(Found::Skipped) => panic!("it was taken for a file"),
            Err(_) => refused += 1,
        }
    });
    assert!(found > 0 && refused > 0, "{found} found, {refused} refused");
}

#[test]
fn m22_nothing_is_made_behind_a_link_that_appears_on_the_way() {
    let ground = Ground::new();
    let (real, link) = (ground.path("h/u/proj"), ground.path("h/u/other"));
    symlink(ground.path("else/where"), &link).unwrap();
    let text = ground.said("h/u/proj/new");
    let mut made = 0;
    while_exchanged(&real, &link, || {
        if let Ok(Found::Folder(folder)) = ground.sources.find(&text, Mode::Keep) {
            let _ = fs::remove_dir_all(&folder.path);
            made += 1;
        }
    });
    assert!(made > 0);
    let left = fs::read_dir(ground.path("else/where")).unwrap().count();
    assert_eq!(left, 0, "something was made elsewhere");
}

#[test]
fn words_for_modes() {
    for (text, mode) in [
        (Some("ro"), Mode::Read),
        (Some("rw"), Mode::Keep),
        (Some("rwd"), Mode::Write),
        (None, Mode::Keep),
        (Some("RO"), Mode::Keep),
        (Some(""), Mode::Keep),
    ] {
        assert_eq!(Mode::of(text), mode, "{text:?}");
    }
}

#[test]
fn what_is_certainly_the_same_is_not_looked_for_again() {
    let ground = Ground::new();
    let folder = ground.folder("h/u/proj", Mode::Keep);
    let path = ground.path("h/u/proj");
    let said = ground.said("h/u/proj");
    assert!(folder.is_certainly(&said));
    assert!(folder.is_certainly(path.to_str().unwrap()));
    // Other words for it have to be looked at, though they may lead there as well.
    symlink(&path, ground.path("h/u/link")).unwrap();
    for words in [
        "".to_owned(),
        "proj".to_owned(),
        format!("{said}/"),
        format!("/{said}/."),
        ground.said("h/u/link"),
        ground.said("h/u"),
    ] {
        assert!(!folder.is_certainly(&words), "{words}");
    }
    // One that may not be read any more.
    fs::set_permissions(&path, Permissions::from_mode(0o300)).unwrap();
    assert!(!folder.is_certainly(&said));
    fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
    assert!(folder.is_certainly(&said));
    // Another one in its place, and a link to the very same.
    fs::rename(&path, ground.path("h/u/moved")).unwrap();
    assert!(!folder.is_certainly(&said));
    fs::create_dir(&path).unwrap();
    assert!(!folder.is_certainly(&said));
    fs::remove_dir(&path).unwrap();
    symlink("moved", &path).unwrap();
    assert!(!folder.is_certainly(&said));
    // The same behind a link on the way.
    fs::rename(ground.path("h"), ground.path("g")).unwrap();
    symlink("g", ground.path("h")).unwrap();
    fs::remove_file(ground.path("g/u/proj")).unwrap();
    fs::rename(ground.path("g/u/moved"), ground.path("g/u/proj")).unwrap();
    assert!(!folder.is_certainly(&said));
}
