//! What it takes for Claude Desktop to start this program as its helper, step by step. Files are
//! read, never written, and all of them below a root that a test can make up.

mod app;
mod environment;
mod gates;
mod place;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub use gates::full_vm_required_by;

use super::namespaces::in_words;
use super::{Diagnosis, Remedy, Row, State};
use app::Apps;

/// Where everything is that is looked at.
#[derive(Debug, Clone)]
pub struct Desk {
    /// Before every path of the system's.
    pub root: PathBuf,
    /// The user's folder of settings.
    pub config: Option<PathBuf>,
    pub runtime: Option<PathBuf>,
    pub state: Option<PathBuf>,
    /// This program, as it is installed.
    pub program: PathBuf,
    pub uid: u32,
}

impl Desk {
    pub fn here(env: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let folder = |name: &str| {
            env(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let config = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
        Self {
            root: PathBuf::from("/"),
            config,
            runtime: folder("XDG_RUNTIME_DIR"),
            state: crate::probe::state_directory(env),
            program: std::env::current_exe().unwrap_or_else(|_| "/usr/bin/cowork-linux".into()),
            uid: nix::unistd::getuid().as_raw(),
        }
    }

    /// A path of the system's.
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn is_this_program(&self, path: &Path) -> bool {
        let same = |one: fs::Metadata, other: fs::Metadata| {
            (one.dev(), one.ino()) == (other.dev(), other.ino())
        };
        match (fs::metadata(path), fs::metadata(&self.program)) {
            (Ok(one), Ok(other)) => same(one, other),
            _ => false,
        }
    }
}

/// Where apps of each generation expect their helper; the newest first.
pub const SOCKETS: [&str; 2] = ["claude-cowork-vm.sock", "cowork-vm-service.sock"];

/// The rows about the app's files; `of_host` are those about what a box takes, and `helper` is who
/// answers on the socket.
pub fn desktop(desk: &Desk, of_host: Vec<Row>, helper: Row) -> Diagnosis {
    let apps = Apps::find(desk);
    let mut rows = vec![apps.row()];
    rows.push(environment::row(desk, &apps));
    rows.push(app::helper_file(desk, &apps));
    rows.push(place::runtime(desk));
    rows.push(helper);
    rows.extend(of_host);
    rows.push(place::file_names(desk));
    rows.push(gates::managed(desk));
    rows.push(gates::machine(desk, &apps));
    rows.push(gates::registration());
    rows.push(gates::host_loop());
    let missing = rows.iter().find(|row| row.state == State::Missing);
    let because = missing.map(|row| format!("{}: {}", row.name, row.found));
    Diagnosis {
        works: because.is_none(),
        because,
        rows,
    }
}

/// Who answers on a socket of the app's, for whoever could ask.
#[derive(Debug)]
pub enum Answering {
    /// Nobody has to before the app starts one.
    Nobody,
    Helper {
        socket: PathBuf,
        pid: i32,
        program: Option<PathBuf>,
        running: bool,
    },
    /// Somebody is there, and what is wrong with it.
    Wrong { socket: PathBuf, why: String },
}

pub fn answering(desk: &Desk, answering: &Answering) -> Row {
    const NAME: &str = "helper";
    match answering {
        Answering::Nobody => Row::new(
            NAME,
            State::Info,
            "none runs now",
            "the app starts it when Cowork is used; look again while the app is open",
        ),
        Answering::Helper {
            socket,
            pid,
            program,
            running,
        } => {
            let at = socket.display();
            let is_ours = program.as_deref().is_some_and(|path| desk.is_this_program(path));
            let shown = match program {
                Some(path) => path.display().to_string(),
                None => "a program that cannot be looked at".to_owned(),
            };
            if is_ours {
                let does = match running {
                    true => "it is started, and ready for sessions",
                    false => "it answers; the app has not started a workspace yet",
                };
                return Row::new(NAME, State::Good, format!("this program, process {pid}, at {at}"), does);
            }
            Row::new(
                NAME,
                State::Weaker,
                format!("{shown}, process {pid}, at {at}"),
                "sessions run in that helper and not in boxes of this program",
            )
            .fix(Remedy::say("do what the rows above say, then quit the app (File > Exit) and start it again"))
        }
        Answering::Wrong { socket, why } => Row::new(
            NAME,
            State::Missing,
            format!("{}: {why}", socket.display()),
            "the app waits half a minute for each answer, and then gives up",
        )
        .fix(Remedy::say("quit the app (File > Exit) and start it again; its log is ~/.config/Claude/logs/cowork_vm_node.log")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system and a user's folders, as files that were made up.
    pub(super) struct Scene {
        folder: tempfile::TempDir,
        pub(super) desk: Desk,
    }

    impl Scene {
        pub(super) fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let top = folder.path().to_owned();
            fs::write(top.join("cowork-linux"), "us").unwrap();
            let desk = Desk {
                root: top.clone(),
                config: Some(top.join("home/.config")),
                runtime: Some(top.join("run")),
                state: Some(top.join("home/.local/state/cowork-linux")),
                program: top.join("cowork-linux"),
                uid: nix::unistd::getuid().as_raw(),
            };
            Self { folder, desk }
        }

        pub(super) fn path(&self, path: &str) -> PathBuf {
            self.folder.path().join(path)
        }

        pub(super) fn write(&self, path: &str, text: &str) {
            let path = self.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn whose_helper_answers_is_said() {
        let scene = Scene::new();
        let helper = |program: Option<PathBuf>| Answering::Helper {
            socket: "/run/x.sock".into(),
            pid: 7,
            program,
            running: true,
        };
        let row = |who: &Answering| answering(&scene.desk, who);
        assert_eq!(
            row(&helper(Some(scene.desk.program.clone()))).state,
            State::Good
        );
        let other = row(&helper(Some("/bin/sh".into())));
        assert_eq!(other.state, State::Weaker);
        assert!(other.found.contains("/bin/sh") && other.found.contains('7'));
        assert_eq!(row(&helper(None)).state, State::Weaker);
        assert_eq!(row(&Answering::Nobody).state, State::Info);
    }

    #[test]
    fn the_first_thing_that_is_missing_is_the_reason() {
        let scene = Scene::new();
        let nobody = || answering(&scene.desk, &Answering::Nobody);
        let found = desktop(&scene.desk, Vec::new(), nobody());
        assert!(
            !found.works && found.because.as_ref().unwrap().starts_with("app: "),
            "{found:?}"
        );
        // Everything as `install.sh` leaves it.
        scene.write(
            "usr/lib/claude-desktop-unofficial/resources/cowork-vm-service.js",
            "",
        );
        let program = scene.desk.program.display();
        let text = format!("COWORK_VM_BACKEND=bwrap\nCOWORK_NODE_PATH={program}\n");
        scene.write("home/.config/claude-desktop-debian/environment", &text);
        scene.write("run/x", "");
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(scene.path("run"), private).unwrap();
        let found = desktop(&scene.desk, Vec::new(), nobody());
        assert!(found.works, "{found:?}");
        let of_host = Row::new("user namespaces", State::Missing, "blocked", "no box");
        let found = desktop(&scene.desk, vec![of_host], nobody());
        assert_eq!(found.because.as_deref(), Some("user namespaces: blocked"));
    }
}
