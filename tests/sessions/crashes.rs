//! Whatever is killed and whatever lies on the disk: the commands work, and tell.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;

use crate::ground::{Ground, timed};
use crate::support::{exists, is_root};
use crate::watch::{Watch, descendants, send};

#[test]
fn a_killed_supervisor_takes_its_box_along() {
    let ground = Ground::new();
    let script = "setsid sleep 1000 & trap '' HUP TERM; sleep 1000; true";
    let id = ground.start(&["--name", "s"], &["sh", "-c", script]);
    ground
        .exec_sh(&id, "setsid sleep 1000 </dev/null >/dev/null 2>&1 &")
        .ok();
    let supervisor = ground.supervisor(&id);
    let all = descendants(supervisor);
    assert!(all.len() >= 4, "{all:?}");
    let watch = Watch::over(&[&all[..], &[supervisor]].concat());
    send(supervisor, Signal::SIGKILL);
    watch.all_gone();
    assert_eq!(ground.state(&id), "crashed");
    ground.say(&["ls", "-a"]).ok().says("crashed");
    ground
        .exec(&id, &["true"])
        .failed_with(125)
        .complains("supervisor was killed")
        .complains("gc");
    ground.say(&["gc"]).ok().says("s");
    assert!(!exists(&ground.socket(&id)));
    ground.say(&["history"]).ok().says("nobody saw its end");
    assert_eq!(ground.sleeper("s"), "s");
    assert_eq!(ground.state("s"), "running");
}

#[test]
fn a_name_can_be_used_again_without_clearing_up() {
    let ground = Ground::new();
    ground.sleeper("s");
    let supervisor = ground.supervisor("s");
    let watch = Watch::over(&[supervisor]);
    send(supervisor, Signal::SIGKILL);
    watch.all_gone();
    ground.sleeper("s");
    ground.exec("s", &["true"]).ok();
    ground.say(&["rm", "-f", "s"]).ok();
}

#[test]
fn what_a_killed_supervisor_left_can_be_removed() {
    let ground = Ground::new();
    let id = ground.start(
        &["--name", "s"],
        &["sh", "-c", "echo said; exec sleep 1000"],
    );
    crate::ground::eventually("it has spoken", || {
        ground.say(&["logs", &id]).out == "said\n"
    });
    let supervisor = ground.supervisor("s");
    let watch = Watch::over(&[supervisor]);
    send(supervisor, Signal::SIGKILL);
    watch.all_gone();
    assert_eq!(ground.say(&["logs", &id]).ok().out, "said\n");
    ground.say(&["rm", "s"]).ok();
    assert!(!exists(&ground.folder("s")) && !exists(&ground.socket("s")));
}

#[test]
fn a_killed_first_process_ends_the_session_and_that_is_recorded() {
    let ground = Ground::new();
    ground.sleeper("s");
    let supervisor = ground.supervisor("s");
    let watch = Watch::over(&[&descendants(supervisor)[..], &[supervisor]].concat());
    send(ground.first("s"), Signal::SIGKILL);
    watch.all_gone();
    assert_eq!(ground.state("s"), "ended");
    ground.say(&["ls", "-a"]).ok().says("ended 137");
    assert!(!exists(&ground.socket("s")));
}

#[test]
fn a_stopped_supervisor_does_not_hold_the_commands_up() {
    let ground = Ground::new();
    ground.sleeper("stuck");
    ground.sleeper("well");
    let supervisor = ground.supervisor("stuck");
    send(supervisor, Signal::SIGSTOP);
    // As many as wait at its door already.
    let waiting = crate::hostile::crowd(&ground, "stuck", 100);
    let (list, taken) = timed(|| ground.say(&["ls"]));
    let told = timed(|| ground.say(&["gc"]));
    send(supervisor, Signal::SIGCONT);
    list.ok().says("well").says("stuck");
    drop(waiting);
    assert!(taken < Duration::from_secs(5), "{taken:?}");
    assert!(told.1 < Duration::from_secs(5), "{:?}", told.1);
    told.0.ok();
    assert!(
        exists(&ground.socket("stuck")),
        "gc took a living session's socket"
    );
}

/// Puts something where a record should be.
type Damage = Box<dyn Fn(&Path)>;

fn damages(ground: &Ground) -> Vec<(&'static str, Damage)> {
    let elsewhere = ground.world.write("elsewhere.json", "{}");
    let put = |bytes: Vec<u8>| -> Damage {
        Box::new(move |path: &Path| {
            let _ = std::fs::remove_file(path);
            std::fs::write(path, &bytes).unwrap();
        })
    };
    vec![
        ("empty", put(Vec::new())),
        ("garbage", put((0..=255).collect())),
        ("no object", put(b"[1,2,3]".to_vec())),
        ("ten megabytes", put(vec![b'{'; 10 << 20])),
        ("deep", put(vec![b'['; 200_000])),
        (
            "a link",
            Box::new(move |path: &Path| {
                let _ = std::fs::remove_file(path);
                symlink(&elsewhere, path).unwrap();
            }),
        ),
        (
            "a pipe",
            Box::new(|path: &Path| {
                let _ = std::fs::remove_file(path);
                nix::unistd::mkfifo(path, Mode::S_IRWXU).unwrap();
            }),
        ),
        (
            "a folder",
            Box::new(|path: &Path| {
                let _ = std::fs::remove_file(path);
                std::fs::create_dir(path).unwrap();
            }),
        ),
        (
            "half of it",
            Box::new(|path: &Path| {
                let bytes = std::fs::read(path).unwrap();
                std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
            }),
        ),
    ]
}

#[track_caller]
fn all_commands_work(ground: &Ground, what: &str) {
    for words in [
        &["ls"][..],
        &["ls", "-a"],
        &["ls", "-a", "--json"],
        &["gc"],
        &["status"],
        &["history"],
        &["history", "--verify"],
        &["stats"],
    ] {
        let (ran, taken) = timed(|| ground.say(words));
        assert!(
            taken < Duration::from_secs(5),
            "{what}: {words:?} took {taken:?}"
        );
        let is_verify = words.contains(&"--verify");
        assert!(ran.code == 0 || is_verify, "{what}: {words:?}: {ran:?}");
    }
}

#[test]
fn damaged_records_are_told_and_stop_nothing() {
    let ground = Ground::new();
    let mut ids = Vec::new();
    for (number, (what, damage)) in damages(&ground).into_iter().enumerate() {
        let id = format!("d{number}");
        ground.start(&["--name", &id], &["true"]);
        ground.becomes(&id, "ended");
        damage(&ground.record(&id));
        ids.push((id, what));
    }
    if is_root() {
        ground.start(&["--name", "foreign"], &["true"]);
        ground.becomes("foreign", "ended");
        std::os::unix::fs::chown(ground.record("foreign"), Some(65534), None).unwrap();
        ids.push(("foreign".to_owned(), "somebody else's"));
    }
    all_commands_work(&ground, "damaged records");
    let told = ground.say(&["gc"]).ok();
    for (id, what) in &ids {
        assert_eq!(ground.state(id), "damaged", "{what}");
        assert!(
            told.err.contains(&format!("record of {id}")),
            "{what}: {}",
            told.err
        );
        ground.say(&["inspect", id]).ok();
        ground.say(&["rm", id]).ok();
        assert!(!exists(&ground.folder(id)), "{what}");
    }
}

#[test]
fn odd_things_where_sockets_should_be_stop_nothing() {
    let ground = Ground::new();
    ground.sleeper("alive");
    let at = |name: &str| ground.runtime().join(name);
    std::fs::write(at("file.sock"), "no socket").unwrap();
    std::fs::write(at("empty.sock"), "").unwrap();
    symlink("/etc/passwd", at("link.sock")).unwrap();
    symlink("nowhere", at("dangling.sock")).unwrap();
    std::fs::create_dir(at("folder.sock")).unwrap();
    nix::unistd::mkfifo(&at("pipe.sock"), Mode::S_IRWXU).unwrap();
    std::fs::write(at("not-a-socket"), "").unwrap();
    drop(std::os::unix::net::UnixListener::bind(at("stream.sock")).unwrap());
    let _listening = std::os::unix::net::UnixListener::bind(at("wrong.sock")).unwrap();
    all_commands_work(&ground, "sockets");
    assert_eq!(ground.state("alive"), "running");
    ground.exec("alive", &["true"]).ok();
    ground.say(&["exec", "file", "--", "true"]).failed_with(125);
    ground
        .say(&["exec", "wrong", "--", "true"])
        .failed_with(125);
    for name in ["file", "link", "folder", "pipe"] {
        ground.say(&["rm", name]);
    }
    assert!(Path::new("/etc/passwd").exists());
}

/// Somebody listens there and never answers.
#[test]
fn a_socket_that_never_answers_costs_seconds_and_not_for_ever() {
    let ground = Ground::new();
    ground.sleeper("alive");
    let sockets = (0..5).map(|number| ground.socket(&format!("silent{number}")));
    let silent: Vec<_> = sockets
        .map(|path| crate::hostile::listener(&path))
        .collect();
    let (ran, taken) = timed(|| ground.say(&["ls"]));
    ran.ok().says("alive");
    assert!(taken < Duration::from_secs(5), "{taken:?}");
    drop(silent);
}

/// The number of a process is given to another one sooner or later.
#[test]
fn another_process_is_not_taken_for_the_supervisor() {
    let ground = Ground::new();
    ground.sleeper("s");
    let supervisor = ground.supervisor("s");
    let watch = Watch::over(&[supervisor]);
    send(supervisor, Signal::SIGKILL);
    watch.all_gone();
    let text = std::fs::read_to_string(ground.record("s")).unwrap();
    let mine = std::process::id().to_string();
    let text = text.replace(&format!("\"pid\":{supervisor}"), &format!("\"pid\":{mine}"));
    assert!(text.contains(&mine));
    std::fs::write(ground.record("s"), text).unwrap();
    assert_eq!(ground.state("s"), "crashed");
    ground.say(&["gc"]).ok();
    ground.say(&["rm", "-f", "s"]).ok();
    assert_eq!(ground.state("s"), "none");
}

/// Killed between two steps, at any moment: what is left can be listed, cleared and used again.
#[test]
fn killed_while_starting_it_leaves_nothing_that_is_in_the_way() {
    let ground = Ground::new();
    for wait in [0, 2, 5, 12] {
        let mut command = ground.bare();
        command
            .args(["run", "-d", "-q", "--name", "s", "--mount"])
            .arg(ground.world.work());
        let mut child = command.args(["--", "sleep", "1000"]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        // From then on there is nobody who starts a supervisor.
        child.kill().unwrap();
        child.wait().unwrap();
        for pid in ground.processes() {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL);
        }
        crate::ground::eventually("all are gone", || ground.processes().is_empty());
        all_commands_work(&ground, "killed while starting");
        ground.sleeper("s");
        ground.say(&["rm", "-f", "s"]).ok();
    }
}
