//! Open files: a limit that each process carries. A program that wants more hears so; nobody else does.

use crate::scene::{Scene, python};
use crate::support::Ran;

/// Opens until it may not, or until it is enough.
const OPEN: &str = "
def fill(path, flags, most=1000):
    opened = []
    try:
        while len(opened) < most: opened.append(os.open(path % len(opened), flags, 0o600))
    except OSError as error: return len(opened), errno.errorcode[error.errno]
    return len(opened), 'enough'
";

fn exec(scene: &Scene, id: &str, program: &str) -> Ran {
    let words = python(&format!("{OPEN}{program}"));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    scene.ground.exec(id, &words)
}

const NULL: &str = "say(*fill('/dev/null%.0s', os.O_RDONLY))";

#[test]
fn a_program_that_opens_too_many_hears_of_it() {
    let scene = Scene::new();
    scene.start("bomb", &["--files", "64"], "time.sleep(1000)");
    // Three are its streams.
    exec(&scene, "bomb", NULL).ok().says("61 EMFILE");
    let raised = "
try: resource.setrlimit(resource.RLIMIT_NOFILE, (1000, 1000)); say('raised')
except (ValueError, OSError): say('refused')
";
    exec(&scene, "bomb", raised).ok().says("refused");
    // It is a limit of each.
    let many = "
for _ in range(5):
    if os.fork() == 0: say(*fill('/dev/null%.0s', os.O_RDONLY)); os._exit(0)
for _ in range(5): os.wait()
";
    let ran = exec(&scene, "bomb", many).ok();
    assert_eq!(ran.out.matches("61 EMFILE\n").count(), 5, "{}", ran.out);
    scene.others_are_well();
    exec(&scene, "neighbour", NULL).ok().says("1000 enough");
}

#[test]
fn the_first_program_is_limited_as_those_that_come_later() {
    let scene = Scene::new();
    let program = format!("{OPEN}{NULL}");
    scene.start(
        "bomb",
        &["--files", "40"],
        &format!("{program}; time.sleep(1000)"),
    );
    scene.says("bomb", "37 EMFILE");
    let seen = scene.ground.json(&["inspect", "bomb"]);
    assert_eq!(seen["seen"]["limited_to"]["files"], "40", "{seen}");
    let words = python(&program);
    let mut command = scene.ground.cowork();
    command
        .args(["run", "-q", "--files", "40", "--"])
        .args(&words);
    Ran::of(&mut command).ok().says("37 EMFILE");
    // The weaker form carries it too.
    let mut command = scene.ground.cowork();
    command.args([
        "run",
        "-q",
        "--isolation",
        "landlock",
        "--files",
        "40",
        "--",
    ]);
    Ran::of(command.args(&words)).ok().says("37 EMFILE");
}

#[test]
fn files_that_the_first_process_opens_count_for_the_program_and_not_for_itself() {
    let scene = Scene::new();
    scene.start("bomb", &["--files", "24"], "time.sleep(1000)");
    // In a guarded mount it is pid 1 that opens what is written to.
    let guarded = "say(*fill('made-%d', os.O_WRONLY | os.O_CREAT))";
    exec(&scene, "bomb", guarded).ok().says("21 EMFILE");
    // Many programs that have many open together are no matter of its own limit.
    let together = "
for child in range(20):
    if os.fork() == 0:
        # The others' streams end with them; these would keep the one who waits for them.
        for stream in range(3): os.dup2(os.open('/dev/null', os.O_RDWR), stream)
        os.closerange(3, 24)
        fill(f'of-{child}-%d', os.O_WRONLY | os.O_CREAT, 15); time.sleep(1000)
";
    exec(&scene, "bomb", together).ok();
    scene
        .ground
        .exec_sh("bomb", "echo works > after; cat after")
        .ok()
        .says("works");
    let made = scene.ground.world.work().join("of-19-14");
    crate::ground::eventually("the last one's last file", || made.exists());
}

/// What the kernel holds a process to.
fn limit_of(pid: i32) -> (String, String) {
    let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let mut words = line.split_whitespace().skip(3).map(str::to_owned);
    (words.next().unwrap(), words.next().unwrap())
}

#[test]
fn a_running_session_gets_another_limit_and_is_told_what_that_means() {
    let scene = Scene::new();
    scene.start(
        "it",
        &["--files", "64"],
        "say(os.getpid()); time.sleep(1000)",
    );
    scene.says("it", "\n");
    let first = scene.ground.first("it");
    let children = std::fs::read_to_string(format!("/proc/{first}/task/{first}/children"));
    let program: i32 = children.unwrap().trim().parse().unwrap();
    assert_eq!(limit_of(program), ("64".into(), "64".into()));
    let limit = |to: &str| scene.ground.say(&["limit", "it", "--files", to]);
    let now = || {
        scene
            .ground
            .exec_sh("it", "echo $(ulimit -Sn) $(ulimit -Hn)")
            .ok()
            .out
    };

    limit("32")
        .ok()
        .complains("every program in the box may have 32 open files");
    assert_eq!(limit_of(program), ("32".into(), "32".into()));
    assert_eq!(now(), "32 32\n");

    limit("128")
        .ok()
        .complains("what runs already keeps its lower limit");
    assert_eq!(limit_of(program), ("32".into(), "32".into()));
    assert_eq!(now(), "128 128\n");
    let seen = scene.ground.json(&["inspect", "it"]);
    assert_eq!(seen["seen"]["limited_to"]["files"], "128", "{seen}");

    limit("3")
        .failed_with(1)
        .complains("less than 16 is of no use");
    limit("999999999")
        .failed_with(1)
        .complains("cannot allow 999999999 open files");
    assert_eq!(now(), "128 128\n");

    // Each change is a line of the journal that says from what to what.
    scene.ground.say(&["limit", "it", "--memory", "300M"]).ok();
    let text = std::fs::read_to_string(scene.ground.journal("it")).unwrap();
    let changes: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|entry| entry["what"] == "change")
        .map(|entry| format!("{} {} {}", entry["of"], entry["from"], entry["to"]))
        .collect();
    let expected = [
        r#""files" "64" "32""#,
        r#""files" "32" "128""#,
        r#""memory" null "300 MiB""#,
    ];
    assert_eq!(changes, expected);
    scene.others_are_well();
}

#[test]
fn numbers_that_make_no_sense_are_refused_in_words() {
    let scene = Scene::new();
    let run = |files: &str| {
        let mut command = scene.ground.cowork();
        Ran::of(command.args(["run", "-q", "--files", files, "--", "true"]))
    };
    run("0")
        .failed_with(125)
        .complains("less than 16 is of no use");
    run("15")
        .failed_with(125)
        .complains("give at least 16: --files");
    run("many")
        .failed_with(125)
        .complains("`many` is not a whole number");
    run("-5").failed_with(125);
    run("1.5")
        .failed_with(125)
        .complains("`1.5` is not a whole number");
    run("18446744073709551615")
        .failed_with(125)
        .complains("this process may have");
    run("18446744073709551616")
        .failed_with(125)
        .complains("is not a whole number");
    run("16").ok();
    // More than the caller may have is more than anybody could get.
    let mut command = std::process::Command::new("prlimit");
    command
        .args(["--nofile=100:100", "--"])
        .arg(crate::support::binary());
    scene.ground.surround(&mut command);
    command.args(["run", "-q", "--files", "101", "--", "true"]);
    Ran::of(&mut command)
        .failed_with(125)
        .complains("cannot allow 101 open files")
        .complains("--files 100");
}
