//! One folder in the place of another: whoever looks sees the one or the other.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{compile, exists};
use crate::{Stay, hammering, text};

/// Reads a file in twenty threads until its input ends; then says how often it was the one, the
/// other, and neither.
const READERS: &str = r#"
    #include <fcntl.h>
    #include <pthread.h>
    #include <stdatomic.h>
    #include <stdio.h>
    #include <string.h>
    #include <unistd.h>
    static volatile int done;
    static atomic_long ones, twos, others;
    static const char *path;
    static void *look(void *arg) {
        (void)arg;
        while (!done) {
            char text[8] = "";
            int fd = open(path, O_RDONLY);
            if (fd < 0 || read(fd, text, 7) != 3) others++;
            else if (!strcmp(text, "one")) ones++;
            else if (!strcmp(text, "two")) twos++;
            else others++;
            if (fd >= 0) close(fd);
        }
        return NULL;
    }
    int main(int argc, char **argv) {
        pthread_t threads[20];
        char byte;
        if (argc < 2) return 2;
        path = argv[1];
        for (int i = 0; i < 20; i++) pthread_create(&threads[i], NULL, look, NULL);
        puts("trying"); fflush(stdout);
        (void)!read(0, &byte, 1);
        done = 1;
        for (int i = 0; i < 20; i++) pthread_join(threads[i], NULL);
        printf("%ld %ld %ld\n", ones, twos, others);
        return 0;
    }"#;

impl Stay {
    fn replace(&self, spec: &str) -> crate::support::Ran {
        self.does(&["mount", "--replace", self.id, spec])
    }

    /// Two folders with a file that says which one it is.
    fn two(&self) -> [String; 2] {
        ["one", "two"].map(|name| {
            self.world.write(&format!("{name}/file"), name);
            text(&self.world.path(name))
        })
    }
}

/// Whether the kernel can put a mount under another; otherwise the new one lies on the old one.
fn exchanges() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|word| word.parse::<u32>());
    let mut number = || numbers.next().unwrap().unwrap();
    (number(), number()) >= (6, 5)
}

fn counted(stay: &Stay, change: impl Fn(usize)) -> [u64; 3] {
    let program = "/sessions/stay/mnt/w/readers";
    let mut readers = hammering(stay, &[program, "/sessions/stay/mnt/it/file"]);
    (0..30).for_each(change);
    drop(readers.stdin.take());
    let out = readers.wait_with_output().unwrap();
    let said = String::from_utf8(out.stdout).unwrap();
    let counts: Vec<u64> = said
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    counts.try_into().unwrap()
}

#[test]
fn twenty_threads_see_the_one_or_the_other_and_never_anything_else() {
    let stay = Stay::new(&[]);
    let folders = stay.two();
    compile(&stay.world, "readers", READERS);
    let spec = |round: usize| {
        let mode = ["ro", "rw", "rw"][round % 3];
        format!("{}:it:{mode}", folders[round % 2])
    };
    stay.mount(&spec(0)).ok();
    let [ones, twos, others] = counted(&stay, |round| {
        stay.replace(&spec(round + 1)).ok();
    });
    assert_eq!(others, 0, "beside {ones} and {twos}");
    assert!(ones > 0 && twos > 0, "{ones} {twos}");
    // One after the other is something that they do see.
    let [_, _, others] = counted(&stay, |round| {
        stay.does(&["unmount", "-f", stay.id, "it"]).ok();
        stay.mount(&spec(round)).ok();
    });
    assert!(others > 0, "nobody looked");
    // Of all those that were there none is left.
    stay.does(&["unmount", stay.id, "it"]).ok();
    stay.at_home("test ! -e mnt/it").ok();
    let table = stay.at_home("cat /proc/self/mountinfo").ok().out;
    assert!(!table.contains("/mnt/it"), "{table}");
    assert!(!table.contains("/sessions/.old"), "{table}");
}

#[test]
fn whoever_has_the_old_one_open_keeps_it() {
    let stay = Stay::new(&[]);
    let [one, two] = stay.two();
    stay.mount(&format!("{one}:it")).ok();
    let script = "cd /sessions/stay/mnt/it; exec 3<file 4>>file; echo trying; read line; \
                  cat <&3; cat file; echo more >&4; cat /sessions/stay/mnt/it/file";
    let mut inside = hammering(&stay, &["sh", "-c", script]);
    stay.replace(&format!("{two}:it")).ok();
    inside.stdin.take().unwrap().write_all(b"\n").unwrap();
    let out = inside.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), "oneonetwo");
    let old = std::fs::read_to_string(format!("{one}/file")).unwrap();
    assert_eq!(old, "onemore\n");
}

#[test]
fn what_was_exchanged_and_is_in_use_is_out_of_reach_for_others() {
    let stay = Stay::new(&[]);
    let [one, two] = stay.two();
    stay.mount(&format!("{one}:it:ro")).ok();
    let inside = hammering(
        &stay,
        &[
            "sh",
            "-c",
            "cd /sessions/stay/mnt/it; echo trying; read line",
        ],
    );
    stay.replace(&format!("{two}:it:ro")).ok();
    let table = stay.at_home("cat /proc/self/mountinfo").ok().out;
    assert_eq!(table.contains("/sessions/.old/"), exchanges(), "{table}");
    let all = "ls /sessions/.old; cat /sessions/.old/*/file; chmod 700 /sessions/.old";
    let seen = stay.at_home(&format!("({all}); ls -d /sessions/.old"));
    seen.ok().says("/sessions/.old").says_not("one");
    inside.wait_with_output().unwrap();
    // Gone with the next change, once nobody uses it.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        stay.replace(&format!("{one}:it:ro")).ok();
        stay.replace(&format!("{two}:it:ro")).ok();
        let table = stay.at_home("cat /proc/self/mountinfo").ok().out;
        if !table.contains("/sessions/.old/") {
            break;
        }
        assert!(std::time::Instant::now() < until, "{table}");
    }
}

#[test]
fn a_working_directory_stays_when_only_the_mode_changes() {
    let stay = Stay::new(&[]);
    let [one, _] = stay.two();
    stay.mount(&format!("{one}:it:ro")).ok();
    let script =
        "cd /sessions/stay/mnt/it; echo trying; read line; cat file && pwd -P; echo x > new";
    let mut inside = hammering(&stay, &["sh", "-c", script]);
    stay.replace(&format!("{one}:it:rw")).ok();
    inside.stdin.take().unwrap().write_all(b"\n").unwrap();
    let out = inside.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(said, "one/sessions/stay/mnt/it\n");
    assert!(exists(std::path::Path::new(&one).join("new").as_path()));
}

#[test]
fn what_may_be_written_is_exchanged_too() {
    let stay = Stay::new(&[]);
    let [one, two] = stay.two();
    let write = |name: &str| stay.at_home(&format!("echo x > mnt/it/{name}")).code;
    let there =
        |folder: &str, name: &str| exists(std::path::Path::new(folder).join(name).as_path());
    stay.mount(&format!("{one}:it:ro")).ok();
    assert_ne!(write("a"), 0);
    stay.replace(&format!("{one}:it:rw")).ok();
    assert_eq!(write("a"), 0);
    stay.replace(&format!("{two}:it:rw")).ok();
    assert_eq!(write("b"), 0);
    assert!(there(&two, "b") && !there(&one, "b"));
    assert_ne!(write(".envrc"), 0, "guarded");
    stay.at_home("cd mnt/it && git init -q . && git status --short")
        .ok()
        .says("?? b");
    stay.replace(&format!("{two}:it:ro")).ok();
    assert_ne!(write("c"), 0);
    assert!(!there(&two, "c") && !there(&two, ".envrc"));
    let seen = stay.does(&["inspect", stay.id]).ok();
    assert_eq!(seen.out.matches("mnt/it\"").count(), 1, "{}", seen.out);
    let told = stay.journal();
    assert!(told.contains(&format!("\"replaces\":\"{one}\"")), "{told}");
    stay.does(&["history", "--verify"]).ok().says("whole");
}

#[test]
fn what_cannot_be_exchanged_is_left_as_it_is() {
    let stay = Stay::new(&[]);
    let [one, two] = stay.two();
    let file = text(&stay.world.write("single", "file"));
    stay.replace(&format!("{one}:w"))
        .failed_with(1)
        .complains("since the session started");
    // Where nothing is there is nothing in the way.
    stay.replace(&format!("{one}:it")).ok();
    stay.mount(&format!("{two}:it"))
        .failed_with(1)
        .complains("--replace exchanges it");
    stay.replace(&format!("{file}:it:ro"))
        .failed_with(1)
        .complains("cannot be exchanged");
    std::fs::create_dir(format!("{one}/in")).unwrap();
    stay.mount(&format!("{two}:it/in:ro")).ok();
    stay.replace(&format!("{two}:it:ro"))
        .failed_with(1)
        .complains("would be hidden");
    // Where only the mode changes nothing is.
    stay.replace(&format!("{one}:it:ro")).ok();
    stay.replace(&format!("{one}:it:rw")).ok();
    stay.at_home("cat mnt/it/file mnt/it/in/file")
        .ok()
        .says("onetwo");
}

#[test]
fn a_source_that_is_swapped_during_an_exchange_leads_nowhere() {
    let stay = Stay::new(&[]);
    let [one, two] = stay.two();
    stay.world.write("home/.ssh/id", "secret");
    stay.world.write("home/.ssh/file", "secret");
    let (hostile, spare) = (stay.world.path("home/.ssh"), stay.world.path("spare"));
    let done = AtomicBool::new(false);
    stay.mount(&format!("{one}:it")).ok();
    let (mut shown, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                std::fs::rename(&two, &spare).unwrap();
                symlink(&hostile, &two).unwrap();
                std::fs::remove_file(&two).unwrap();
                std::fs::rename(&spare, &two).unwrap();
            }
        });
        for _ in 0..300 {
            match stay.replace(&format!("{two}:it")).code {
                0 => shown += 1,
                _ => refused += 1,
            }
            let seen = stay.at_home("cat mnt/it/file").ok().out;
            assert!(seen == "one" || seen == "two", "{seen}");
            if shown >= 5 && refused >= 5 {
                break;
            }
            stay.replace(&format!("{one}:it")).ok();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(
        shown > 0 && refused > 0,
        "{shown} {refused}: nobody swapped"
    );
}
