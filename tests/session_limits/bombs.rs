//! Everything that a program can take too much of. Each time the session is ended or held to its limit,
//! which is named; another session and the host do not notice.

use std::os::unix::fs::MetadataExt;

use crate::ground::eventually;
use crate::scene::{Held, Scene, python};

#[test]
fn a_fork_bomb() {
    let scene = Scene::new();
    let bomb = "
while True:
    try: os.fork()
    except OSError: time.sleep(1)
";
    scene.start("bomb", &["--pids", "20", "--memory", "600M"], bomb);
    scene.is_named("bomb", "pids", "process limit of 20 reached");
    scene.others_are_well();
    if scene.ground.state("bomb") == "running" {
        let listed = scene.ground.json(&["stats", "--json"]);
        let bomb = listed
            .as_array()
            .unwrap()
            .iter()
            .find(|it| it["id"] == "bomb")
            .cloned();
        let there = bomb.map_or(0, |it| it["processes"].as_u64().unwrap());
        assert!((2..=21).contains(&there), "{there}");
    }
    scene.ground.say(&["rm", "-f", "bomb"]).ok();
    // Where more are allowed, more there are.
    scene.start(
        "free",
        &["--pids", "300"],
        "
born = 0
for _ in range(30):
    if os.fork() == 0: time.sleep(1000)
    born += 1
say('born', born); time.sleep(1000)
",
    );
    scene.says("free", "born 30");
}

/// Pages are touched, and what cannot be had is tried again, so that it never ends by itself.
const HUNGRY: &str = "
held = []
while len(held) < 40:
    try: held.append(b'x' * (5 * M))
    except MemoryError: time.sleep(0.1)
say('full'); time.sleep(1000)
";

#[test]
fn a_memory_bomb() {
    let scene = Scene::new();
    scene.start("bomb", &["--memory", "100M"], HUNGRY);
    scene.is_named("bomb", "memory", "memory limit of 100 MiB reached");
    scene.ended_by("bomb", "memory limit of 100 MiB reached");
    scene.others_are_well();
    scene.start("free", &["--memory", "500M"], HUNGRY);
    scene.says("free", "full");
    assert_eq!(scene.ground.state("free"), "running");
}

fn filler(folder: &str) -> String {
    format!(
        "
with open('{folder}/big', 'wb') as out:
    for _ in range(200): out.write(b'x' * M); out.flush()
say('full'); time.sleep(1000)
"
    )
}

#[track_caller]
fn fills_memory_through(folder: &str) {
    let scene = Scene::new();
    let program = filler(folder);
    scene.start(
        "bomb",
        &["--memory", "100M", "--tmp-size", "250M"],
        &program,
    );
    scene.is_named("bomb", "memory", "memory limit of 100 MiB reached");
    scene.ended_by("bomb", "memory limit of 100 MiB reached");
    scene.others_are_well();
    scene.start(
        "free",
        &["--memory", "500M", "--tmp-size", "250M"],
        &program,
    );
    scene.says("free", "full");
    // Its own size holds as well, and there it is the program that hears of it.
    let tight = "
try:
    with open('/tmp/big', 'wb') as out:
        for _ in range(200): out.write(b'x' * M); out.flush()
except OSError as error: say('errno', error.errno == errno.ENOSPC)
time.sleep(1000)
";
    if folder == "/tmp" {
        scene.start("tight", &["--memory", "500M", "--tmp-size", "50M"], tight);
        scene.says("tight", "errno True");
    }
}

#[test]
fn a_filler_of_tmp() {
    fills_memory_through("/tmp");
}

#[test]
fn a_filler_of_shared_memory() {
    fills_memory_through("/dev/shm");
}

/// Without guards, which look at every file that is made and would make this last.
fn unguarded(scene: &Scene) -> String {
    let policy = "name = \"unguarded\"\n[guard]\nenabled = false\n";
    let path = scene.ground.world.write("unguarded.toml", policy);
    path.display().to_string()
}

fn makes_files(folder: &str, count: u32) -> String {
    format!(
        "
os.makedirs(f'{folder}/many', exist_ok=True)
for number in range({count}):
    with open(f'{folder}/many/{{number}}', 'w'): pass
say('made'); time.sleep(1000)
"
    )
}

#[test]
fn a_maker_of_files_in_memory() {
    let scene = Scene::new();
    let program = makes_files("/tmp", 32_000);
    let profile = unguarded(&scene);
    scene.start(
        "bomb",
        &["--memory", "30M", "--profile", &profile],
        &program,
    );
    scene.is_named("bomb", "memory", "memory limit of 30 MiB reached");
    scene.ended_by("bomb", "memory limit of 30 MiB reached");
    scene.others_are_well();
    scene.start(
        "free",
        &["--memory", "600M", "--profile", &profile],
        &program,
    );
    scene.says("free", "made");
}

#[test]
fn a_maker_of_files_on_disk() {
    let scene = Scene::new();
    // As many as there are blocks of 4 KiB in it, and 10 000 in any case.
    let program = makes_files("/sessions/bomb", 12_000);
    let profile = unguarded(&scene);
    scene.start("bomb", &["--disk", "30M", "--profile", &profile], &program);
    scene.is_named("bomb", "disk", "limit of 10000 files on disk reached");
    // In the background it stands still rather than losing its work, and can be given more.
    let seen = scene.ground.json(&["inspect", "bomb"]);
    assert_eq!(seen["seen"]["paused"], true, "{seen}");
    scene.others_are_well();
    scene.ground.say(&["limit", "bomb", "--disk", "400M"]).ok();
    scene.ground.say(&["resume", "bomb"]).ok();
    scene.says("bomb", "made");
}

#[test]
fn a_filler_of_the_disk() {
    let scene = Scene::new();
    let program = filler("/sessions/bomb");
    scene.start("bomb", &["--disk", "30M"], &program);
    scene.is_named("bomb", "disk", "disk limit of 30 MiB reached");
    let seen = scene.ground.json(&["inspect", "bomb"]);
    assert_eq!(seen["seen"]["paused"], true, "{seen}");
    scene.others_are_well();
    // A limit that comes later is one as well.
    scene.start("late", &[], "time.sleep(1000)");
    scene.ground.say(&["limit", "late", "--disk", "30M"]).ok();
    let script = python(&filler("/sessions/late"));
    let mut words = vec!["exec", "late", "--"];
    words.extend(script.iter().map(String::as_str));
    let mut filling = scene.ground.spawn(&words);
    scene.is_named("late", "disk", "disk limit of 30 MiB reached");
    filling.kill().unwrap();
    filling.wait().unwrap();
}

#[test]
fn a_flooder_of_the_log() {
    let scene = Scene::new();
    let flood = "
line = b'0123456789abcdef' * 4095 + b'0123456789abcde\\n'
for _ in range(640): os.write(1, line)
say('end'); time.sleep(1000)
";
    scene.start("bomb", &["--memory", "200M"], flood);
    eventually("it has said all there was to say", || {
        scene.ground.say(&["logs", "--tail", "1", "bomb"]).out == "end\n"
    });
    let folder = std::fs::read_dir(scene.ground.folder("bomb")).unwrap();
    let kept: u64 = folder
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("log"))
        .map(|entry| entry.metadata().unwrap().blocks() * 512)
        .sum();
    assert!(kept < 24 << 20, "{kept} bytes of 40 MiB");
    assert!(kept > 4 << 20, "{kept} bytes: next to nothing was kept");
    let supervisor = scene.ground.supervisor("bomb");
    let status = std::fs::read_to_string(format!("/proc/{supervisor}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak: u64 = peak
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(peak < 32 << 10, "{peak} KB in the supervisor");
    scene.others_are_well();
    assert_eq!(scene.ground.state("bomb"), "running");
}

const SPIN: &str = "
for _ in range(3):
    if os.fork() == 0: break
say('spins')
while True: pass
";

#[test]
fn a_spinner() {
    let scene = Scene::new();
    scene.start("bomb", &["--cpus", "0.5"], SPIN);
    scene.says("bomb", "spins");
    match scene.held("bomb") {
        // The kernel has put it on hold, and it can see so itself.
        Held::ByKernel => eventually("it is throttled", || {
            let seen = scene
                .ground
                .exec("bomb", &["cat", "/sys/fs/cgroup/cpu.stat"])
                .out;
            let times = seen
                .lines()
                .find_map(|line| line.strip_prefix("nr_throttled "));
            times.is_some_and(|times| times != "0")
        }),
        Held::BySupervisor => {
            let count = || scene.ground.exec("bomb", &["nproc"]).ok().out;
            assert_eq!(count(), "1\n");
            let notes = scene.ground.say(&["inspect", "bomb"]).ok();
            notes.says("limited to whole processors");
        }
    }
    let seen = scene.ground.json(&["inspect", "bomb"]);
    assert_eq!(seen["seen"]["limited_to"]["cpus"], "0.5");
    scene.others_are_well();
}

#[test]
fn a_sleeper() {
    let scene = Scene::new();
    scene.start(
        "bomb",
        &["--idle", "2s", "--memory", "200M"],
        "say('sleeps'); time.sleep(1000)",
    );
    scene.is_named("bomb", "idle", "idle limit of 2s reached");
    scene.ended_by("bomb", "idle limit of 2s reached");
    scene.others_are_well();
}
