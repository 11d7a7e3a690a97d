//! `exec -t` and `attach`, on a terminal.

use crate::ground::{Ground, eventually};
use crate::pty::Terminal;
use crate::support::binary;

fn on_a_terminal(ground: &Ground, words: &[&str]) -> Terminal {
    let runtime = format!("XDG_RUNTIME_DIR={}", ground.world.path("run").display());
    let binary = binary();
    let mut line = vec!["env", &runtime, binary.to_str().unwrap()];
    line.extend(words);
    Terminal::start(&ground.world, &line)
}

#[test]
fn a_shell_on_a_terminal_of_its_own() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    let mut terminal = on_a_terminal(&ground, &["exec", "-i", "-t", &id, "--", "sh"]);
    terminal.expect("$");
    terminal.write("stty size; tty; echo term=$TERM\n");
    terminal.expect("33 77");
    terminal.expect("/dev/pts/");
    terminal.expect("term=xterm");
    terminal.resize(20, 50);
    terminal.write("sleep 0.1; stty size\n");
    terminal.expect("20 50");
    terminal.write("sleep 1000\n");
    terminal.expect("sleep 1000");
    // The shell has to have started it, or ^C would meet the shell alone.
    eventually("it sleeps", || {
        ground
            .exec_sh(&id, "grep -lz '^1000$' /proc/[0-9]*/cmdline | wc -l")
            .out
            .trim()
            == "2"
    });
    terminal.write("\x03");
    terminal.write("echo got=$?\n");
    terminal.expect("got=130");
    terminal.write("exit 6\n");
    assert_eq!(terminal.exit_code(), 6);
    terminal.is_as_before();
    assert_eq!(ground.state(&id), "running");
}

#[test]
fn many_terminals_at_once_do_not_meet() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    let mut terminals: Vec<_> = (0..5)
        .map(|_| on_a_terminal(&ground, &["exec", "-it", &id, "--", "sh"]))
        .collect();
    for (number, terminal) in terminals.iter_mut().enumerate() {
        terminal.expect("$");
        terminal.write(&format!("echo mine=$(({number}+1000)); exit {number}\n"));
    }
    for (number, terminal) in terminals.iter_mut().enumerate() {
        terminal.expect(&format!("mine={}", number + 1000));
        assert_eq!(terminal.exit_code(), number as i32);
        terminal.is_as_before();
    }
}

#[test]
fn a_terminal_that_hangs_up_takes_its_program_along() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    let mut terminal = on_a_terminal(&ground, &["exec", "-it", &id, "--", "sh"]);
    terminal.expect("$");
    drop(terminal);
    eventually("it is gone", || {
        ground.json(&["inspect", &id])["seen"]["execs"] == serde_json::json!([])
    });
    ground.exec(&id, &["true"]).ok();
}

#[test]
fn without_a_terminal_there_is_none_to_give() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    ground
        .say(&["exec", "-t", &id, "--", "true"])
        .failed_with(125)
        .complains("leave out -t");
}

#[test]
fn what_is_typed_reaches_a_program_in_the_background_and_leaving_leaves_it() {
    let ground = Ground::new();
    let id = ground.start(
        &["--tty"],
        &["sh", "-c", "while read x; do echo got-$x; stty size; done"],
    );
    let mut terminal = on_a_terminal(&ground, &["attach", &id]);
    eventually("it sits there", || terminal.is_raw());
    terminal.write("one\n");
    terminal.expect("got-one");
    terminal.expect("33 77");
    terminal.resize(20, 50);
    terminal.write("two\n");
    terminal.expect("got-two");
    terminal.write("\x10\x11");
    assert_eq!(terminal.exit_code(), 0);
    terminal.is_as_before();
    assert_eq!(ground.state(&id), "running");
    // Whoever comes next sees what was said, and goes on.
    let mut terminal = on_a_terminal(&ground, &["attach", &id]);
    terminal.expect("got-two");
    terminal.write("three\n");
    terminal.expect("got-three");
    terminal.write("\x04");
    assert_eq!(terminal.exit_code(), 0);
    terminal.is_as_before();
    ground.becomes(&id, "ended");
}

#[test]
fn two_in_front_of_one_program_see_the_same() {
    let ground = Ground::new();
    let id = ground.start(
        &["--tty"],
        &["sh", "-c", "while read x; do echo got-$x; done"],
    );
    let mut one = on_a_terminal(&ground, &["attach", &id]);
    let mut two = on_a_terminal(&ground, &["attach", &id]);
    one.write("a\n");
    one.expect("got-a");
    two.expect("got-a");
    two.write("b\n");
    one.expect("got-b");
    two.expect("got-b");
    ground.say(&["stop", "-t", "1", &id]).ok();
    assert_eq!(one.exit_code(), 128 + 15);
    assert_eq!(two.exit_code(), 128 + 15);
    one.is_as_before();
}

#[test]
fn interrupt_typed_at_an_attached_program_interrupts_it() {
    let ground = Ground::new();
    let script = "trap 'echo stopped; exit 3' INT; echo up; while :; do sleep 0.05; done";
    let id = ground.start(&["--tty"], &["sh", "-c", script]);
    let mut terminal = on_a_terminal(&ground, &["attach", &id]);
    terminal.expect("up");
    eventually("keys arrive one by one", || terminal.is_raw());
    terminal.write("\x03");
    terminal.expect("stopped");
    assert_eq!(terminal.exit_code(), 3);
    terminal.is_as_before();
}

/// A program can say what it likes; the terminal of whoever looks on obeys only what is harmless.
#[test]
fn what_a_program_says_cannot_give_orders_to_the_terminal() {
    let ground = Ground::new();
    let script = "printf 'a\\033]52;c;ZXZpbA==\\007b\\033[21tc\\n'; sleep 1000";
    let id = ground.start(&["--tty"], &["sh", "-c", script]);
    let mut terminal = on_a_terminal(&ground, &["attach", &id]);
    terminal.expect("c");
    terminal.write("\x10\x11");
    terminal.exit_code();
    assert!(!terminal.text().contains("]52;"), "{:?}", terminal.text());
    assert!(!terminal.text().contains("[21t"), "{:?}", terminal.text());
}
