//! The binary on a real terminal: the box has one of its own, keys and sizes get through, and
//! the caller's is as it was whatever happens.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "on_a_terminal/pty.rs"]
mod pty;
mod support;

use nix::sys::signal::Signal;
use pty::Terminal;
use support::World;

#[test]
fn the_program_has_a_terminal_of_its_own() {
    let world = World::new();
    let script = "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && tty && stat -c dev=%d= $(tty) && \
        echo list=$(ls /dev/pts) && : > /dev/tty && echo done";
    let mut terminal = Terminal::sh(&world, script);
    assert_eq!(terminal.exit_code(), 0, "{}", terminal.text());
    let text = terminal.text();
    assert!(text.contains("/dev/pts/0\r\n"), "{text}");
    assert!(text.contains("list=0 ptmx\r\n"), "{text}");
    let device = nix::sys::stat::fstat(&terminal.slave).unwrap().st_dev;
    let inside = text
        .split("dev=")
        .nth(1)
        .unwrap()
        .split('=')
        .next()
        .unwrap();
    assert_ne!(inside, device.to_string(), "{text}");
    terminal.is_as_before();
}

#[test]
fn the_size_is_the_callers_and_follows_it() {
    let world = World::new();
    let script = "trap 'stty size' WINCH; stty size; echo ready; while :; do sleep 0.05; done";
    let mut terminal = Terminal::sh(&world, script);
    terminal.expect("33 77");
    terminal.expect("ready");
    terminal.resize(44, 99);
    terminal.expect("44 99");
    terminal.resize(20, 10);
    terminal.expect("20 10");
    terminal.send(Signal::SIGTERM);
    assert_eq!(terminal.exit_code(), 143);
}

#[test]
fn ctrl_c_interrupts_the_job_in_the_foreground_only() {
    let world = World::new();
    let flags = ["--env", "PS1=inside> "];
    let mut terminal = Terminal::run(&world, &flags, &["bash", "--norc", "--noprofile", "-i"]);
    terminal.expect("inside> ");
    // It speaks when it is in the foreground already.
    terminal.write("sh -c 'echo sl\"\"eeping; exec sleep 1000'\n");
    terminal.expect("sleeping");
    terminal.write("\u{3}");
    terminal.expect("^C");
    terminal.expect("inside> ");
    terminal.write("echo st'il'l-there; exit 5\n");
    terminal.expect("still-there");
    assert_eq!(terminal.exit_code(), 5);
    terminal.is_as_before();
}

#[test]
fn ctrl_c_ends_a_program_that_lets_it() {
    let world = World::new();
    let mut terminal = Terminal::sh(&world, "echo ready; exec sleep 1000");
    terminal.expect("ready");
    assert!(terminal.is_raw());
    terminal.write("\u{3}");
    assert_eq!(terminal.exit_code(), 130);
    terminal.is_as_before();
}

#[test]
fn ctrl_z_stops_the_launcher_and_it_goes_on_later() {
    let world = World::new();
    // It says when it goes on: a ^Z before that would be undone by what makes it go on. And it
    // starts nothing: a shell that is stopped between vfork and exec waits for its child instead.
    let script = "trap 'echo back' CONT; trap 'exit 3' USR1; echo ready; \
        while ! read line; do :; done";
    let mut terminal = Terminal::sh(&world, script);
    terminal.expect("ready");
    for _ in 0..3 {
        terminal.write("\u{1a}");
        terminal.stopped();
        terminal.is_as_before();
        terminal.send(Signal::SIGCONT);
        terminal.expect("back");
        assert!(terminal.is_raw());
    }
    terminal.send(Signal::SIGUSR1);
    assert_eq!(terminal.exit_code(), 3);
    terminal.is_as_before();
}

#[test]
fn a_shell_can_put_it_aside_and_bring_it_back() {
    let world = World::new();
    let shell = ["bash", "--norc", "--noprofile", "-i"];
    let mut terminal = Terminal::start(&world, &shell);
    terminal.expect("prompt> ");
    terminal.write("$COWORK run -q -- sh -c 'echo rea\"\"dy; read line; echo got-$line'\n");
    terminal.expect("ready");
    terminal.write("\u{1a}");
    terminal.expect("Stopped");
    terminal.expect("prompt> ");
    terminal.write("echo sh'el'l\n");
    terminal.expect("shell");
    terminal.expect("prompt> ");
    terminal.write("fg\n");
    terminal.expect("$COWORK run");
    terminal.write("again\n");
    terminal.expect("got-again");
    terminal.expect("prompt> ");
    terminal.write("exit 9\n");
    assert_eq!(terminal.exit_code(), 9);
}

#[test]
fn ctrl_d_is_the_end_of_input() {
    let world = World::new();
    let mut terminal = Terminal::sh(&world, "echo ready; cat; echo over; exit 4");
    terminal.expect("ready");
    terminal.write("line\n\u{4}");
    terminal.expect("over");
    assert_eq!(terminal.exit_code(), 4);
    terminal.is_as_before();
}

#[test]
fn the_terminal_is_as_before_however_it_ends() {
    let world = World::new();
    let ready = ["sh", "-c", "echo ready; exec sleep 1000"];
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1] {
        let mut terminal = Terminal::run(&world, &[], &ready);
        terminal.expect("ready");
        assert!(terminal.is_raw());
        terminal.send(signal);
        assert_eq!(terminal.exit_code(), 128 + signal as i32);
        terminal.is_as_before();
    }
    for is_init in [true, false] {
        let mut terminal = Terminal::run(&world, &[], &ready);
        terminal.expect("ready");
        let init = child_of(terminal.pid().as_raw());
        let victim = if is_init { init } else { child_of(init) };
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(victim), Signal::SIGKILL).unwrap();
        assert_eq!(terminal.exit_code(), 137);
        terminal.is_as_before();
    }
    for (flags, program, code) in [
        (&["--workdir", "/no/such"][..], "true", 125),
        (&[], "no-such-program", 127),
        (&[], "/etc/passwd", 126),
        (&["--timeout", "300ms"], "cat", 124),
    ] {
        let mut terminal = Terminal::run(&world, flags, &[program]);
        assert_eq!(terminal.exit_code(), code, "{}", terminal.text());
        assert!(terminal.text().contains("error: "), "{}", terminal.text());
        assert!(
            terminal.text().contains("\r\n  help: "),
            "{:?}",
            terminal.text()
        );
        terminal.is_as_before();
    }
}

#[test]
fn the_terminal_is_as_before_when_the_launcher_is_killed() {
    let world = World::new();
    let mut terminal = Terminal::sh(&world, "echo ready; exec sleep 1000");
    terminal.expect("ready");
    assert!(terminal.is_raw());
    let keeper = children_of(terminal.pid().as_raw())[1];
    terminal.send(Signal::SIGKILL);
    terminal.exit_code();
    let mut waited = 0;
    while terminal.is_raw() && waited < 500 {
        std::thread::sleep(std::time::Duration::from_millis(10));
        waited += 1;
    }
    terminal.is_as_before();
    let left = std::fs::read_to_string(format!("/proc/{keeper}/stat")).unwrap_or_default();
    assert!(left.is_empty() || left.contains(") Z "), "{left}");
}

fn child_of(pid: i32) -> i32 {
    children_of(pid)[0]
}

/// In the order in which they were born.
fn children_of(pid: i32) -> Vec<i32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    list.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

#[test]
fn what_a_program_leaves_behind_is_undone() {
    let world = World::new();
    let mut terminal = Terminal::sh(&world, "stty raw -echo; exit 2");
    assert_eq!(terminal.exit_code(), 2);
    terminal.is_as_before();
}

#[test]
fn clipboard_and_title_are_not_the_programs_to_set() {
    let world = World::new();
    let script = r"printf 'a\033]52;c;c2VjcmV0\007b\033]0;evil\007c\033]2;evil\033\\d'; printf 'e\033]50;evil\007f\n'; echo done";
    let mut terminal = Terminal::sh(&world, script);
    terminal.expect("done");
    assert_eq!(terminal.exit_code(), 0);
    let text = terminal.text();
    for bad in ["c2VjcmV0", "]52", "evil", "]50"] {
        assert!(!text.contains(bad), "{text:?}");
    }
    assert!(text.contains("abcdef\r\n"), "{text:?}");
}

#[test]
fn nothing_can_be_typed_into_the_callers_shell() {
    let world = World::new();
    let source = r#"
        #include <errno.h>
        #include <fcntl.h>
        #include <stdio.h>
        #include <string.h>
        #include <sys/ioctl.h>
        int main(void) {
            int fds[] = {0, 1, 2, open("/dev/tty", O_RDWR)};
            for (int i = 0; i < 4; i++)
                for (const char *c = "touch /tmp/pwned\n"; *c; c++)
                    if (ioctl(fds[i], TIOCSTI, c) != 0) { printf("%s\n", strerror(errno)); break; }
            /* TIOCLINUX, selection into the input of the console */
            char paste = 3;
            printf("paste %d\n", ioctl(0, 0x541C, &paste));
            return 0;
        }"#;
    support::compile(&world, "push", source);
    let work = world.work();
    let mut terminal = Terminal::run(&world, &["--mount", work.to_str().unwrap()], &["./push"]);
    assert_eq!(terminal.exit_code(), 0, "{}", terminal.text());
    assert!(terminal.text().contains("paste -1"), "{}", terminal.text());
    assert_eq!(terminal.typed(), "");
    terminal.is_as_before();
}

#[test]
fn answers_that_were_not_read_are_not_typed_into_the_shell() {
    let world = World::new();
    let mut terminal = Terminal::sh(&world, "echo ready; sleep 0.2");
    terminal.expect("ready");
    terminal.write("rm -rf x\n");
    assert_eq!(terminal.exit_code(), 0);
    assert_eq!(terminal.typed(), "");
}

/// A script on the terminal, outside of any box.
fn outside(world: &World, script: &str) -> Terminal {
    Terminal::start(world, &["sh", "-c", script])
}

const KINDS: &str = "for n in 0 1 2; do [ -t $n ] && echo $n-tty >&2 || echo $n-no >&2; done";

#[test]
fn a_pipe_in_and_a_terminal_out() {
    let world = World::new();
    let run = format!("printf 'hello\\n' | $COWORK run -q -- sh -c '{KINDS}; cat'");
    let mut terminal = outside(&world, &run);
    for text in ["0-no", "1-tty", "2-tty", "hello\r\n"] {
        terminal.expect(text);
    }
    assert_eq!(terminal.exit_code(), 0);
    terminal.is_as_before();
}

#[test]
fn a_terminal_in_and_a_pipe_out() {
    let world = World::new();
    let inside = format!("{KINDS}; echo ready >&2; read line; echo got-$line");
    let run = format!("$COWORK run -q -- sh -c '{inside}' | cat");
    let mut terminal = outside(&world, &run);
    for text in ["0-tty", "1-no", "2-tty", "ready"] {
        terminal.expect(text);
    }
    terminal.write("typed\n");
    terminal.expect("got-typed\r\n");
    assert_eq!(terminal.exit_code(), 0);
    terminal.is_as_before();
}

#[test]
fn only_standard_error_is_a_terminal() {
    let world = World::new();
    let run = format!("$COWORK run -q -- sh -c '{KINDS}; echo lost' < /dev/null > /dev/null");
    let mut terminal = outside(&world, &run);
    for text in ["0-no", "1-no", "2-tty"] {
        terminal.expect(text);
    }
    assert_eq!(terminal.exit_code(), 0);
    assert!(!terminal.text().contains("lost"));
    terminal.is_as_before();
}

#[test]
fn only_standard_error_is_not_a_terminal() {
    let world = World::new();
    let inside = "[ -t 0 ] && [ -t 1 ] && [ ! -t 2 ] && echo right; echo problem >&2";
    let run = format!("$COWORK run -q -- sh -c '{inside}' 2> err");
    let mut terminal = outside(&world, &run);
    terminal.expect("right");
    assert_eq!(terminal.exit_code(), 0);
    let text = std::fs::read_to_string(world.path("err")).unwrap();
    assert_eq!(text, "problem\n");
    terminal.is_as_before();
}
