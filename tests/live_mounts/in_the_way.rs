//! Programs in the box, and others outside, that are in the way of a folder that comes and goes.

use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{compile, exists};
use crate::{Stay, hammering, text};

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
    let mut hammer = hammering(&stay, &["/sessions/stay/mnt/w/hammer"]);
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
    let mut hammer = hammering(&stay, &["/sessions/stay/mnt/w/hammer"]);
    stay.mount(&text(&folder)).ok();
    eventually("something is written", || exists(&folder.join("new")));
    drop(hammer.stdin.take());
    hammer.wait().unwrap();
}

/// What the hammer could change in each of its folders, by its own count.
fn counts(said: &[u8]) -> [u64; 2] {
    let said = String::from_utf8_lossy(said).into_owned();
    let words: Vec<_> = said.split_whitespace().collect();
    [1, 3].map(|at| words[at].parse().unwrap())
}

fn changed(folder: &std::path::Path) -> std::time::SystemTime {
    folder.metadata().unwrap().modified().unwrap()
}

#[track_caller]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !is_so() {
        assert!(std::time::Instant::now() < until, "not so in time: {what}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn a_hundred_threads_in_the_folder_of_mounts_are_in_nobodys_way() {
    const ROUNDS: usize = 3;
    let stay = Stay::new(&[]);
    let folder = stay.folder("more");
    compile(&stay.world, "hammer", include_str!("hammer.c"));
    let program = "/sessions/stay/mnt/w/hammer";
    let mut hammer = hammering(&stay, &[program, "/sessions/stay/mnt"]);
    for round in 0..ROUNDS * 2 {
        let is_read_only = round % 2 == 0;
        let mode = if is_read_only { "ro" } else { "rw" };
        let before = std::fs::read_dir(&folder).unwrap().count();
        let at = changed(&folder);
        stay.mount(&format!("{}:{mode}", text(&folder))).ok();
        let seen = stay.sh("cat /sessions/stay/mnt/more/file; ls /sessions/stay/mnt");
        seen.ok()
            .says("host")
            .says("more\noutputs\nw\n")
            .says_not("one");
        if is_read_only {
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), before);
        } else {
            eventually("they are at work in it", || changed(&folder) != at);
        }
        stay.does(&["unmount", "-f", stay.id, "more"]).ok();
        stay.sh("test ! -e /sessions/stay/mnt/more").ok();
    }
    drop(hammer.stdin.take());
    let out = hammer.wait_with_output().unwrap();
    let [parent, outputs] = counts(&out.stdout);
    assert_eq!(parent, 0, "the folder of mounts was changed");
    assert!(outputs > 0, "they were not at work");
    let left = stay.sh("ls -A /sessions/stay/mnt").ok().out;
    assert_eq!(left, "outputs\nw\n");
    assert_eq!(
        std::fs::read_to_string(folder.join("file")).unwrap(),
        "host"
    );
    // On the host the same program changes the same kind of folder.
    let parent = stay.world.path("free");
    std::fs::create_dir_all(parent.join("outputs")).unwrap();
    let mut free = Command::new(stay.world.work().join("hammer"));
    let free = free.arg(&parent).stdin(Stdio::null()).output().unwrap();
    assert!(counts(&free.stdout[7..])[0] > 0, "{free:?}");
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

/// A program in a box shares a folder with its user, and puts a link in the place of one in it.
#[test]
fn a_link_that_another_box_puts_in_the_way_leads_nowhere() {
    let (stay, other) = (Stay::new(&[]), Stay::new(&[]));
    stay.world.write("home/.ssh/id", "secret");
    other.world.write("w/swapped/file", "host");
    let (folder, keys) = (other.world.path("w/swapped"), stay.world.path("home/.ssh"));
    let script = "cd /sessions/stay/mnt/w; echo trying; while [ -e swapped ]; do \
                  mv swapped spare && ln -s \"$1\" swapped && rm swapped && mv spare swapped; done";
    let mut swapping = hammering(&other, &["sh", "-c", script, "sh", &text(&keys)]);
    let (mut shown, mut refused) = (0, 0);
    for _ in 0..300 {
        let ran = stay.mount(&format!("{}:it", text(&folder)));
        if ran.code == 0 {
            let seen = stay.sh("cat /sessions/stay/mnt/it/* 2>&1");
            assert!(!seen.out.contains("secret"), "{seen:?}");
            stay.does(&["unmount", "-f", stay.id, "it"]).ok();
            shown += 1;
        } else {
            refused += 1;
        }
        if shown >= 10 && refused >= 10 {
            break;
        }
    }
    swapping.kill().unwrap();
    swapping.wait().unwrap();
    assert!(
        refused > 0 && shown > 0,
        "{refused} {shown}: nobody swapped"
    );
}
