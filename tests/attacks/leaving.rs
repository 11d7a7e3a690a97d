//! Nothing outlives the box: no process, no file.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use super::attacker;
use super::support::{Ran, World, exists};

/// Longer than any test may take, so that a survivor is seen as one.
const LIFE: &str = "40";

fn start(mut command: Command) -> (Child, BufReader<ChildStdout>) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    (child, out)
}

/// Reads until nobody holds the other end: every process that could write is gone.
fn until_all_are_gone(mut out: BufReader<ChildStdout>) -> Duration {
    let start = Instant::now();
    out.read_to_string(&mut String::new()).unwrap();
    start.elapsed()
}

/// The numbers that the five who want to stay tell.
fn five(out: &mut BufReader<ChildStdout>) -> Vec<nix::unistd::Pid> {
    let lines = out.lines().take(5).map(|line| line.unwrap().parse());
    lines
        .map(|pid| nix::unistd::Pid::from_raw(pid.unwrap()))
        .collect()
}

/// PR-10, PR-56, PR-58: in a session, a group, an orphan's or a sibling's place.
#[test]
fn no_daemon_outlives_the_program() {
    let world = World::new();
    let attack = attacker(&world);
    // Below a shell of its own: the one that takes a sibling's place would else become ours.
    let mut command = Command::new("sh");
    command
        .args(["-c", "\"$0\" outlive \"$1\"; exit 0"])
        .arg(attack)
        .arg(LIFE);
    let (mut child, mut out) = start(command);
    let pids = five(&mut out);
    child.wait().unwrap();
    let ended: Vec<_> = pids
        .iter()
        .map(|pid| nix::sys::signal::kill(*pid, nix::sys::signal::Signal::SIGKILL))
        .collect();
    assert_eq!(ended, [Ok(()); 5], "the control: all five are still there");

    let mut command = world.cowork();
    command.args(["run", "-q", "--mount"]).arg(world.work());
    command.args([
        "--",
        "sh",
        "-c",
        &format!("./attack outlive {LIFE}; exit 0"),
    ]);
    let (mut child, mut out) = start(command);
    five(&mut out);
    assert!(until_all_are_gone(out) < Duration::from_secs(20));
    assert!(child.wait().unwrap().success());
}

/// PR-11: and none the launcher's violent death.
#[test]
fn nothing_outlives_the_launcher() {
    let world = World::new();
    attacker(&world);
    let script = format!("./attack outlive {LIFE}; sleep {LIFE}");
    // The control: without a box the death of the shell ends nobody.
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 30 >/dev/null 2>&1 & echo $!; wait"]);
    let (mut child, mut out) = start(command);
    let mut pid = String::new();
    out.read_line(&mut pid).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    world.control(&format!("kill -KILL {}", pid.trim())).ok();

    for signal in [
        nix::sys::signal::Signal::SIGKILL,
        nix::sys::signal::Signal::SIGABRT,
    ] {
        let mut command = world.cowork();
        command
            .args(["run", "-q", "--mount"])
            .arg(world.work())
            .args(["--", "sh", "-c", &script]);
        let (mut child, mut out) = start(command);
        five(&mut out);
        let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
        assert!(
            until_all_are_gone(out) < Duration::from_secs(20),
            "{signal}"
        );
        child.wait().unwrap();
    }
}

/// FS-62, and that a session without a name leaves no file, whatever it did to its own.
#[test]
fn deep_closed_and_oddly_named_folders_leave_no_trace() {
    let world = World::new();
    let script = "
import os
os.chdir(os.environ['HOME'])
for name in (b'\\xff\\xfe', b'a\\nb', b'-rf', b'n' * 255, b'\\x1b]0;x\\x07'):
    os.mkdir(name); open(name + b'/f' if len(name) < 255 else name + b'/g', 'w')
os.mkdir('closed'); os.mkdir('closed/in'); open('closed/in/f', 'w'); os.chmod('closed/in', 0); os.chmod('closed', 0)
os.mkdir('read-only'); open('read-only/f', 'w'); os.chmod('read-only', 0o500)
os.symlink('/', 'root'); os.symlink('..', 'up'); os.mkfifo('pipe')
for _ in range(4000): os.mkdir('d'); os.chdir('d')
os.chmod('.', 0)
";
    // The control: this is more than a path can say, or rm -r without rights can do.
    let free = world.path("free");
    std::fs::create_dir(&free).unwrap();
    let mut python = Command::new("python3");
    python.args(["-c", script]).env("HOME", &free);
    Ran::of(&mut python).ok();
    assert!(exists(&free.join("closed")));
    Ran::of(Command::new("chmod").arg("-R").arg("u+rwx").arg(&free));
    Ran::of(
        Command::new("rm")
            .args(["-rf", "--one-file-system"])
            .arg(&free),
    )
    .ok();

    world.run(&[], &["python3", "-c", script]).ok();
    assert_eq!(left_behind(&world), "");
    // Whoever comes next finds nothing either: no file, no mode.
    let next = world.sh("ls -A ~; stat -c %a ~").ok();
    assert_eq!(next.out, "mnt\n700\n");
}

/// FS-62 for whoever was killed in the middle: the next session takes over and cleans up.
#[test]
fn what_a_killed_launcher_left_is_gone_after_the_next_session() {
    let world = World::new();
    world.sh("true").ok();
    let rooms = world.path("state/cowork-linux/rooms");
    let room = std::fs::read_dir(&rooms)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    for name in [
        "inner/.removing-1/x/y",
        "inner/.removing-2/.removing-1",
        "inner/home/a/b/c",
        "inner/home/d/e",
    ] {
        std::fs::create_dir_all(room.join(name)).unwrap();
        std::fs::write(room.join(name).join("secret"), "of another session").unwrap();
    }
    assert_ne!(left_behind(&world), "", "the control");
    let next = world.sh("ls -A ~; mkdir -p ~/a/b ~/c/d").ok();
    assert_eq!(next.out, "mnt\n");
    assert_eq!(left_behind(&world), "");
}

/// FS-62 from the other side: a program that takes the rights of its folders away keeps nobody
/// from the next session, and what it put into outputs is the user's all the same.
#[test]
fn a_session_cannot_spoil_the_place_for_the_next_one() {
    let world = World::new();
    let free = world.path("free");
    std::fs::create_dir(&free).unwrap();
    world.control("chmod 0 ../free").ok();
    if !super::support::is_root() {
        assert!(std::fs::read_dir(&free).is_err(), "the control");
    }
    world.control("chmod 700 ../free").ok();
    for script in [
        "chmod 0 ~/mnt/outputs",
        "echo kept > ~/mnt/outputs/result; chmod 0 ~/mnt/outputs",
        "chmod 500 ~/mnt/outputs",
        "chmod 0 ~",
        "mkdir ~/x; chmod 0 ~/x ~/mnt/outputs ~",
        "chmod 777 ~/mnt/outputs ~",
    ] {
        world.sh(script).ok();
        let next = world.sh(
            "ls -A ~ ~/mnt/outputs; stat -c %a ~ ~/mnt/outputs; touch ~/x ~/mnt/outputs/../../y",
        );
        let next = next.ok();
        assert!(
            next.out.ends_with(":\n700\n700\n"),
            "after {script}: {next:?}"
        );
        assert!(next.out.contains(":\nmnt\n\n"), "after {script}: {next:?}");
    }
    let kept = world
        .control("find ../state -name result -perm -u+r -exec cat {} +")
        .ok();
    assert_eq!(kept.out, "kept\n");
    // Nor for itself.
    for _ in 0..2 {
        let spoil = ["sh", "-c", "echo x > ~/note; chmod 0 ~/mnt/outputs ~"];
        world.run(&["--name", "again"], &spoil).ok();
    }
    let note = ["cat", "/sessions/again/note"];
    world.run(&["--name", "again"], &note).ok().says("x");
}

/// Everything that sessions without a name have left but their empty folders.
fn left_behind(world: &World) -> String {
    let mut find = Command::new("find");
    find.arg(world.path("state/cowork-linux"));
    find.args(["-mindepth", "3", "-regextype", "posix-extended"]);
    find.args([
        "!",
        "-regex",
        ".*/rooms/[0-9]+/(inner|inner/home|inner/home/mnt|outputs|lock)",
    ]);
    Ran::of(&mut find).ok().out
}

/// PR-51: whoever nobody waits for is reaped all the same.
#[test]
fn a_flood_of_orphans_leaves_no_zombies() {
    let world = World::new();
    let script = "
import glob, os
for _ in range(1500):
    if os.fork() == 0:
        if os.fork() == 0: os._exit(0)
        os._exit(0)
    os.wait()
def zombies(): return sum(') Z ' in open(f).read() for f in glob.glob('/proc/[0-9]*/stat') if os.path.exists(f))
for _ in range(200):
    try: left = zombies()
    except OSError: left = 1
    if left == 0: break
print('left', left)
";
    // The control is what makes zombies at all: children whose parent does not wait.
    let control = "import os,subprocess\npid = os.fork()\nif pid == 0: os._exit(0)\nos.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)\nprint(open(f'/proc/{pid}/stat').read())";
    Ran::of(Command::new("python3").args(["-c", control]))
        .ok()
        .says(") Z ");
    world
        .run(&[], &["python3", "-c", script])
        .ok()
        .says("left 0");
}
