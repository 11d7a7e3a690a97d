//! A host with a user, the user's folders, and a helper that the app has started: a child with a pipe for
//! its standard input. Whatever a test does, nothing of it is there afterwards.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::client::{App, Line, Listener, once};
use crate::helper::Helper;
use crate::support::{World, binary};
use crate::watch::Watch;

/// Much longer than anything takes; reached only when something hangs. `COWORK_TEST_PATIENCE` is for
/// machines on which everything takes longer.
pub(crate) fn patience() -> Duration {
    let given = std::env::var("COWORK_TEST_PATIENCE").ok();
    let seconds = given.and_then(|text| text.parse().ok()).unwrap_or(60);
    Duration::from_secs(seconds)
}

#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) helper: Option<Helper>,
    pub(crate) world: World,
    /// A session that no other test has, so that its processes are known by it.
    pub(crate) name: String,
    /// Folders of the user's, and the folders that are known to be in them.
    folders: Mutex<Vec<PathBuf>>,
}

impl Ground {
    /// Without a helper.
    pub(crate) fn bare() -> Self {
        let world = World::new();
        for name in ["run", "home/.config/Claude"] {
            std::fs::create_dir_all(world.path(name)).unwrap();
        }
        private(&world.path("run"));
        Self {
            helper: None,
            world,
            name: format!("t-sess-{:x}-{}", std::process::id(), fresh()),
            folders: Mutex::default(),
        }
    }

    pub(crate) fn new() -> Self {
        let mut ground = Self::bare();
        ground.start(&[]);
        ground
    }

    /// With a helper that was told to start its machine.
    pub(crate) fn booted() -> Self {
        let ground = Self::new();
        ground.boots();
        ground
    }

    #[track_caller]
    pub(crate) fn boots(&self) {
        let reply = once(&self.socket(), "startVM", json!({}));
        assert_eq!(reply["success"], true, "{reply}");
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.world.path("run/claude-cowork-vm.sock")
    }

    /// `cowork-linux` in these surroundings.
    pub(crate) fn cowork(&self) -> Command {
        let mut command = Command::new(binary());
        self.surround(&mut command);
        command
    }

    pub(crate) fn surround(&self, command: &mut Command) {
        command
            .env_clear()
            .env("HOME", self.world.path("home"))
            .env("XDG_STATE_HOME", self.world.path("state"))
            .env("XDG_RUNTIME_DIR", self.world.path("run"))
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .current_dir(self.world.path(""));
    }

    /// `cowork-linux helper -socket PATH`, to add to.
    pub(crate) fn helping(&self) -> Command {
        let mut command = self.cowork();
        command.args(["helper", "-socket"]).arg(self.socket());
        command
    }

    /// Starts a helper with further words, and waits until it serves.
    #[track_caller]
    pub(crate) fn start(&mut self, words: &[&str]) {
        let mut command = self.helping();
        self.start_as(command.args(words));
    }

    #[track_caller]
    pub(crate) fn start_as(&mut self, command: &mut Command) {
        self.helper = Some(self.launch(command));
        self.is_served();
    }

    /// Starts one as the app does; whether it serves is another question.
    #[track_caller]
    pub(crate) fn launch(&self, command: &mut Command) -> Helper {
        let log = || {
            let mut options = File::options();
            let options = options.create(true).append(true);
            options.open(self.world.path("log")).unwrap()
        };
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::from(log()))
            .stderr(Stdio::from(log()));
        let mut child = command.spawn().unwrap();
        let app = child.stdin.take();
        Helper { child, app }
    }

    #[track_caller]
    pub(crate) fn is_served(&self) {
        eventually("somebody serves", || {
            UnixStream::connect(self.socket()).is_ok()
        });
    }

    /// Everything that helpers have said.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.world.path("log")).unwrap_or_default()
    }

    pub(crate) fn pid(&self) -> i32 {
        self.helper.as_ref().unwrap().pid()
    }

    pub(crate) fn line(&self) -> Line {
        Line::to(&self.socket())
    }

    pub(crate) fn listener(&self) -> Listener {
        Listener::to(&self.socket(), json!({}))
    }

    pub(crate) fn app(&self) -> App {
        App {
            events: self.listener(),
            line: self.line(),
        }
    }

    /// What the app asks for to run a script in the session.
    pub(crate) fn sh(&self, id: &str, script: &str) -> Value {
        json!({
            "id": id, "name": self.name, "command": "bash", "args": ["-c", script],
            "isResume": false,
        })
    }

    /// The same in another session of this test's.
    pub(crate) fn other(&self, which: &str) -> String {
        format!("{}-{which}", self.name)
    }

    /// A place in the session, as its programs name it.
    pub(crate) fn inside(&self, place: &str) -> String {
        match place {
            "" => format!("/sessions/{}", self.name),
            place => format!("/sessions/{}/{place}", self.name),
        }
    }

    /// A folder of the user's with a file in it.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let folder = self.world.path(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("file"), "of the user\n").unwrap();
        self.folders.lock().unwrap().push(folder.clone());
        folder
    }

    /// Every process of this test's: those who have its folders or its session in their surroundings,
    /// and whoever descends from them. Those that hide from their user have parents that do not.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let marks = [
            self.world.path("state").display().to_string(),
            format!("=/sessions/{}", self.name),
        ];
        let mut parents = Vec::new();
        let mut here = BTreeSet::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let Some((parent, is_dead)) = parent_of(pid) else {
                continue;
            };
            parents.push((pid, parent));
            let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            let environ = String::from_utf8_lossy(&environ);
            if !is_dead && marks.iter().any(|mark| environ.contains(mark.as_str())) {
                here.insert(pid);
            }
        }
        loop {
            let more: Vec<i32> = parents
                .iter()
                .filter(|(pid, parent)| here.contains(parent) && !here.contains(pid))
                .map(|(pid, _)| *pid)
                .collect();
            if more.is_empty() {
                return here.into_iter().collect();
            }
            here.extend(more);
        }
    }

    /// Processes besides the helper itself.
    pub(crate) fn boxed(&self) -> Watch {
        let helper = self.helper.as_ref().map(Helper::pid);
        let mut all = self.processes();
        all.retain(|pid| Some(*pid) != helper);
        Watch::over(&all)
    }

    /// Mounts of the host that come from here or lie here: there are none, ever.
    fn mounts(&self) -> Vec<String> {
        let here = self.world.path("").display().to_string();
        let here = here.trim_end_matches('/').to_owned();
        let all = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let lines = all.lines().filter(|line| {
            line.contains(&here) || line.contains(&format!("/sessions/{}", self.name))
        });
        lines.map(str::to_owned).collect()
    }

    /// Folders in the user's folders that nobody asked for.
    fn litter(&self) -> Vec<PathBuf> {
        let known = self.folders.lock().unwrap();
        let mut found = Vec::new();
        let mut next = known.clone();
        while let Some(folder) = next.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if is_folder && !known.contains(&entry.path()) {
                    found.push(entry.path());
                    next.push(entry.path());
                }
            }
        }
        found
    }

    /// A folder that is meant to be in one of the user's folders.
    pub(crate) fn expects(&self, folder: PathBuf) {
        self.folders.lock().unwrap().push(folder);
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        drop(self.helper.take());
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut left = self.processes();
        while !left.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
            left = self.processes();
        }
        let told: Vec<String> = left.iter().map(|pid| told(*pid)).collect();
        for pid in &left {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        let (mounts, litter) = (self.mounts(), self.litter());
        open_up(&self.world.path("state"), 0);
        if std::thread::panicking() {
            let log = self.log();
            let end = log.len().saturating_sub(4000);
            eprintln(&format!(
                "the helper said: {}",
                log.get(end..).unwrap_or(&log)
            ));
            return;
        }
        assert!(told.is_empty(), "processes stayed: {told:#?}");
        assert!(mounts.is_empty(), "mounts stayed: {mounts:#?}");
        assert!(litter.is_empty(), "in the user's folders: {litter:?}");
    }
}

#[allow(clippy::print_stderr)]
pub(crate) fn eprintln(text: &str) {
    eprintln!("{text}");
}

fn told(pid: i32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    format!("{} {line}", stat.get(..60).unwrap_or(&stat))
}

/// The parent of a process, and whether it is only waiting to be reaped.
fn parent_of(pid: i32) -> Option<(i32, bool)> {
    let mut stat = String::new();
    let mut file = File::open(format!("/proc/{pid}/stat")).ok()?;
    file.read_to_string(&mut stat).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    Some((fields.next()?.parse().ok()?, matches!(state, "Z" | "X")))
}

pub(crate) fn private(folder: &Path) {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).unwrap();
}

/// Homes of sessions are closed even to their user; what is to be removed has to be open.
fn open_up(folder: &Path, depth: u32) {
    let is_folder = folder.symlink_metadata().is_ok_and(|seen| seen.is_dir());
    if !is_folder || depth > 12 {
        return;
    }
    private(folder);
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        open_up(&entry.path(), depth + 1);
    }
}

/// A number that was not given out before.
pub(crate) fn fresh() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A path as the app sends it: from the root, without the first slash.
pub(crate) fn from_root(path: &Path) -> String {
    path.to_str().unwrap().trim_start_matches('/').to_owned()
}

/// Adds fields to a request, or replaces them.
pub(crate) fn with(mut params: Value, more: Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        params[key] = value.clone();
    }
    params
}

/// One mount of a request.
pub(crate) fn mount(folder: &Path, mode: &str) -> Value {
    json!({"path": from_root(folder), "mode": mode})
}

/// Asks again and again; for what nothing tells of by itself.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience();
    while !is_so() {
        assert!(Instant::now() < deadline, "not so in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Does something that the contract gives a bound; ours is many times as long, for slow machines.
#[track_caller]
pub(crate) fn within<T>(seconds: u64, what: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = work();
    let took = start.elapsed();
    assert!(took < Duration::from_secs(seconds), "{what} took {took:?}");
    done
}
