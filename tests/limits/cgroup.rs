//! Limits that the kernel holds: on a host that delegates cgroup v2 to the one who runs the
//! tests, itself or through systemd. Elsewhere they are skipped, and say so.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use cowork_linux::limits::{
    Holder, Limit, LimitError, Prospect, Verdict, Wanted, Way, choose, foresee, remove_left_overs,
};
use cowork_linux::policy::SessionId;
use nix::unistd::Pid;

use crate::ground::{Boxed, MIB, PATIENCE, on_disk, supervise_for};

/// Finding a group can move this process, with all its tests, to another one.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const WANTED: Wanted = Wanted {
    memory: Some(100 * MIB),
    milli_cpus: Some(500),
    pids: Some(40),
    disk: None,
    io: None,
    files: None,
    idle: None,
};

#[allow(clippy::print_stderr)]
fn turn() -> Option<MutexGuard<'static, ()>> {
    let turn = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let required = std::env::var("COWORK_TEST_REQUIRE").unwrap_or_default();
    let is_required = |what| required.split(',').any(|name| name == what);
    match foresee(&WANTED) {
        Prospect::Supervision { because } => {
            assert!(!is_required("cgroup"), "{because}");
            eprintln!("SKIPPED: {because} (make vm-test has one)");
            None
        }
        Prospect::Scope(_) => {
            assert!(!is_required("own-cgroup"), "systemd would be asked");
            Some(turn)
        }
        Prospect::Below(_) => Some(turn),
    }
}

/// Whether the next box would get its place in the same group as this one.
fn has_room_beside(path: &Path) -> bool {
    foresee(&WANTED) == Prospect::Below(path.parent().unwrap().to_owned())
}

struct Held {
    holder: Holder,
    path: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

fn hold(name: &str, wanted: Wanted) -> Option<Held> {
    let turn = turn()?;
    let holder = choose(&wanted, &SessionId::parse(name).unwrap()).unwrap();
    let path = match holder.way() {
        Way::Cgroup { path, .. } => path.clone(),
        other => panic!("{other}"),
    };
    Some(Held {
        holder,
        path,
        _turn: turn,
    })
}

impl Held {
    fn start(&mut self, program: &str) -> Boxed {
        let boxed = Boxed::within(&self.path, program);
        let first = Pid::from_raw(boxed.first);
        let ground = on_disk(&[Path::new("/var/tmp")]);
        self.holder.begin(first, false, ground).unwrap();
        boxed
    }

    fn file(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.path.join(name)).unwrap();
        text.trim().to_owned()
    }
}

#[test]
fn the_kernel_is_told_the_limits_and_what_is_missing_is_known() {
    let Some(mut held) = hold("told", WANTED) else {
        return;
    };
    assert_eq!(held.file("memory.max"), (100 * MIB).to_string());
    assert_eq!(held.file("pids.max"), "40");
    assert_eq!(held.file("cpu.max"), "50000 100000");
    let Way::Cgroup { without, .. } = held.holder.way() else {
        panic!()
    };
    assert_eq!(without, &[]);
    assert_eq!(held.holder.weaker(), Vec::<String>::new());
    assert!(held.holder.cgroup().is_some() && held.holder.view().is_some());
    assert_eq!(held.holder.wake_at(), None, "nobody has to look");
    let boxed = held.start("wait()");
    assert_eq!(held.holder.wake_at(), None, "nobody has to look");
    boxed.end();
}

#[test]
fn a_second_box_gets_a_place_beside_the_first() {
    let Some(first) = hold("one", WANTED) else {
        return;
    };
    if !has_room_beside(&first.path) {
        // A user's systemd does not mark what it gives away; each box asks it anew.
        return;
    }
    let second = choose(&WANTED, &SessionId::parse("two").unwrap()).unwrap();
    let Way::Cgroup { path, .. } = second.way() else {
        panic!("{}", second.way())
    };
    assert_eq!(path.parent(), first.path.parent());
    let path = path.clone();
    second.end();
    assert!(!path.exists());
    assert!(first.path.exists(), "the first is not disturbed");
    assert_eq!(first.file("memory.max"), (100 * MIB).to_string());
}

#[test]
fn a_memory_bomb_costs_one_process_and_the_limit_is_named() {
    let Some(mut held) = hold("bomb", WANTED) else {
        return;
    };
    let mut boxed = held.start(
        "
pid = os.fork()
if pid == 0:
    wait(); held = bytearray(150 * M)
    os._exit(0)
say('ready')
say('status', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
wait()
",
    );
    assert_eq!(boxed.hear(), "ready");
    assert_eq!(held.holder.check(), Verdict::Fine);
    boxed.tell("go");
    let verdict = supervise_for(&mut held.holder, PATIENCE);
    let Verdict::Held { limit, what } = verdict else {
        panic!("{verdict:?}")
    };
    assert_eq!(limit, Limit::Memory);
    assert_eq!(
        what,
        "memory limit of 100 MiB reached: the kernel ended 1 process"
    );
    assert_eq!(boxed.hear(), "status -9");
    assert_eq!(held.holder.check(), Verdict::Fine, "said once");
    boxed.end();
}

#[test]
fn the_same_bomb_is_nothing_to_a_larger_limit() {
    let wanted = Wanted {
        memory: Some(250 * MIB),
        ..WANTED
    };
    let Some(mut held) = hold("larger", wanted) else {
        return;
    };
    let mut boxed = held.start("held = bytearray(150 * M); say('had it'); wait()");
    assert_eq!(boxed.hear(), "had it");
    assert_eq!(held.holder.check(), Verdict::Fine);
    let used = held.holder.usage().memory / MIB;
    assert!((150..175).contains(&used), "{used} MiB");
    boxed.end();
}

#[test]
fn files_in_memory_count_for_who_writes_them() {
    let Some(mut held) = hold("shm", WANTED) else {
        return;
    };
    let mut boxed = held.start(
        "
path = f'/dev/shm/cowork-{os.getpid()}'
say(path)
with open(path, 'wb') as out:
    for _ in range(150): out.write(b'x' * M)
say('written')
",
    );
    let path = boxed.hear();
    let ended = boxed.child.wait().unwrap();
    std::fs::remove_file(path).unwrap();
    assert_eq!(ended.signal(), Some(libc::SIGKILL));
    let verdict = held.holder.check();
    assert!(matches!(
        verdict,
        Verdict::Held {
            limit: Limit::Memory,
            ..
        }
    ));
}

#[test]
fn a_fork_bomb_is_refused_more_processes() {
    let Some(mut held) = hold("forks", WANTED) else {
        return;
    };
    let mut boxed = held.start(
        "
born = 0
try:
    for _ in range(100):
        if os.fork() == 0:
            time.sleep(100); os._exit(0)
        born += 1
except OSError: pass
say(born); wait()
",
    );
    assert_eq!(boxed.hear(), "39");
    let verdict = supervise_for(&mut held.holder, PATIENCE);
    let Verdict::Held { limit, what } = verdict else {
        panic!("{verdict:?}")
    };
    assert_eq!(limit, Limit::Pids);
    assert_eq!(what, "process limit of 40 reached: 1 new one was refused");
    assert_eq!(held.holder.usage().pids, 40);
    held.holder.kill_all().unwrap();
    assert!(boxed.vanishes());
    held.holder.end();
    assert!(
        !held.path.exists(),
        "the group is removed once all are gone"
    );
}

#[test]
fn a_box_gets_the_share_of_a_processor_it_was_given() {
    let Some(mut held) = hold("spin", WANTED) else {
        return;
    };
    let boxed = held.start("if os.fork() == 0: pass\nwhile True: pass");
    let before = held.holder.usage().cpu_time;
    let start = std::time::Instant::now();
    supervise_for(&mut held.holder, Duration::from_secs(3));
    let used = (held.holder.usage().cpu_time - before).as_secs_f64();
    let share = used / start.elapsed().as_secs_f64();
    held.holder.kill_all().unwrap();
    boxed.end();
    assert!((0.2..0.6).contains(&share), "{share}");
}

#[test]
fn a_paused_box_stands_still() {
    let Some(mut held) = hold("pause", WANTED) else {
        return;
    };
    let boxed = held.start("for _ in range(3): os.fork()\nwhile True: time.sleep(0.001)");
    held.holder.freeze().unwrap();
    let stopped = held.holder.usage().cpu_time;
    supervise_for(&mut held.holder, Duration::from_millis(500));
    assert_eq!(held.holder.usage().cpu_time, stopped);
    held.holder.thaw().unwrap();
    supervise_for(&mut held.holder, Duration::from_secs(1));
    assert!(held.holder.usage().cpu_time > stopped);
    held.holder.freeze().unwrap();
    held.holder.kill_all().unwrap();
    assert!(boxed.vanishes(), "a stopped box can be ended");
}

#[test]
fn limits_change_while_the_box_runs() {
    let Some(mut held) = hold("change", WANTED) else {
        return;
    };
    let mut boxed = held.start(
        "
held = [bytearray(60 * M)]; say('first'); wait()
held.append(bytearray(80 * M)); say('second'); wait()
",
    );
    assert_eq!(boxed.hear(), "first");
    let at = |memory| Wanted {
        memory: Some(memory),
        ..WANTED
    };
    let error = held.holder.change(&at(30 * MIB)).unwrap_err();
    assert!(matches!(error, LimitError::InUse { .. }), "{error}");
    assert_eq!(held.file("memory.max"), (100 * MIB).to_string());
    held.holder.change(&at(250 * MIB)).unwrap();
    assert_eq!(held.file("memory.max"), (250 * MIB).to_string());
    boxed.tell("go");
    assert_eq!(boxed.hear(), "second");
    let none = Wanted {
        pids: Some(20),
        ..Wanted::default()
    };
    held.holder.change(&none).unwrap();
    assert_eq!(held.file("memory.max"), "max");
    assert_eq!(held.file("cpu.max"), "max 100000");
    assert_eq!(held.file("pids.max"), "20");
    boxed.end();
}

#[test]
fn traffic_is_limited_on_the_disk_below_the_folders() {
    let wanted = Wanted {
        io: Some(5 * MIB),
        ..WANTED
    };
    let Some(mut held) = hold("traffic", wanted) else {
        return;
    };
    let boxed = held.start("wait()");
    let Way::Cgroup { without, .. } = held.holder.way() else {
        panic!()
    };
    if !without.contains(&Limit::Io) {
        let line = held.file("io.max");
        let rate = 5 * MIB;
        assert!(line.contains(&format!("rbps={rate} wbps={rate}")), "{line}");
    }
    boxed.end();
}

#[test]
fn nothing_is_left_of_a_group_and_what_others_left_is_removed() {
    let Some(mut held) = hold("rest", WANTED) else {
        return;
    };
    let base = held.path.parent().unwrap().to_owned();
    let stale = base.join("cowork-stale");
    std::fs::create_dir(&stale).unwrap();
    let is_removed_by_us = has_room_beside(&held.path);
    let boxed = held.start("os.fork(); wait()");
    held.holder.kill_all().unwrap();
    assert!(boxed.vanishes());
    let Held {
        holder,
        path,
        _turn,
    } = held;
    let removed = remove_left_overs();
    assert_eq!(
        (removed, stale.exists()),
        if is_removed_by_us {
            (1, false)
        } else {
            (0, true)
        }
    );
    assert!(path.exists(), "one in use is left alone");
    holder.end();
    assert!(!path.exists());
}

#[test]
fn the_box_sees_its_own_limits_and_nothing_above() {
    let Some(held) = hold("view", WANTED) else {
        return;
    };
    let view = held.holder.view().unwrap();
    assert!(view.needs_own_cgroup_namespace && view.is_read_only);
    let inside = format!(
        "mount -t {} -o ro,nosuid,nodev,noexec none /mnt && cat /proc/self/cgroup /mnt/memory.max \
         && ! echo max > /mnt/memory.max",
        view.filesystem
    );
    let enter = "echo 0 > \"$0/cgroup.procs\" && exec unshare -UrmC sh -c \"$1\"";
    let ran = Command::new("sh")
        .args(["-c", enter])
        .arg(&held.path)
        .arg(inside)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{said} {:?}", ran.stderr);
    assert_eq!(said, format!("0::/\n{}\n", 100 * MIB));
}
