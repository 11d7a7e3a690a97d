use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode as Rights;
use nix::unistd::mkfifo;

use super::folders::Mode;
use super::folders_tests::{Ground, while_exchanged};
use super::names::mount_name;
use super::reading::{SessionView, Shown, read_file};
use crate::policy::{InsidePath, SessionId};
use crate::session::Places;

/// A session that ended, with `proj`, `.claude` and `.claude/skills`.
struct Session {
    ground: Ground,
    places: Places,
    id: SessionId,
    mounts: Vec<Shown>,
}

pub(super) fn make_session(state: &Path, name: &str) -> PathBuf {
    let folder = state.join("sessions").join(name);
    fs::create_dir_all(folder.join("inner/home/mnt")).unwrap();
    for level in [state, &state.join("sessions"), &folder] {
        fs::set_permissions(level, Permissions::from_mode(0o700)).unwrap();
    }
    fs::write(folder.join("lock"), "").unwrap();
    folder
}

/// As it is while programs run and afterwards.
pub(super) fn seal(folder: &Path) {
    fs::set_permissions(folder.join("inner"), Permissions::from_mode(0o000)).unwrap();
}

impl Session {
    fn new() -> Self {
        let ground = Ground::new();
        let id = SessionId::parse("t-sess-one").unwrap();
        let (state, runtime) = (ground.path("state/s"), ground.path("state/r"));
        let home = make_session(&state, id.as_str()).join("inner/home");
        fs::write(home.join("notes"), "from home").unwrap();
        symlink("/sessions/t-sess-one/mnt/proj/a.txt", home.join("to-proj")).unwrap();
        symlink("mnt/proj/a.txt", home.join("to-proj-2")).unwrap();
        for name in ["s/.claude/skills", "skills"] {
            fs::create_dir_all(ground.path("h/u/.config/Claude").join(name)).unwrap();
        }
        fs::write(
            ground.path("h/u/.config/Claude/s/.claude/skills/x"),
            "below",
        )
        .unwrap();
        fs::write(ground.path("h/u/.config/Claude/skills/x"), "skill").unwrap();
        fs::write(ground.path("h/u/proj/a.txt"), "foobar").unwrap();
        fs::write(ground.path("else/secret"), "secret").unwrap();
        let shown = |name: &str, folder: &str| {
            let folder = ground.folder(folder, Mode::Read);
            Shown::named(&id, &mount_name(name).unwrap(), folder)
        };
        let mounts = vec![
            shown("proj", "h/u/proj"),
            shown(".claude", "h/u/.config/Claude/s/.claude"),
            shown(".claude/skills", "h/u/.config/Claude/skills"),
            shown("some/where/deep", "h/u/proj"),
        ];
        let folder = state.join("sessions/t-sess-one");
        seal(&folder);
        Self {
            places: Places { state, runtime },
            id,
            mounts,
            ground,
        }
    }

    fn read(&self, path: &str) -> Result<String, String> {
        let view = SessionView {
            name: &self.id,
            places: &self.places,
            mounts: self.mounts.clone(),
        };
        read_file(&view, path)
    }

    fn mnt(&self, name: &str) -> Result<String, String> {
        self.read(&format!("/sessions/t-sess-one/mnt/{name}"))
    }

    fn proj(&self, name: &str) -> PathBuf {
        self.ground.path("h/u/proj").join(name)
    }
}

const FOOBAR: &str = "Zm9vYmFy";

#[test]
fn m24_files_come_as_they_are() {
    let session = Session::new();
    let png = [0x89, b'P', b'N', b'G', 0, 0xff];
    fs::write(session.proj("p.png"), png).unwrap();
    fs::write(session.proj("empty"), "").unwrap();
    fs::write(session.proj("odd \"name\"\n😀"), "x").unwrap();
    assert_eq!(session.mnt("proj/a.txt").unwrap(), FOOBAR);
    assert_eq!(session.mnt("proj//./a.txt").unwrap(), FOOBAR);
    assert_eq!(session.mnt("proj/p.png").unwrap(), "iVBORwD/");
    assert_eq!(session.mnt("proj/empty").unwrap(), "");
    assert_eq!(session.mnt("proj/odd \"name\"\n😀").unwrap(), "eA==");
    assert_eq!(session.mnt("some/where/deep/a.txt").unwrap(), FOOBAR);
}

#[test]
fn a_mount_covers_what_lies_below_it() {
    let session = Session::new();
    assert_eq!(session.mnt(".claude/skills/x").unwrap(), "c2tpbGw=");
}

#[test]
fn the_home_is_read_though_it_is_closed_and_stays_so() {
    let session = Session::new();
    let inner = session.ground.path("state/s/sessions/t-sess-one/inner");
    assert_eq!(
        session.read("/sessions/t-sess-one/notes").unwrap(),
        "ZnJvbSBob21l"
    );
    assert_eq!(fs::metadata(inner).unwrap().mode() & 0o7777, 0);
    assert!(session.read("/sessions/t-sess-one/missing").is_err());
}

#[test]
fn links_mean_what_they_mean_in_the_session() {
    let mut session = Session::new();
    for (name, target) in [
        ("absolute", "/sessions/t-sess-one/mnt/proj/a.txt"),
        ("relative", "a.txt"),
        ("across", "../../mnt/../mnt/proj/a.txt"),
        ("folder", "/sessions/t-sess-one/mnt"),
        ("up", ".."),
    ] {
        symlink(target, session.proj(name)).unwrap();
    }
    for name in [
        "absolute",
        "relative",
        "across",
        "folder/proj/a.txt",
        "up/proj/relative",
    ] {
        assert_eq!(
            session.mnt(&format!("proj/{name}")).unwrap(),
            FOOBAR,
            "{name}"
        );
    }
    for name in ["to-proj", "to-proj-2"] {
        let path = format!("/sessions/t-sess-one/{name}");
        assert_eq!(session.read(&path).unwrap(), FOOBAR, "{name}");
    }
    assert_eq!(session.mnt("proj/up/.claude/skills/x").unwrap(), "c2tpbGw=");
    // A link of the app's to a folder by its name on the host, where the session sees it too.
    let literal = session.ground.path("h/u/.config/Claude/skills");
    let link = session.ground.path("h/u/.config/Claude/s/.claude/link");
    symlink(&literal, link).unwrap();
    assert!(session.mnt(".claude/link/x").is_err());
    let folder = session
        .ground
        .folder("h/u/.config/Claude/skills", Mode::Read);
    let place = InsidePath::new(&literal).unwrap();
    session.mounts.push(Shown::at(&place, folder));
    assert_eq!(session.mnt(".claude/link/x").unwrap(), "c2tpbGw=");
}

#[test]
fn m23_m25_nothing_outside_the_session_is_read() {
    let session = Session::new();
    let secret = session.ground.path("else/secret");
    let other = session.ground.path("state/s");
    let neighbour = make_session(&other, "other").join("inner/home");
    fs::write(neighbour.join("x"), "secret").unwrap();
    let climb = format!("{}{}", "../".repeat(40), &secret.to_str().unwrap()[1..]);
    for (name, target) in [
        ("shadow", "/etc/shadow"),
        ("passwd", "/etc/passwd"),
        ("secret", secret.to_str().unwrap()),
        ("climb", climb.as_str()),
        ("environ", "/proc/self/environ"),
        ("fd", "/proc/self/fd/0"),
        ("neighbour", "/sessions/other/x"),
        ("sessions", "/sessions"),
        ("itself", "itself"),
        ("ping", "pong"),
        ("pong", "ping"),
        ("more", "more/more"),
        ("empty-root", "/"),
    ] {
        symlink(target, session.proj(name)).unwrap();
    }
    fs::create_dir(session.proj("folder")).unwrap();
    for name in [
        "shadow",
        "passwd",
        "secret",
        "climb",
        "environ",
        "fd",
        "neighbour",
        "sessions/other/x",
        "itself",
        "ping",
        "more",
        "empty-root",
        "empty-root/etc/passwd",
        "folder",
        "",
        ".",
        "missing",
        "a.txt/x",
        "a.txt/..",
        "../proj/a.txt",
        "../../../../etc/passwd",
        "a\0.txt",
    ] {
        let read = session.mnt(&format!("proj/{name}"));
        assert!(read.is_err(), "{name:?} {read:?}");
    }
    for path in [
        "",
        "/",
        "a.txt",
        "etc/passwd",
        "/etc/passwd",
        "/sessions",
        "/sessions/other/x",
        "/sessions/other/mnt/proj/a.txt",
        "/sessions/t-sess-one",
        "/sessions/t-sess-one/mnt",
        "/sessions/t-sess-one/mnt/some",
        "/sessions/t-sess-one/mnt/nothing/x",
        "/sessions/t-sess-one/../other/x",
        "/sessions/t-sess-one/mnt/../../other/x",
        "/sessions/t-sess-onemnt/proj/a.txt",
        "/proc/self/environ",
        session.proj("a.txt").to_str().unwrap(),
    ] {
        let read = session.read(path);
        assert!(read.is_err(), "{path:?} {read:?}");
    }
    assert_eq!(session.mnt("proj/a.txt").unwrap(), FOOBAR);
}

#[test]
fn m25_what_is_no_file_is_refused_without_waiting() {
    let session = Session::new();
    mkfifo(&session.proj("fifo"), Rights::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(session.proj("socket")).unwrap();
    for name in ["fifo", "socket"] {
        let why = session.mnt(&format!("proj/{name}")).unwrap_err();
        assert!(why.contains("not an ordinary file"), "{why}");
    }
}

#[test]
fn m26_a_file_that_is_too_large_is_refused_in_words() {
    let session = Session::new();
    let make = |name: &str, size: u64| {
        fs::File::create(session.proj(name))
            .unwrap()
            .set_len(size)
            .unwrap();
    };
    make("most", 7 << 20);
    make("more", (7 << 20) + 1);
    make("huge", 1 << 40);
    let most = session.mnt("proj/most").unwrap();
    assert!(most.len() < 10 << 20 && most.starts_with("AAAA"));
    for name in ["more", "huge"] {
        let why = session.mnt(&format!("proj/{name}")).unwrap_err();
        assert!(why.contains("7 MiB"), "{why}");
    }
}

#[test]
fn a_folder_that_was_exchanged_is_not_read() {
    let session = Session::new();
    let proj = session.ground.path("h/u/proj");
    fs::rename(&proj, session.ground.path("old")).unwrap();
    symlink(session.ground.path("else"), &proj).unwrap();
    assert!(session.mnt("proj/secret").is_err());
    fs::remove_file(&proj).unwrap();
    fs::create_dir(&proj).unwrap();
    fs::write(proj.join("secret"), "x").unwrap();
    assert!(session.mnt("proj/secret").is_err());
}

#[test]
fn a_file_that_turns_into_a_link_is_never_what_the_link_leads_to() {
    let session = Session::new();
    fs::create_dir(session.proj("a")).unwrap();
    fs::write(session.proj("a/secret"), "foobar").unwrap();
    symlink(session.ground.path("else"), session.proj("b")).unwrap();
    symlink(session.ground.path("else/secret"), session.proj("link")).unwrap();
    let mut read = [0, 0];
    for (number, (first, second, path)) in
        [("a", "b", "proj/a/secret"), ("a.txt", "link", "proj/a.txt")]
            .into_iter()
            .enumerate()
    {
        let (first, second) = (session.proj(first), session.proj(second));
        while_exchanged(&first, &second, || {
            if let Ok(content) = session.mnt(path) {
                assert_eq!(content, FOOBAR);
                read[number] += 1;
            }
        });
    }
    assert!(read.iter().all(|count| *count > 0), "{read:?}");
}
