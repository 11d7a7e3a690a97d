//! What a box sees of its own limits: all of them, and nothing that it could write to.

use std::path::PathBuf;

use crate::scene::{Held, Scene, python};
use crate::support::Ran;

const AT: &str = "/sys/fs/cgroup";
const LIMITS: [&str; 6] = ["--memory", "200M", "--pids", "60", "--cpus", "0.5"];

/// A session in a cgroup; `None` where there is none, after a look at what is there instead.
fn limited(flags: &[&str]) -> Option<Scene> {
    let scene = Scene::new();
    let flags = [&LIMITS[..], flags].concat();
    scene.start("it", &flags, "time.sleep(1000)");
    (scene.held("it") == Held::ByKernel).then_some(scene)
}

fn exec(scene: &Scene, program: &str) -> Ran {
    let words = python(program);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    scene.ground.exec("it", &words)
}

/// The group of the session on the host.
fn group(scene: &Scene) -> PathBuf {
    let seen = scene.ground.json(&["inspect", "it"]);
    let way = seen["seen"]["limits"][0].as_str().unwrap().to_owned();
    let (_, path) = way.split_once("by the cgroup ").unwrap();
    path.into()
}

#[test]
fn it_is_what_was_asked_for_and_follows_when_that_changes() {
    let Some(scene) = limited(&[]) else { return };
    let read = |name: &str| {
        scene
            .ground
            .exec("it", &["cat", &format!("{AT}/{name}")])
            .ok()
            .out
    };
    assert_eq!(read("memory.max"), format!("{}\n", 200 << 20));
    assert_eq!(read("pids.max"), "60\n");
    assert_eq!(read("cpu.max"), "50000 100000\n");
    let own = scene.ground.exec("it", &["cat", "/proc/self/cgroup"]).ok();
    assert!(own.out.contains("0::/\n"), "{}", own.out);
    let mounts = scene
        .ground
        .exec("it", &["cat", "/proc/self/mountinfo"])
        .ok()
        .out;
    let line = mounts.lines().find(|line| line.contains(AT)).unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!((words[3], words[4]), ("/", AT), "{line}");
    assert!(words[5].starts_with("ro,nosuid,nodev,noexec"), "{line}");
    scene
        .ground
        .say(&["limit", "it", "--memory", "300M", "--pids", "70"])
        .ok();
    assert_eq!(read("memory.max"), format!("{}\n", 300 << 20));
    assert_eq!(read("pids.max"), "70\n");
}

/// Everything that could make a limit go away, and what the kernel says to each.
const ATTACK: &str = "
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
at = '/sys/fs/cgroup'
def attempt(name, do):
    try: do(); say(name, 'DONE')
    except OSError as error: say(name, errno.errorcode[error.errno])
def write(name, text):
    fd = os.open(f'{at}/{name}', os.O_WRONLY)
    os.write(fd, text); os.close(fd)
def call(*words):
    if libc.syscall(*words) == -1: raise OSError(ctypes.get_errno(), '')
attempt('memory', lambda: write('memory.max', b'max'))
attempt('pids', lambda: write('pids.max', b'max'))
attempt('procs', lambda: write('cgroup.procs', b'0'))
attempt('kill', lambda: write('cgroup.kill', b'0'))
attempt('control', lambda: write('cgroup.subtree_control', b'+pids'))
attempt('group', lambda: os.mkdir(f'{at}/mine'))
attempt('owner', lambda: os.chmod(f'{at}/memory.max', 0o666))
# remount, mount over it, unmount, mount_setattr
attempt('remount', lambda: call(165, b'none', at.encode(), None, 32 | 4096, None))
attempt('fresh', lambda: call(165, b'none', b'/tmp', b'cgroup2', 0, None))
attempt('unmount', lambda: call(166, at.encode(), 2))
clear = (ctypes.c_uint64 * 4)(0, 1, 0, 0)
attempt('flags', lambda: call(442, -100, at.encode(), 0, ctypes.byref(clear), 32))
";

#[test]
fn nothing_can_be_written_there() {
    let Some(scene) = limited(&[]) else { return };
    let ran = exec(&scene, ATTACK).ok();
    assert!(!ran.out.contains("DONE"), "{}", ran.out);
    // Root's box has a number to which the files do not even belong.
    let files = match nix::unistd::getuid().is_root() {
        true => "EACCES",
        false => "EROFS",
    };
    for (what, says) in [("memory", files), ("procs", files), ("group", "EROFS")] {
        assert!(ran.out.contains(&format!("{what} {says}")), "{}", ran.out);
    }
    assert!(ran.out.lines().count() == 11, "{}", ran.out);
    let group = group(&scene);
    let memory = || std::fs::read_to_string(group.join("memory.max")).unwrap();
    assert_eq!(memory(), format!("{}\n", 200 << 20));
    // Without the wall it is the user's own to change.
    std::fs::write(group.join("memory.max"), "max").unwrap();
    assert_eq!(memory(), "max\n");
    std::fs::create_dir(group.join("mine")).unwrap();
    std::fs::remove_dir(group.join("mine")).unwrap();
    scene.others_are_well();
}

#[test]
fn nothing_can_be_written_through_a_mount_of_ones_own_either() {
    let Some(scene) = limited(&["--nesting"]) else {
        return;
    };
    // Programs that bring a sandbox may mount such a tree themselves; its top is not theirs.
    let script = "unshare -UrmC sh -c 'mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null || \
                  mount -t cgroup2 none /tmp; for at in /sys/fs/cgroup /tmp; do \
                  if [ -e $at/memory.max ]; then echo seen; \
                  echo max > $at/memory.max && echo WRITTEN; fi; done'; true";
    let ran = scene.ground.exec_sh("it", script).ok().says("seen");
    assert!(!ran.out.contains("WRITTEN"), "{ran:?}");
    let memory = std::fs::read_to_string(group(&scene).join("memory.max")).unwrap();
    assert_eq!(memory, format!("{}\n", 200 << 20));
}

#[test]
fn a_box_without_namespaces_is_held_and_shown_nothing() {
    let scene = Scene::new();
    let mut command = scene.ground.cowork();
    command
        .args(["run", "--isolation", "landlock"])
        .args(LIMITS);
    let ran = Ran::of(command.args(["--", "sh", "-c", "cat /sys/fs/cgroup/memory.max; echo ran"]));
    let ran = ran.ok().says("ran").complains("limits are held by");
    assert!(!ran.out.contains("200"), "{}", ran.out);
}

#[test]
fn what_there_is_not_is_neither_promised_nor_mounted() {
    let scene = Scene::new();
    let planned = |flags: &[&str]| {
        let mut command = scene.ground.cowork();
        command.args(["run", "--dry-run"]).args(flags);
        Ran::of(command.args(["--", "true"])).ok().out
    };
    // Nothing to be seen without limits, wherever one is.
    assert!(!planned(&[]).contains(AT));
    scene.ground.start(&["--name", "free"], &["sleep", "1000"]);
    let free = scene
        .ground
        .exec_sh("free", "ls -d /sys; grep -c cgroup /proc/self/mountinfo");
    assert_eq!(free.out, "0\n", "{}", free.err);
    let plan = planned(&LIMITS);
    match scene.way() {
        Held::ByKernel => assert!(plan.contains("show the box's own limits at /sys/fs/cgroup")),
        Held::BySupervisor => {
            assert!(!plan.contains(AT), "{plan}");
            let shown = scene
                .ground
                .exec_sh("neighbour", "ls -d /sys; cat /proc/self/mountinfo");
            assert!(
                !shown.out.contains("cgroup") && !shown.out.contains("/sys\n"),
                "{shown:?}"
            );
        }
    }
}
