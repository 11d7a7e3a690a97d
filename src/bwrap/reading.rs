//! What the words come to.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use super::args::{Asked, Limited, Start, Stop, parse};
use super::messages::{Open, asked, caller, refusal, words};
use super::numbers;
use crate::plan::{AskedMode, AskedStep, Origin, OverlayWrites};

fn with_data(line: &str, data: &[u8]) -> Result<Asked, Stop> {
    let mut open = Open::with(9, data);
    parse(&words(line), &caller(1000), &mut open, &mut Vec::new())
}

fn shown(env: &[(OsString, OsString)]) -> Vec<String> {
    let one = |(name, value): &(OsString, OsString)| {
        format!("{}={}", name.to_string_lossy(), value.to_string_lossy())
    };
    env.iter().map(one).collect()
}

fn env(line: &str) -> Vec<String> {
    shown(&asked(line).env)
}

fn capabilities(line: &str, uid: u32) -> u64 {
    let start = caller(uid);
    let read = parse(&words(line), &start, &mut Open::default(), &mut Vec::new());
    read.expect(line).capabilities
}

#[test]
fn variables_keep_their_place() {
    assert_eq!(env("true"), ["A=1", "B=2", "C=3"]);
    assert_eq!(
        env("--setenv|B|new|--setenv|D|x=y|true"),
        ["A=1", "B=new", "C=3", "D=x=y"]
    );
    assert_eq!(env("--unsetenv|A|--setenv|A||true"), ["B=2", "C=3", "A="]);
    assert_eq!(env("--unsetenv|Z|true"), ["A=1", "B=2", "C=3"]);
    assert_eq!(env("--setenv|D|4|--clearenv|--setenv|B|5|true"), ["B=5"]);
}

#[test]
fn a_variable_that_is_there_twice_is_set_once_and_removed_twice() {
    let mut start = caller(1000);
    start.env = ["X", "Y", "X"]
        .map(|name| (name.into(), "1".into()))
        .to_vec();
    let env = |line: &str| {
        let read = parse(&words(line), &start, &mut Open::default(), &mut Vec::new());
        shown(&read.unwrap().env)
    };
    assert_eq!(env("--setenv|X|2|true"), ["X=2", "Y=1", "X=1"]);
    assert_eq!(env("--unsetenv|X|true"), ["Y=1"]);
}

#[test]
fn capabilities_are_named_as_libcap_names_them() {
    let all = 0x1ff_ffff_ffff;
    assert_eq!(capabilities("true", 1000), 0);
    assert_eq!(capabilities("true", 0), all);
    for (name, number) in [
        ("5", 5),
        ("0x5", 5),
        ("010", 8),
        ("08", 0),
        ("0x", 0),
        ("5abc", 5),
        ("CAP_net_ADMIN", 12),
        ("cap_net_admin,cap_kill", 12),
        ("cap_net_admin5", 12),
        ("cap_chown", 0),
        ("cap_setfcap", 31),
        ("cap_mac_override", 32),
        ("Cap_Checkpoint_Restore", 40),
    ] {
        let one = 1u64 << number;
        assert_eq!(capabilities(&format!("--cap-add|{name}|true"), 1000), one);
        assert_eq!(
            capabilities(&format!("--cap-drop|{name}|true"), 0),
            all & !one
        );
    }
    assert_eq!(capabilities("--cap-add|aLL|true", 1000), all);
    assert_eq!(capabilities("--cap-drop|ALL|--cap-add|1|true", 0), 2);
    assert_eq!(capabilities("--cap-add|1|--cap-drop|ALL|true", 0), 0);
    // Numbers that the kernel does not know are numbers still.
    assert_eq!(capabilities("--cap-add|63|true", 1000), 0);
    assert!(asked("--cap-add|63|true").capabilities_changed);
    assert!(!asked("true").capabilities_changed);
    let start = Start {
        last_capability: 63,
        ..caller(1000)
    };
    let more = words("--cap-add|ALL|true");
    let more = parse(&more, &start, &mut Open::default(), &mut Vec::new());
    assert_eq!(more.unwrap().capabilities, u64::MAX);
}

#[test]
fn numbers_are_read_as_c_reads_them() {
    for (text, number) in [
        ("5", 5),
        (" 5", 5),
        ("\t\n\u{b}\u{c}\r 5", 5),
        ("+5", 5),
        ("-0", 0),
        ("0000000000000000000000005", 5),
        ("2147483647", 2147483647),
        ("4294967296", 0),
        ("4294967301", 5),
        ("-4294967291", 5),
        ("-99999999999999999999", 0),
    ] {
        assert_eq!(numbers::plain(text.as_bytes()), Some(number), "{text}");
    }
    for (text, mode) in [
        ("755", 0o755),
        (" +07777", 0o7777),
        ("-0", 0),
        ("-1777777777777777777777", 1),
        ("0000000000000000000000000644", 0o644),
    ] {
        assert_eq!(numbers::mode(text.as_bytes()), Some(mode), "{text}");
    }
    for (text, size) in [
        ("1", 1),
        ("010", 8),
        ("0x1F", 31),
        ("0X10", 16),
        ("9223372036854775807", i64::MAX as u64),
    ] {
        assert_eq!(numbers::size(text.as_bytes()), Some(size), "{text}");
    }
}

#[test]
fn steps_keep_their_order_and_their_usual_modes() {
    let line = "--ro-bind|/usr|/usr|--dev-bind-try|a|b|--bind-fd|7|/w|--perms|700|--size|8|--tmpfs|t\
                |--dir|d|--file|3|f|--bind-data|4|g|--perms|0|--ro-bind-data|5|h|--symlink|to|l\
                |--chmod|1777|t|--remount-ro|/usr|--proc|/proc|--dev|/dev|--mqueue|/q\
                |--unshare-uts|--hostname|box|true";
    let bind = |from: Origin, at: &str, mode, optional| AskedStep::Bind {
        from,
        at: at.into(),
        mode,
        optional,
    };
    let read = asked(line);
    assert_eq!(
        read.steps,
        [
            bind(Origin::Path("/usr".into()), "/usr", AskedMode::Read, false),
            bind(Origin::Path("a".into()), "b", AskedMode::Devices, true),
            bind(Origin::Descriptor(7), "/w", AskedMode::Write, false),
            AskedStep::Tmpfs {
                at: "t".into(),
                mode: 0o700,
                size: Some(8)
            },
            AskedStep::Folder {
                at: "d".into(),
                mode: 0o755
            },
            AskedStep::File {
                from: 3,
                at: "f".into(),
                mode: 0o666
            },
            AskedStep::Data {
                from: 4,
                at: "g".into(),
                mode: 0o600,
                read_only: false
            },
            AskedStep::Data {
                from: 5,
                at: "h".into(),
                mode: 0,
                read_only: true
            },
            AskedStep::Link {
                to: "to".into(),
                at: "l".into()
            },
            AskedStep::Chmod {
                at: "t".into(),
                mode: 0o1777
            },
            AskedStep::RemountReadOnly { at: "/usr".into() },
            AskedStep::Proc { at: "/proc".into() },
            AskedStep::Dev { at: "/dev".into() },
            AskedStep::MessageQueue { at: "/q".into() },
            AskedStep::Hostname("box".into()),
        ]
    );
    assert!(read.hostname && read.needs_terminals);
}

#[test]
fn the_last_layer_lies_on_top() {
    let layers = "--overlay-src|a|--overlay-src|b";
    let to = OverlayWrites::To {
        upper: "u".into(),
        work: "w".into(),
    };
    for (option, writes) in [
        ("--overlay|u|w|at", to),
        ("--tmp-overlay|at", OverlayWrites::Hidden),
        ("--ro-overlay|at", OverlayWrites::Refused),
    ] {
        let lower = vec!["b".into(), "a".into()];
        let at = "at".into();
        assert_eq!(
            asked(&format!("{layers}|{option}|true")).steps,
            [AskedStep::Overlay { lower, writes, at }]
        );
    }
}

#[test]
fn sharing_the_network_counts_up_to_the_next_word_on_it() {
    assert!(!asked("--unshare-all|--share-net|true").unshare.net);
    assert!(asked("--share-net|--unshare-all|true").unshare.net);
    let all = asked("--unshare-all|true").unshare;
    assert!(all.user_try && all.ipc && all.pid && all.uts && all.cgroup_try);
    assert!(!all.user && !all.cgroup);
}

#[test]
fn the_command_starts_at_the_first_word_without_a_dash_or_after_two() {
    for (line, command) in [
        ("true|--bind", "true|--bind"),
        ("--unshare-pid|--|--help", "--help"),
        ("--|--|true", "--|true"),
        ("", ""),
        // Nobody is left to use these, and nobody complains.
        ("--perms|755|--size|1|true", "true"),
    ] {
        assert_eq!(asked(line).command, words(command), "{line}");
    }
}

#[test]
fn limits_are_numbers_and_sizes() {
    let line = "--cowork-limit|memory=1g|--cowork-limit|pids=100|--cowork-limit|files=1024\
                |--cowork-limit|file-size=2M|--cowork-limit|cpu-time=60|--cowork-limit|memory=4096|true";
    assert_eq!(
        asked(line).extras.limits,
        [
            (Limited::Memory, 4096),
            (Limited::Processes, 100),
            (Limited::OpenFiles, 1024),
            (Limited::FileSize, 2 << 20),
            (Limited::CpuSeconds, 60),
        ]
    );
    let line = "--cowork-profile|p|--cowork-seccomp|s|--cowork-landlock|--cowork-dry-run\
                |--not-a-security-boundary|true";
    let read = asked(line);
    assert_eq!(read.extras.profile, Some("p".into()));
    assert_eq!(read.extras.seccomp, Some("s".into()));
    assert!(read.extras.landlock && read.extras.dry_run && read.not_a_security_boundary);
}

#[test]
fn words_from_a_descriptor_stand_where_it_is_named() {
    let here = asked("--dir|a|--dir|b|--uid|5|--dir|c|true|x");
    let data = b"--dir\0b\0--uid\x005\0";
    assert_eq!(
        with_data("--dir|a|--args|9|--dir|c|true|x", data),
        Ok(here.clone())
    );
    // The last end may be missing, and a command is dropped with all that follows it.
    let data = b"--dir\0b\0--uid\x005";
    assert_eq!(
        with_data("--dir|a|--args|9|--dir|c|true|x", data),
        Ok(here.clone())
    );
    let data = b"--dir\0b\0--uid\x005\0other\0--wrong";
    assert_eq!(with_data("--dir|a|--args|9|--dir|c|true|x", data), Ok(here));
    assert_eq!(with_data("--args|9|true", b""), Ok(asked("true")));
    assert_eq!(with_data("--args|9", b"true"), Err(Stop::Usage(true)));
    assert_eq!(
        with_data("--perms|700|--args|9|true", b"--dir\0a"),
        Ok(asked("--perms|700|--dir|a|true"))
    );
    assert_eq!(
        with_data("--overlay-src|a|--args|9|true", b"--tmp-overlay\0b"),
        Ok(asked("--overlay-src|a|--tmp-overlay|b|true"))
    );
}

#[test]
fn what_is_wrong_in_a_descriptors_words_is_told() {
    for (data, text) in [
        ("--args\x007", "--args not supported in arguments file"),
        ("--args", "--args not supported in arguments file"),
        ("--dir", "--dir takes an argument"),
        ("--wrong\0", "Unknown option --wrong"),
        (
            "--perms\x00755",
            "--perms must be followed by an option that creates a file",
        ),
        (
            "--perms\x00755\0cmd",
            "--perms must be followed by an option that creates a file",
        ),
        ("--size\x001\0--", "--size must be followed by --tmpfs"),
    ] {
        let open = Open::with(9, data.as_bytes());
        assert_eq!(
            refusal("--args|9|true", &caller(1000), &open),
            text,
            "{data:?}"
        );
    }
    for data in ["--overlay-src\0a", "--overlay-src"] {
        let open = Open::with(9, data.as_bytes());
        let text = refusal("--args|9|--tmp-overlay|b|true", &caller(1000), &open);
        assert!(text.starts_with("--overlay-src must be followed"), "{text}");
    }
}

#[test]
fn words_are_counted_wherever_they_come_from() {
    let many = "Exceeded maximum number of arguments 9000";
    let line = |count: usize| vec!["x"; count].join("|");
    let none = Open::default();
    assert_eq!(asked(&line(9000)).command.len(), 9000);
    assert_eq!(refusal(&line(9001), &caller(1000), &none), many);
    assert_eq!(
        refusal(&format!("--help|{}", line(9000)), &caller(1000), &none),
        many
    );
    // Three words are on the command line.
    let data = |count: usize| b"--unshare-pid\0".repeat(count);
    assert!(with_data("--args|9|true", &data(8997)).is_ok());
    let open = Open::with(9, &data(8998));
    assert_eq!(refusal("--args|9|true", &caller(1000), &open), many);
    // The count goes on from one descriptor to the next.
    let mut two = Open::with(8, &data(5000));
    two.0.insert(9, data(5000));
    assert_eq!(refusal("--args|8|--args|9|true", &caller(1000), &two), many);
    let one = Open::with(9, &data(5000));
    assert_eq!(
        refusal("--args|9|--args|9|true", &caller(1000), &one),
        "Can't read --args data: Bad file descriptor"
    );
}

#[test]
fn bytes_that_are_no_text_stay_what_they_are() {
    let strange = OsString::from_vec(b"/\xff\xfe".to_vec());
    let line = [
        "--dir".into(),
        strange.clone(),
        "--setenv".into(),
        "X".into(),
        strange.clone(),
        strange.clone(),
    ];
    let read = parse(&line, &caller(1000), &mut Open::default(), &mut Vec::new()).unwrap();
    assert_eq!(
        read.steps,
        [AskedStep::Folder {
            at: strange.clone().into(),
            mode: 0o755
        }]
    );
    assert_eq!(read.env.last(), Some(&("X".into(), strange.clone())));
    assert_eq!(read.command, [strange]);
    let unknown = [OsString::from_vec(b"-\xff".to_vec())];
    let read = parse(
        &unknown,
        &caller(1000),
        &mut Open::default(),
        &mut Vec::new(),
    );
    let text = "Unknown option -\u{fffd}".to_owned();
    assert_eq!(
        read,
        Err(Stop::Die {
            text,
            prefix: false
        })
    );
}
