//! Folders that come and go while a session runs: seen by everybody in the box when the command
//! returns, as they should be from the first instant, and nothing else of the host with them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod exchange;
mod in_the_way;
mod keeping;
mod names;
mod programs;
#[path = "../support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use support::{Ran, World, exists};

/// A box that stays, gone again with the test.
struct Stay {
    world: World,
    id: &'static str,
}

impl Stay {
    fn new(flags: &[&str]) -> Self {
        Self::in_world(World::new(), flags)
    }

    /// The same with a policy of its own.
    fn under(policy: &str, flags: &[&str]) -> Self {
        let world = World::new();
        let file = text(&world.write("policy.toml", policy));
        let flags = [&["--profile", &file], flags].concat();
        Self::in_world(world, &flags)
    }

    fn in_world(world: World, flags: &[&str]) -> Self {
        let stay = Self { world, id: "stay" };
        let mut command = stay.command(&["run", "-q", "-d", "--keep", "--name", stay.id]);
        Ran::of(command.args(flags).arg("--mount").arg(stay.world.work())).ok();
        stay
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.world.cowork();
        command.args(words);
        command
    }

    fn does(&self, words: &[&str]) -> Ran {
        Ran::of(&mut self.command(words))
    }

    fn mount(&self, spec: &str) -> Ran {
        self.does(&["mount", self.id, spec])
    }

    fn sh(&self, script: &str) -> Ran {
        self.does(&["exec", self.id, "--", "sh", "-c", script])
    }

    /// The same from the session's home.
    fn at_home(&self, script: &str) -> Ran {
        self.sh(&format!("cd /sessions/stay && {{\n{script}\n}}"))
    }

    /// What was written down about it.
    fn journal(&self) -> String {
        let file = self.world.path("state/cowork-linux/journals/stay.jsonl");
        std::fs::read_to_string(file).unwrap()
    }

    /// A folder of the host's with a file in it.
    fn folder(&self, name: &str) -> PathBuf {
        self.world.write(&format!("{name}/file"), "host");
        self.world.path(name)
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let _ = self.does(&["rm", "-f", "--outputs", self.id]);
    }
}

/// Asks again and again; for what nothing tells of by itself.
#[track_caller]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !is_so() {
        assert!(
            std::time::Instant::now() < deadline,
            "not so in time: {what}"
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn text(path: &std::path::Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_folder_is_seen_by_programs_that_run_already_and_what_they_write_is_the_hosts() {
    let stay = Stay::new(&[]);
    let folder = stay.folder("more");
    // It runs before, during and after; a file tells it when to look.
    let script = "while [ ! -e /sessions/stay/mnt/more/file ]; do sleep 0.05; done; \
                  cat /sessions/stay/mnt/more/file; echo made > /sessions/stay/mnt/more/made";
    let mut waiting = stay.command(&["exec", stay.id, "--", "timeout", "20", "sh", "-c", script]);
    let waiting = waiting.stdout(Stdio::piped()).spawn().unwrap();
    let ran = stay.mount(&text(&folder)).ok();
    ran.says("/sessions/stay/mnt/more");
    let out = waiting.wait_with_output().unwrap();
    assert!(out.status.success(), "{out:?}");
    assert_eq!(out.stdout, b"host");
    assert_eq!(
        std::fs::read_to_string(folder.join("made")).unwrap(),
        "made\n"
    );
    stay.does(&["inspect", stay.id])
        .ok()
        .says("\"/sessions/stay/mnt/more\"");
    stay.does(&["history", "--verify"]).ok().says("whole");
}

#[test]
fn guards_hold_in_a_folder_that_came_later_and_git_works() {
    let stay = Stay::new(&[]);
    let folder = stay.folder("more");
    stay.mount(&text(&folder)).ok();
    let ran = stay.sh("cd /sessions/stay/mnt/more && git init -q . && \
                       echo evil > .git/hooks/post-checkout; mkdir -p .vscode; \
                       echo evil > .vscode/tasks.json; git status --short");
    ran.ok().says("?? file");
    assert!(folder.join(".git/HEAD").exists(), "git wrote");
    assert!(!exists(&folder.join(".git/hooks/post-checkout")));
    assert!(!exists(&folder.join(".vscode/tasks.json")));
    // The same without a box shows that nothing but the guard was in the way.
    stay.world.control(&format!(
        "cd {} && mkdir -p .vscode .git/hooks && echo x > .git/hooks/post-checkout && \
         echo x > .vscode/tasks.json",
        text(&folder)
    ));
    assert!(folder.join(".vscode/tasks.json").exists());
}

/// Starts a program that says one line when it is at work, and ends with its input.
fn hammering(stay: &Stay, program: &[&str]) -> Child {
    let mut command = stay.command(&["exec", "-i", stay.id, "--"]);
    command.args(program);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = [0u8; 7];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    assert_eq!(&line, b"trying\n");
    child
}

/// A file that is written goes past the mount that is seen: pid 1 opens it elsewhere.
#[test]
fn a_folder_with_an_open_file_is_in_use() {
    let stay = Stay::new(&[]);
    let folder = stay.folder("busy");
    for (mode, redirection) in [("ro", "3<"), ("rw", "3<"), ("rw", "3>>")] {
        stay.mount(&format!("{}:{mode}", text(&folder))).ok();
        let file = "/sessions/stay/mnt/busy/file";
        let script =
            format!("exec {redirection}{file}; echo trying; read line; {{ echo $line >&3; }} 2>&-");
        let mut inside = hammering(&stay, &["sh", "-c", &script]);
        stay.does(&["unmount", stay.id, "busy"])
            .failed_with(1)
            .complains("a program uses `busy`; --force takes it away");
        stay.does(&["inspect", stay.id]).ok().says("mnt/busy");
        stay.sh(&format!("cat {file}")).ok().says("host");
        stay.does(&["unmount", "-f", stay.id, "busy"]).ok();
        stay.sh("test ! -e /sessions/stay/mnt/busy").ok();
        // Whoever has it open keeps it until it is done, as the kernel has it.
        let mut input = inside.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, b"late\n").unwrap();
        drop(input);
        inside.wait().unwrap();
        let is_late = std::fs::read_to_string(folder.join("file")).unwrap() == "hostlate\n";
        assert_eq!(is_late, redirection == "3>>", "{mode} {redirection}");
    }
    // Nobody uses it any more.
    stay.mount(&text(&folder)).ok();
    stay.sh("echo more >> /sessions/stay/mnt/busy/file").ok();
    stay.does(&["unmount", stay.id, "busy"]).ok();
}

#[test]
fn a_folder_in_use_stays_until_it_is_forced_and_is_gone_then() {
    let stay = Stay::new(&[]);
    let folder = stay.folder("busy");
    stay.mount(&text(&folder)).ok();
    let place = "/sessions/stay/mnt/busy";
    let mut command = stay.command(&["exec", "-i", "-w", place, stay.id, "--"]);
    command.args(["sh", "-c", "echo trying; read line"]);
    let mut inside = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0u8; 7];
    std::io::Read::read_exact(inside.stdout.as_mut().unwrap(), &mut line).unwrap();
    stay.does(&["unmount", stay.id, "busy"])
        .failed_with(1)
        .complains("--force takes it away");
    stay.does(&["unmount", "-f", stay.id, "busy"]).ok();
    stay.sh(&format!("test ! -e {place}")).ok();
    drop(inside.stdin.take());
    inside.wait().unwrap();
    // And it can come again.
    stay.mount(&text(&folder)).ok();
    stay.sh(&format!("cat {place}/file")).ok().says("host");
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let stay = Stay::new(&[]);
    let folder = stay.folder("more");
    let inner = stay.world.write("w/inner/file", "x");
    let refused = |spec: &str, why: &str| {
        stay.mount(spec).failed_with(1).complains(why);
    };
    refused(&text(inner.parent().unwrap()), "is shared already");
    refused(
        &format!("{}:outputs", text(&folder)),
        "cannot be the name of a mount",
    );
    refused(
        &format!("{}:/etc/x", text(&folder)),
        "belongs to the box itself",
    );
    refused("/no/such/folder", "No such file");
    refused("/etc", "part of the system");
    stay.mount(&text(&folder)).ok();
    refused(
        &format!("{}:more:ro", text(&stay.folder("other"))),
        "is there already",
    );
    stay.does(&["unmount", stay.id, "w"])
        .failed_with(1)
        .complains("nothing called `w`");
    stay.does(&["mount", "nobody", &text(&folder)])
        .failed_with(1)
        .complains("cannot find");
}

#[test]
fn a_session_in_the_foreground_without_a_name_does_not_change() {
    let world = World::new();
    let folder = world.write("more/file", "host");
    let mut command = world.cowork();
    command.args(["run", "--", "sh", "-c", "echo trying; read line"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut running = command.spawn().unwrap();
    let mut line = [0u8; 7];
    std::io::Read::read_exact(running.stdout.as_mut().unwrap(), &mut line).unwrap();
    let id = Ran::of(world.cowork().args(["ls", "-q"])).ok().out;
    let ran = Ran::of(
        world
            .cowork()
            .args(["mount", id.trim()])
            .arg(folder.parent().unwrap()),
    );
    ran.failed_with(1).complains("only sessions with a name");
    drop(running.stdin.take());
    running.wait().unwrap();
}
