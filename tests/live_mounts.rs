//! Folders that come and go while a session runs: seen by everybody in the box when the command
//! returns, as they should be from the first instant, and nothing else of the host with them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use support::{Ran, World, compile, exists};

/// A box that stays, gone again with the test.
struct Stay {
    world: World,
    id: &'static str,
}

impl Stay {
    fn new(flags: &[&str]) -> Self {
        let world = World::new();
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

#[test]
fn a_read_only_folder_is_so_from_the_first_instant() {
    let stay = Stay::new(&[]);
    let folder = stay.folder("ro");
    // Twenty threads try to write where it will be, without a pause, until they are told to end.
    let source = r#"
        #include <fcntl.h>
        #include <pthread.h>
        #include <stdio.h>
        #include <unistd.h>
        static volatile int done;
        static void *try(void *arg) {
            (void)arg;
            while (!done) {
                int fd = open("/sessions/stay/mnt/ro/file", O_WRONLY);
                if (fd >= 0) { puts("written"); (void)!write(fd, "evil", 4); close(fd); }
                fd = open("/sessions/stay/mnt/ro/new", O_WRONLY | O_CREAT, 0644);
                if (fd >= 0) { puts("made"); close(fd); }
            }
            return NULL;
        }
        int main(void) {
            pthread_t threads[20];
            char byte;
            for (int i = 0; i < 20; i++) pthread_create(&threads[i], NULL, try, NULL);
            puts("trying"); fflush(stdout);
            (void)!read(0, &byte, 1);
            done = 1;
            for (int i = 0; i < 20; i++) pthread_join(threads[i], NULL);
            return 0;
        }"#;
    compile(&stay.world, "hammer", source);
    let mut hammer = hammering(&stay, "/sessions/stay/mnt/w/hammer");
    for _ in 0..10 {
        stay.mount(&format!("{}:ro", text(&folder))).ok();
        stay.does(&["unmount", "-f", stay.id, "ro"]).ok();
    }
    drop(hammer.stdin.take());
    let out = hammer.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), "", "after it began");
    assert_eq!(
        std::fs::read_to_string(folder.join("file")).unwrap(),
        "host"
    );
    assert!(!exists(&folder.join("new")));
    // Without `ro` the same program writes: the trying was real.
    let mut hammer = hammering(&stay, "/sessions/stay/mnt/w/hammer");
    stay.mount(&text(&folder)).ok();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !exists(&folder.join("new")) {
        assert!(std::time::Instant::now() < until, "nothing was written");
        std::thread::yield_now();
    }
    drop(hammer.stdin.take());
    hammer.wait().unwrap();
}

/// Starts a program that says one line when it is at work, and ends with its input.
fn hammering(stay: &Stay, program: &str) -> Child {
    let mut command = stay.command(&["exec", "-i", stay.id, "--", program]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = [0u8; 7];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    assert_eq!(&line, b"trying\n");
    child
}

#[test]
fn a_source_that_is_swapped_for_a_link_leads_nowhere() {
    let stay = Stay::new(&[]);
    let folder = stay.folder("swapped");
    stay.world.write("home/.ssh/id", "secret");
    let (hostile, spare) = (stay.world.path("home/.ssh"), stay.world.path("spare"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                std::fs::rename(&folder, &spare).unwrap();
                symlink(&hostile, &folder).unwrap();
                std::fs::remove_file(&folder).unwrap();
                std::fs::rename(&spare, &folder).unwrap();
            }
        });
        for _ in 0..40 {
            let ran = stay.mount(&format!("{}:it", text(&folder)));
            if ran.code == 0 {
                let seen = stay.sh("cat /sessions/stay/mnt/it/* 2>&1");
                assert!(!seen.out.contains("secret"), "{seen:?}");
                stay.does(&["unmount", "-f", stay.id, "it"]).ok();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    // Asked for by its own name the folder of keys is refused as it is at the start.
    stay.mount(&text(&stay.world.path("home"))).failed_with(1);
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
    refused(&format!("{}:/etc/x", text(&folder)), "below mnt only");
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
