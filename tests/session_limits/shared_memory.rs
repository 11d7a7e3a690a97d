//! What the supervisor does about memory where no cgroup does: it counts what no process answers for,
//! and the host's kernel is told whom to end first.

use crate::ground::eventually;
use crate::scene::{Held, Scene};

/// System V's memory by the calls that make it; nobody is attached to it afterwards.
const SYSTEM_V: &str = "
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.shmdt.argtypes = [ctypes.c_void_p]
PRIVATE, CREATE = 0, 0o1600
def segment(size):
    made = libc.shmget(PRIVATE, ctypes.c_size_t(size), CREATE)
    at = libc.shmat(made, None, 0)
    ctypes.memset(at, 1, size)
    libc.shmdt(at)
def semaphores(): assert libc.semget(PRIVATE, 32000, CREATE) >= 0
def queue():
    made = libc.msgget(PRIVATE, CREATE)
    text = ctypes.create_string_buffer(b'\\1' + bytes(7) + b'x' * 4000)
    for _ in range(4): assert libc.msgsnd(made, text, 4000, 0) == 0
";

const SEGMENTS: &str = "for _ in range(10): segment(20 * M)";
const SEMAPHORES: &str = "for _ in range(70): semaphores()";
const QUEUES: &str = "for _ in range(8000): queue()";

#[track_caller]
fn counts(made: &str) {
    let scene = Scene::new();
    if scene.way() == Held::ByKernel {
        return;
    }
    let program = format!("{SYSTEM_V}{made}\nsay('full'); time.sleep(1000)");
    scene.start("bomb", &["--memory", "100M"], &program);
    scene.is_named("bomb", "memory", "memory limit of 100 MiB reached");
    scene.ended_by("bomb", "memory limit of 100 MiB reached");
    scene.others_are_well();
    // The same lives where there is room, and none of its processes has what it took.
    scene.start("free", &["--memory", "600M"], &program);
    scene.says("free", "full");
    let stats = scene.ground.json(&["stats", "--json"]);
    let free = stats
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["id"] == "free")
        .unwrap();
    assert!(free["memory"].as_u64().unwrap() < 60 << 20, "{free}");
    scene.ground.exec("free", &["true"]).ok();
    assert_eq!(scene.ground.state("free"), "running");
}

#[test]
fn segments_that_nobody_is_attached_to_are_memory() {
    counts(SEGMENTS);
}

#[test]
fn semaphores_are_memory() {
    counts(SEMAPHORES);
}

#[test]
fn messages_that_nobody_reads_are_memory() {
    counts(QUEUES);
}

#[test]
fn they_are_memory_too_under_a_limit_that_comes_later() {
    let scene = Scene::new();
    if scene.way() == Held::ByKernel {
        return;
    }
    let program = format!("{SYSTEM_V}{SEGMENTS}\nsay('full'); time.sleep(1000)");
    scene.start("it", &[], &program);
    scene.says("it", "full");
    let refused = scene.ground.say(&["limit", "it", "--memory", "100M"]);
    refused.failed_with(1).complains("the box uses 2");
    scene.ground.say(&["limit", "it", "--memory", "400M"]).ok();
}

#[test]
fn the_hosts_kernel_is_told_to_end_such_a_box_first() {
    let scene = Scene::new();
    if scene.way() == Held::ByKernel {
        return;
    }
    let score = |id: &str| {
        scene
            .ground
            .exec(id, &["cat", "/proc/self/oom_score_adj"])
            .ok()
            .out
    };
    let own = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    assert_eq!(score("neighbour").trim(), "500");
    let first = scene.ground.first("neighbour");
    eventually("pid 1 goes with them", || {
        let score = std::fs::read_to_string(format!("/proc/{first}/oom_score_adj"));
        score.is_ok_and(|score| score.trim() == "500")
    });
    let supervisor = scene.ground.supervisor("neighbour");
    let score_of = std::fs::read_to_string(format!("/proc/{supervisor}/oom_score_adj")).unwrap();
    assert_eq!(score_of, own, "the supervisor is no part of it");
    // Without a limit nobody is worse off than before.
    scene.start("free", &[], "time.sleep(1000)");
    assert_eq!(score("free").trim(), own.trim());
}
