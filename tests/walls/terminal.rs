//! The caller's terminal: the box has one of its own.

use std::process::{Command, Stdio};

use crate::outside::{Answers, probe, run};
use crate::support::{Ran, World, exists, is_root};

/// Runs a command on a terminal of its own, as a shell would, and tells what became of both.
const DRIVER: &str = r#"
import base64, fcntl, json, os, select, signal, struct, sys, termios
master, slave = os.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 80, 0, 0))
before = termios.tcgetattr(slave)
pid = os.fork()
if pid == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for number in (0, 1, 2): os.dup2(slave, number)
    os.closerange(3, 64)
    os.execvp(sys.argv[2], sys.argv[2:])
typed = base64.b64decode(sys.argv[1])
out, status, session = b'', None, True
while True:
    if select.select([master], [], [], 0.02)[0]:
        out += os.read(master, 65536)
        if b'READY' in out and typed:
            os.write(master, typed); typed = b''
        if b'READY' in out and os.tcgetpgrp(master) == 0: session = False
        continue
    if status is not None: break
    done, code = os.waitpid(pid, os.WNOHANG)
    if done: status = os.waitstatus_to_exitcode(code)
after = termios.tcgetattr(slave)
# What a shell would now read as if it had been typed.
raw = termios.tcgetattr(slave); raw[3] &= ~(termios.ICANON | termios.ECHO); raw[6][termios.VMIN] = 0; raw[6][termios.VTIME] = 0
termios.tcsetattr(slave, termios.TCSANOW, raw)
left = os.read(slave, 4096)
print(json.dumps({'code': status, 'out': out.decode('latin1'), 'same': before == after,
    'left': left.decode('latin1'), 'tty': os.ttyname(slave), 'device': os.fstat(slave).st_dev}))
"#;

#[derive(Debug)]
struct Seen {
    code: i64,
    out: String,
    same: bool,
    left: String,
}

fn on_a_terminal(command: &Command, typed: &str) -> Seen {
    let mut python = Command::new("/usr/bin/python3");
    python
        .args(["-c", DRIVER, &base64(typed.as_bytes())])
        .arg(command.get_program())
        .args(command.get_args());
    python.env_clear().env("TERM", "xterm").stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        python.env(name, value.unwrap_or_default());
    }
    if let Some(dir) = command.get_current_dir() {
        python.current_dir(dir);
    }
    let ran = Ran::of(&mut python).ok();
    let told: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let text = |name: &str| told[name].as_str().unwrap().to_owned();
    Seen {
        code: told["code"].as_i64().unwrap(),
        out: text("out"),
        same: told["same"].as_bool().unwrap(),
        left: text("left"),
    }
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk
            .iter()
            .chain([&0, &0])
            .take(3)
            .fold(0u32, |all, byte| all << 8 | u32::from(*byte));
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place > chunk.len() {
                '='
            } else {
                char::from(letter)
            });
        }
    }
    text
}

fn shell(world: &World, script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", script])
        .env("PATH", "/usr/bin:/bin")
        .current_dir(world.work());
    command
}

const TYPE: &str = r#"
#include <termios.h>
int main(void) {
    try("tiocsti", ioctl(0, TIOCSTI, "x"));
    try("tiocsti-64", syscall(SYS_ioctl, 0, 0x100005412UL, "x"));
    int fd = open("/dev/tty", O_RDWR);
    try("tty-tiocsti", syscall(SYS_ioctl, fd, 0xdead00005412UL, "x"));
    char six[2] = { 6, 0 };
    try("tioclinux", syscall(SYS_ioctl, 0, 0x10000541cUL, six));
    try("tiocsetd", syscall(SYS_ioctl, 0, 0x100005423UL, &(int){ 15 }));
    int pid = fork();
    if (pid == 0) {
        setsid();
        try("steal", ioctl(0, TIOCSCTTY, 1));
        return 0;
    }
    waitpid(pid, NULL, 0);
    struct stat on;
    fstat(0, &on);
    printf("device=%lu\nname=%s\n", (unsigned long)on.st_dev, ttyname(0));
    return 0;
}"#;

/// TT-01, TT-02
#[test]
fn nothing_is_typed_into_the_callers_terminal_and_it_cannot_be_stolen() {
    let world = World::new();
    let program = probe(&world, "type", TYPE);
    let answers = |seen: &Seen| {
        // What was typed is echoed before the line that tells of it.
        let lines = seen
            .out
            .lines()
            .map(|line| line.trim_start_matches('x').trim_end());
        Answers::of(&Ran {
            code: 0,
            out: lines.collect::<Vec<_>>().join("\n"),
            err: String::new(),
        })
    };

    // Newer kernels keep this from ordinary users by themselves; root shows what it does.
    let control = on_a_terminal(&Command::new(&program), "");
    let allowed = std::fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti")
        .is_ok_and(|text| text.trim() == "1");
    if is_root() || allowed {
        answers(&control).worked("tiocsti");
        assert!(control.left.contains('x'), "{control:?}");
    }
    if is_root() {
        answers(&control).worked("steal");
    }
    let theirs = answers(&control).get("device").to_owned();

    let inside = on_a_terminal(&run(&world, &[], &["./type"]), "");
    assert_eq!(inside.code, 0, "{inside:?}");
    assert_eq!(inside.left, "");
    let inside = answers(&inside);
    for name in [
        "tiocsti",
        "tiocsti-64",
        "tty-tiocsti",
        "tioclinux",
        "tiocsetd",
        "steal",
    ] {
        inside.refused(name, &["EPERM"]);
    }
    // It is another terminal on another set of terminals.
    assert_ne!(inside.get("device"), theirs);
    assert_eq!(inside.get("name"), "/dev/pts/0");
}

/// TT-03
#[test]
fn no_other_terminal_can_be_written_to() {
    let world = World::new();
    let write = "for t in /dev/pts/* /dev/tty[0-9]* /dev/console /dev/vcs*; do [ -w $t ] && [ $t != $(tty) ] && \
        [ $t != /dev/pts/ptmx ] && echo reached $t; done; echo over";
    // Outside, the terminals of whoever is logged in stay untouched: the control only looks.
    let look = "[ -c $(tty) ] && echo $(tty) | sed s:^:reached:";
    let control = on_a_terminal(&shell(&world, look), "");
    assert!(control.out.contains("reached/dev/pts/"), "{control:?}");
    let inside = on_a_terminal(&run(&world, &[], &["sh", "-c", write]), "");
    assert!(
        inside.out.contains("over") && !inside.out.contains("reached"),
        "{inside:?}"
    );
}

/// TT-05
#[test]
fn the_callers_terminal_is_as_it_was_however_the_program_ended() {
    let world = World::new();
    let spoil = "stty raw -echo erase Q intr Z; printf '\\033[?1049h\\033[?25l\\033[?1000h'";
    let control = on_a_terminal(&shell(&world, spoil), "");
    assert!(!control.same, "{control:?}");
    let ways = [
        ("", 0),
        ("exit 3", 3),
        ("kill -KILL $$", 137),
        ("kill -SEGV $$", 139),
        ("setsid sh -c 'sleep 1000' & exit 4", 4),
    ];
    for (end, code) in ways {
        let seen = on_a_terminal(
            &run(&world, &[], &["sh", "-c", &format!("{spoil}; {end}")]),
            "",
        );
        assert!(seen.same, "after `{end}`: {seen:?}");
        assert_eq!((seen.code, seen.left.as_str()), (code, ""), "after `{end}`");
        // The screen is the shell's again, with a cursor, and the mouse is its own.
        for undone in ["\x1b[?1049l", "\x1b[?25h", "\x1b[?1000l"] {
            assert!(
                seen.out.contains(undone),
                "after `{end}` no {undone:?} in {:?}",
                seen.out
            );
        }
    }
    // Ended by the person, in the middle, with the key that the program made the one for that.
    let script = "stty -echo intr Z; echo READY; exec sleep 1000";
    let seen = on_a_terminal(
        &run(&world, &["--timeout", "20s"], &["sh", "-c", script]),
        "Z",
    );
    assert!(seen.same && seen.code == 130, "{seen:?}");
}

/// TE-01, TE-05
#[test]
fn sequences_that_act_on_the_callers_terminal_do_not_pass() {
    let world = World::new();
    let bad = [
        ("52;c;cHduZWQ=", "\\033]52;c;cHduZWQ=\\007"),
        ("]0;pwned", "\\033]0;pwned\\007"),
        ("]2;pwned", "\\033]2;pwned\\033\\\\"),
        ("[21t", "\\033[21t"),
        ("\x05", "\\005"),
        (
            "file:///etc",
            "\\033]8;;file:///etc/passwd\\007x\\033]8;;\\007",
        ),
        ("9;pwned", "\\033]9;pwned\\007"),
        ("1337;", "\\033]1337;File=name=eA==:eA==\\007"),
        ("777;", "\\033]777;notify;a;b\\007"),
        ("\u{9d}52", "\\302\\23552;c;eA==\\007"),
        ("_Ga=T", "\\033_Ga=T;eA==\\033\\\\"),
    ];
    let all: String = bad.iter().map(|(_, sequence)| *sequence).collect();
    let script = format!("printf '{all}fine\\n'");
    let control = on_a_terminal(&shell(&world, &script), "");
    let inside = on_a_terminal(&run(&world, &[], &["sh", "-c", &script]), "");
    assert!(inside.out.contains("fine"), "{inside:?}");
    for (mark, _) in bad {
        let mark: String = mark.bytes().map(char::from).collect();
        assert!(
            control.out.contains(&mark),
            "{mark:?} in the control {control:?}"
        );
        assert!(!inside.out.contains(&mark), "{mark:?} in {inside:?}");
    }
    // Answers that come after the end are not left for the shell.
    assert_eq!(inside.left, "");
}

/// TE-02, TE-03, TE-04
#[test]
fn names_are_shown_so_that_they_cannot_act() {
    let world = World::new();
    let name = "a\x1b[2J\u{202e}b\u{200b}\r\nc\"d";
    let folder = world.path(name);
    std::fs::create_dir(&folder).unwrap();
    let harmless = |text: &str, what: &str| {
        let bad = |c: char| matches!(c, '\x1b' | '\r' | '\u{202e}' | '\u{200b}' | '\u{9b}');
        assert!(!text.contains(bad), "{what}: {text:?}");
    };
    // The control: whoever prints the name as it is, acts.
    assert!(folder.display().to_string().contains("\x1b[2J"));
    let of = |flags: &[&str]| {
        let mut command = world.cowork();
        command
            .arg("run")
            .args(flags)
            .arg("--mount")
            .arg(&folder)
            .args(["--", "sh", "-c", "echo x > .envrc; :"]);
        Ran::of(&mut command)
    };
    for flags in [&[][..], &["-v"], &["--dry-run"], &["-q"]] {
        let ran = of(flags).ok();
        harmless(&ran.err, &format!("{flags:?}"));
        harmless(&ran.out, &format!("{flags:?}"));
        assert!(
            ran.err
                .lines()
                .chain(ran.out.lines())
                .all(|line| !line.starts_with("c\"d")),
            "{ran:?}"
        );
    }
    assert!(!exists(&folder.join(".envrc")));
    // JSON says the same to a program.
    for flags in [&["--json"][..], &["--json", "--dry-run"]] {
        let ran = of(flags).ok();
        let text = if flags.len() == 1 {
            ran.err.lines().last().unwrap_or_default()
        } else {
            &ran.out
        };
        serde_json::from_str::<serde_json::Value>(text)
            .unwrap_or_else(|error| panic!("{error}: {text}"));
        assert!(!text.contains('\x1b'));
    }
    let errors: [&[&str]; 4] = [
        &["run", "--name", name, "--", "true"],
        &["run", "--mount", name, "--", "\x1b[2Jnone"],
        &["run", "--profile", name, "--", "true"],
        &["run", "--no-such\x1b[2J", "--", "true"],
    ];
    for words in errors {
        let ran = Ran::of(world.cowork().args(words));
        assert_ne!(ran.code, 0);
        harmless(&ran.err, &format!("{words:?}"));
    }
}
