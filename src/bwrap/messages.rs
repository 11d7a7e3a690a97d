//! What is refused, and in which words: callers match on them. Each line was held against
//! bubblewrap 0.11.1 itself.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::RawFd;

use super::args::{Asked, Descriptors, Start, Stop, Warning, parse};

/// What is in open descriptors; each can be read once, since reading closes it.
#[derive(Debug, Clone, Default)]
pub(super) struct Open(pub(super) BTreeMap<RawFd, Vec<u8>>);

impl Descriptors for Open {
    fn read(&mut self, fd: RawFd) -> io::Result<Vec<u8>> {
        const BAD_DESCRIPTOR: i32 = 9;
        let data = self.0.remove(&fd);
        data.ok_or_else(|| io::Error::from_raw_os_error(BAD_DESCRIPTOR))
    }
}

impl Open {
    pub(super) fn with(fd: RawFd, data: &[u8]) -> Self {
        Self(BTreeMap::from([(fd, data.to_vec())]))
    }
}

pub(super) fn caller(uid: u32) -> Start {
    Start {
        uid,
        gid: uid,
        effective: 0x1ff_ffff_ffff,
        env: [("A", "1"), ("B", "2"), ("C", "3")]
            .map(|(name, value)| (name.into(), value.into()))
            .to_vec(),
        last_capability: 40,
        labels: false,
    }
}

/// The words of a line, with a bar between them.
pub(super) fn words(line: &str) -> Vec<OsString> {
    line.split('|').map(OsString::from).collect()
}

pub(super) fn asked(line: &str) -> Asked {
    let words = words(line);
    parse(&words, &caller(1000), &mut Open::default(), &mut Vec::new()).expect(line)
}

fn stop(line: &str, start: &Start, open: &Open) -> (Stop, Vec<Warning>) {
    let mut warnings = Vec::new();
    let result = parse(&words(line), start, &mut open.clone(), &mut warnings);
    (result.expect_err(line), warnings)
}

pub(super) fn refusal(line: &str, start: &Start, open: &Open) -> String {
    match stop(line, start, open) {
        (
            Stop::Die {
                text,
                prefix: false,
            },
            _,
        ) => text,
        other => panic!("{line}: {other:?}"),
    }
}

const FOLLOW: &str = "--overlay-src must be followed by another --overlay-src or one of \
                      --overlay, --tmp-overlay, or --ro-overlay";

/// For root and everybody else alike.
#[rustfmt::skip]
const REFUSED: &[(&str, &str)] = &[
    ("--remount-ro", "--remount-ro takes one argument"), ("--argv0", "--argv0 takes one argument"),
    ("--chdir", "--chdir takes one argument"), ("--args", "--args takes an argument"),
    ("--tmp-overlay", "--tmp-overlay takes an argument"),
    ("--ro-overlay", "--ro-overlay takes an argument"), ("--proc", "--proc takes an argument"),
    ("--exec-label", "--exec-label takes an argument"),
    ("--file-label", "--file-label takes an argument"), ("--dev", "--dev takes an argument"),
    ("--tmpfs", "--tmpfs takes an argument"), ("--mqueue", "--mqueue takes an argument"),
    ("--dir", "--dir takes an argument"), ("--lock-file", "--lock-file takes an argument"),
    ("--sync-fd", "--sync-fd takes an argument"), ("--block-fd", "--block-fd takes an argument"),
    ("--userns-block-fd", "--userns-block-fd takes an argument"),
    ("--info-fd", "--info-fd takes an argument"),
    ("--json-status-fd", "--json-status-fd takes an argument"),
    ("--seccomp", "--seccomp takes an argument"),
    ("--add-seccomp-fd", "--add-seccomp-fd takes an argument"),
    ("--userns", "--userns takes an argument"), ("--userns2", "--userns2 takes an argument"),
    ("--pidns", "--pidns takes an argument"), ("--unsetenv", "--unsetenv takes an argument"),
    ("--uid", "--uid takes an argument"), ("--gid", "--gid takes an argument"),
    ("--hostname", "--hostname takes an argument"), ("--cap-add", "--cap-add takes an argument"),
    ("--cap-drop", "--cap-drop takes an argument"), ("--perms", "--perms takes an argument"),
    ("--size", "--size takes an argument"), ("--bind|1", "--bind takes two arguments"),
    ("--bind-try|1", "--bind-try takes two arguments"),
    ("--ro-bind|1", "--ro-bind takes two arguments"),
    ("--ro-bind-try|1", "--ro-bind-try takes two arguments"),
    ("--dev-bind|1", "--dev-bind takes two arguments"),
    ("--dev-bind-try|1", "--dev-bind-try takes two arguments"),
    ("--bind-fd|1", "--bind-fd takes two arguments"), ("--file|1", "--file takes two arguments"),
    ("--bind-data|1", "--bind-data takes two arguments"),
    ("--ro-bind-data|1", "--ro-bind-data takes two arguments"),
    ("--symlink|1", "--symlink takes two arguments"),
    ("--setenv|1", "--setenv takes two arguments"), ("--chmod|1", "--chmod takes two arguments"),
    ("--ro-bind-fd|1", "--bind-fd takes two arguments"),
    ("--overlay|a|b", "--overlay takes three arguments"), ("--bind", "--bind takes two arguments"),
    ("--overlay-src", FOLLOW), ("--overlay-src|a", FOLLOW), ("--overlay-src|a|true", FOLLOW),
    ("--overlay-src|a|--|true", FOLLOW), ("--overlay-src|a|--dir|/x", FOLLOW),
    ("--perms|755|--overlay-src", "--perms must be followed by an option that creates a file"),
    ("--overlay|a|b|c|true", "--overlay requires at least one --overlay-src"),
    ("--tmp-overlay|a|true", "--tmp-overlay requires at least one --overlay-src"),
    ("--ro-overlay|a|true", "--ro-overlay requires at least two --overlay-src"),
    ("--overlay-src|a|--ro-overlay|c|true", "--ro-overlay requires at least two --overlay-src"),
    ("--args|-1", "Invalid fd: -1"), ("--sync-fd|-1", "Invalid fd: -1"),
    ("--block-fd|-1", "Invalid fd: -1"), ("--userns-block-fd|-1", "Invalid fd: -1"),
    ("--info-fd|-1", "Invalid fd: -1"), ("--json-status-fd|-1", "Invalid fd: -1"),
    ("--seccomp|-1", "Invalid fd: -1"), ("--add-seccomp-fd|-1", "Invalid fd: -1"),
    ("--userns|-1", "Invalid fd: -1"), ("--userns2|-1", "Invalid fd: -1"),
    ("--pidns|-1", "Invalid fd: -1"), ("--bind-fd|-1|/x", "Invalid fd: -1"),
    ("--ro-bind-fd|-1|/x", "Invalid fd: -1"), ("--file|-1|/x", "Invalid fd: -1"),
    ("--bind-data|-1|/x", "Invalid fd: -1"), ("--ro-bind-data|-1|/x", "Invalid fd: -1"),
    ("--sync-fd||true", "Invalid fd: "), ("--sync-fd|0a|true", "Invalid fd: 0a"),
    ("--sync-fd| |true", "Invalid fd:  "), ("--sync-fd|+|true", "Invalid fd: +"),
    ("--sync-fd|-|true", "Invalid fd: -"), ("--sync-fd|0x5|true", "Invalid fd: 0x5"),
    ("--sync-fd|5 |true", "Invalid fd: 5 "), ("--sync-fd|--5|true", "Invalid fd: --5"),
    ("--sync-fd|2147483648|true", "Invalid fd: 2147483648"),
    ("--sync-fd|4294967295|true", "Invalid fd: 4294967295"),
    ("--sync-fd|9223372036854775807|true", "Invalid fd: 9223372036854775807"),
    ("--sync-fd|99999999999999999999|true", "Invalid fd: 99999999999999999999"),
    ("--sync-fd|five|true", "Invalid fd: five"), ("--uid||true", "Invalid uid: "),
    ("--gid||true", "Invalid gid: "), ("--uid|-1|true", "Invalid uid: -1"),
    ("--gid|-1|true", "Invalid gid: -1"), ("--uid|1e3|true", "Invalid uid: 1e3"),
    ("--gid|1e3|true", "Invalid gid: 1e3"), ("--uid|2147483648|true", "Invalid uid: 2147483648"),
    ("--gid|2147483648|true", "Invalid gid: 2147483648"), ("--uid|root|true", "Invalid uid: root"),
    ("--gid|root|true", "Invalid gid: root"),
    ("--perms||--dir|/x|true", "--perms takes an octal argument <= 07777"),
    ("--chmod||/x|true", "--chmod takes an octal argument <= 07777"),
    ("--perms| |--dir|/x|true", "--perms takes an octal argument <= 07777"),
    ("--perms|-|--dir|/x|true", "--perms takes an octal argument <= 07777"),
    ("--perms|8|--dir|/x|true", "--perms takes an octal argument <= 07777"),
    ("--chmod|8|/x|true", "--chmod takes an octal argument <= 07777"),
    ("--perms|10000|--dir|/x|true", "--perms takes an octal argument <= 07777"),
    ("--perms|-1|--dir|/x|true", "--perms takes an octal argument <= 07777"),
    ("--chmod|-1|/x|true", "--chmod takes an octal argument <= 07777"),
    ("--perms|0o7|--dir|/x|true", "--perms takes an octal argument <= 07777"),
    ("--perms|0x1|--dir|/x|true", "--perms takes an octal argument <= 07777"),
    ("--perms|755 |--dir|/x|true", "--perms takes an octal argument <= 07777"),
    ("--perms|u+x|--dir|/x|true", "--perms takes an octal argument <= 07777"),
    ("--perms|17777777777777777777777|--dir|/x|true", "--perms takes an octal argument <= 07777"),
    ("--size||--tmpfs|/x|true", "--size takes a non-zero number of bytes"),
    ("--size|0|--tmpfs|/x|true", "--size takes a non-zero number of bytes"),
    ("--size|00|--tmpfs|/x|true", "--size takes a non-zero number of bytes"),
    ("--size| 1|--tmpfs|/x|true", "--size takes a non-zero number of bytes"),
    ("--size|+1|--tmpfs|/x|true", "--size takes a non-zero number of bytes"),
    ("--size|-1|--tmpfs|/x|true", "--size takes a non-zero number of bytes"),
    ("--size|1k|--tmpfs|/x|true", "--size takes a non-zero number of bytes"),
    ("--size|08|--tmpfs|/x|true", "--size takes a non-zero number of bytes"),
    ("--size|0x|--tmpfs|/x|true", "--size takes a non-zero number of bytes"),
    ("--size|0b1|--tmpfs|/x|true", "--size takes a non-zero number of bytes"),
    ("--size|18446744073709551616|--tmpfs|/x|true", "--size takes a non-zero number of bytes"),
    ("--size|9223372036854775808|--tmpfs|/x|true", "--size (for tmpfs) is limited to 9223372036854775807"),
    ("--size|0x8000000000000000|--tmpfs|/x|true", "--size (for tmpfs) is limited to 9223372036854775807"),
    ("--size|18446744073709551615|--tmpfs|/x|true", "--size (for tmpfs) is limited to 9223372036854775807"),
    ("--perms|755|--perms|755", "--perms given twice for the same action"),
    ("--perms|755|--size|1|--perms|8", "--perms given twice for the same action"),
    ("--size|1|--size|0", "--size given twice for the same action"),
    ("--perms|755|--bind|a|b", "--perms must be followed by an option that creates a file"),
    ("--perms|755|--chmod|755|/x", "--perms must be followed by an option that creates a file"),
    ("--perms|755|--unshare-pid", "--perms must be followed by an option that creates a file"),
    ("--perms|755|--size|1|--proc|/x", "--perms must be followed by an option that creates a file"),
    ("--size|1|--dir|/x", "--size must be followed by --tmpfs"),
    ("--size|1|--perms|755|--dir|/x", "--size must be followed by --tmpfs"),
    ("--seccomp|1|--add-seccomp-fd|1", "--add-seccomp-fd cannot be combined with --seccomp"),
    ("--add-seccomp-fd|99|true", "Can't read seccomp data: Bad file descriptor"),
    ("--args|99|true", "Can't read --args data: Bad file descriptor"),
    ("--argv0|a|--argv0|b", "--argv0 used multiple times"),
    ("--exec-label|a|true", "labeling not supported on this system"),
    ("--file-label|a|true", "labeling not supported on this system"),
    ("--setenv||b", "setenv failed"), ("--setenv|A=|b", "setenv failed"),
    ("--unsetenv|", "unsetenv failed"), ("--unsetenv|A=B", "unsetenv failed"),
    ("--cap-add||true", "unknown cap: "), ("--cap-add|net_admin|true", "unknown cap: net_admin"),
    ("--cap-add|cap_|true", "unknown cap: cap_"), ("--cap-add|cap_5|true", "unknown cap: cap_5"),
    ("--cap-add|cap_chow|true", "unknown cap: cap_chow"),
    ("--cap-add|cap_chowns|true", "unknown cap: cap_chowns"),
    ("--cap-add|99|true", "unknown cap: 99"), ("--cap-add|64|true", "unknown cap: 64"),
    ("--cap-add|-1|true", "unknown cap: -1"), ("--cap-add|+5|true", "unknown cap: +5"),
    ("--cap-add| 5|true", "unknown cap:  5"),
    ("--cap-add|cap-chown|true", "unknown cap: cap-chown"),
    ("--cap-drop|ALL,|true", "unknown cap: ALL,"), ("-|true", "Unknown option -"),
    ("-x|true", "Unknown option -x"), ("--bind=a|true", "Unknown option --bind=a"),
    ("--unshare|true", "Unknown option --unshare"), ("--Help|true", "Unknown option --Help"),
    ("---|true", "Unknown option ---"), ("--cowork-x|true", "Unknown option --cowork-x"),
    ("--cowork-limits|true", "Unknown option --cowork-limits"),
    ("--userns-block-fd|1|true", "--userns-block-fd requires --unshare-user"),
    ("--userns-block-fd|1|--unshare-user-try|--info-fd|1|true", "--userns-block-fd requires --unshare-user"),
    ("--userns-block-fd|1|--unshare-user|true", "--userns-block-fd requires --info-fd"),
    ("--userns|1|--unshare-user|true", "--userns not compatible --unshare-user"),
    ("--userns|1|--unshare-user-try|true", "--userns not compatible --unshare-user-try"),
    ("--userns|1|--unshare-all|true", "--userns not compatible --unshare-user-try"),
    ("--disable-userns|true", "--disable-userns requires --unshare-user"),
    ("--disable-userns|--unshare-all|true", "--disable-userns requires --unshare-user"),
    ("--disable-userns", "--disable-userns requires --unshare-user"),
    ("--disable-userns|--unshare-user|--userns-block-fd|1|--info-fd|1|true", "--disable-userns is not compatible with  --userns-block-fd"),
    ("--hostname|h|true", "Specifying --hostname requires --unshare-uts"),
    ("--as-pid-1|true", "Specifying --as-pid-1 requires --unshare-pid"),
    ("--as-pid-1|--unshare-pid|--lock-file|a|true", "Specifying --as-pid-1 and --lock-file is not permitted"),
    ("--as-pid-1|--hostname|h|--lock-file|a|true", "Specifying --hostname requires --unshare-uts"),
];

#[test]
fn mistakes_are_told_in_the_words_that_callers_know() {
    for uid in [0, 1000] {
        for (line, text) in REFUSED {
            let told = refusal(line, &caller(uid), &Open::default());
            assert_eq!(told, *text, "{line} as {uid}");
        }
    }
}

#[test]
fn help_and_version_end_the_reading_where_they_stand() {
    let stops = |line: &str| stop(line, &caller(1000), &Open::default()).0;
    assert_eq!(stops("--help|--nonsense"), Stop::Usage(false));
    assert_eq!(stops("--version"), Stop::Version);
    assert_eq!(stops("--unshare-pid|--version|true"), Stop::Version);
    for line in [
        "--",
        "--unshare-all",
        "--unshare-all|--",
        "--uid|5",
        "--as-pid-1",
    ] {
        assert_eq!(stops(line), Stop::Usage(true), "{line}");
    }
    let nothing = parse(&[], &caller(0), &mut Open::default(), &mut Vec::new());
    assert_eq!(nothing, Err(Stop::Usage(true)));
}

#[test]
fn root_needs_a_user_namespace_to_become_somebody_else() {
    let uid = "Specifying --uid requires --unshare-user or --userns";
    let gid = "Specifying --gid requires --unshare-user or --userns";
    let root = caller(0);
    let none = Open::default();
    assert_eq!(refusal("--uid|5|true", &root, &none), uid);
    assert_eq!(refusal("--gid|5|true", &root, &none), gid);
    assert_eq!(refusal("--gid|5|--uid|5|true", &root, &none), uid);
    let fine = |line: &str, start: &Start| {
        parse(&words(line), start, &mut Open::default(), &mut Vec::new()).is_ok()
    };
    for line in [
        "--uid|0|--gid|0|true",
        "--uid|5|--unshare-user|true",
        "--uid|5|--gid|5|--unshare-user-try|true",
        "--uid|5|--unshare-all|true",
        "--uid|5|--userns|1|true",
    ] {
        assert!(fine(line, &root), "{line}");
    }
    assert!(fine("--uid|5|--gid|5|true", &caller(1000)));
    let other_group = Start {
        gid: 7,
        ..caller(0)
    };
    assert!(fine("--gid|7|true", &other_group));
    assert_eq!(refusal("--gid|0|true", &other_group, &none), gid);
}

#[test]
fn a_filter_is_whole_instructions_and_of_one_kind() {
    let refused = |line, data: &[u8]| refusal(line, &caller(1000), &Open::with(5, data));
    assert_eq!(
        refused("--add-seccomp-fd|5|true", b"1234567"),
        "Invalid seccomp data, must be multiple of 8"
    );
    assert_eq!(
        refused("--add-seccomp-fd|5|--seccomp|6|true", b"12345678"),
        "--seccomp cannot be combined with --add-seccomp-fd"
    );
    assert_eq!(
        refused("--add-seccomp-fd|5|--add-seccomp-fd|5|true", b"12345678"),
        "Can't read seccomp data: Bad file descriptor"
    );
}

#[test]
fn what_is_said_twice_counts_the_second_time_and_is_warned_about() {
    let once = [
        "--sync-fd",
        "--block-fd",
        "--info-fd",
        "--json-status-fd",
        "--seccomp",
        "--userns",
        "--userns2",
        "--pidns",
        "--uid",
        "--gid",
        "--chdir",
        "--hostname",
        "--cowork-profile",
        "--cowork-seccomp",
    ];
    for option in once {
        let line = format!("--unshare-uts|{option}|1|{option}|2|true");
        let mut warnings = Vec::new();
        let twice = parse(
            &words(&line),
            &caller(1000),
            &mut Open::default(),
            &mut warnings,
        );
        let said: Vec<&str> = warnings
            .iter()
            .map(|warning| warning.text.as_str())
            .collect();
        let text = format!("Only the last {option} option will take effect");
        assert_eq!(said, [text], "{option}");
        let mut twice = twice.expect(&line);
        // Every one is a step of its own; the last one stays.
        if option == "--hostname" {
            twice.steps.remove(0);
        }
        assert_eq!(
            twice,
            asked(&format!("--unshare-uts|{option}|2|true")),
            "{option}"
        );
    }
    // The warning comes first even where the second value is refused.
    let (_, warnings) = stop("--uid|1|--uid|x|true", &caller(1000), &Open::default());
    assert_eq!(warnings.len(), 1);
}

#[test]
fn messages_have_a_level_from_where_it_was_asked_for() {
    let prefix = |line: &str| match stop(line, &caller(1000), &Open::default()) {
        (Stop::Die { prefix, .. }, warnings) => (prefix, warnings),
        other => panic!("{line}: {other:?}"),
    };
    assert!(prefix("--level-prefix|--wrong").0);
    assert!(prefix("--level-prefix|--disable-userns|true").0);
    assert!(!prefix("--wrong|--level-prefix").0);
    let (_, warnings) = prefix("--uid|1|--uid|2|--level-prefix|--uid|3|--wrong");
    let levels: Vec<bool> = warnings.iter().map(|warning| warning.prefix).collect();
    assert_eq!(levels, [false, true]);
}

#[test]
fn labels_are_taken_where_there_are_labels() {
    let start = Start {
        labels: true,
        ..caller(1000)
    };
    let line = "--exec-label|a|--file-label|b|true";
    let mut warnings = Vec::new();
    let asked = parse(&words(line), &start, &mut Open::default(), &mut warnings).unwrap();
    assert_eq!(asked.exec_label, Some("a".into()));
    assert_eq!(asked.file_label, Some("b".into()));
}

#[test]
fn a_limit_that_is_not_understood_is_answered_with_those_there_are() {
    for limit in [
        "memory",
        "memory=",
        "memory=0",
        "memory=1x",
        "memory=-1",
        "pids=0",
        "pids=1k",
        "pids=",
        "pids=+5",
        "cpu-time=1h",
        "file-size=0k",
        "files=18446744073709551616",
        "cpu=1",
        "=1",
        "Memory=1g",
        "",
    ] {
        let line = format!("--cowork-limit|{limit}|true");
        let text = refusal(&line, &caller(1000), &Open::default());
        let start = format!("--cowork-limit {limit}: ");
        assert!(text.starts_with(&start), "{text}");
        for name in ["memory=", "pids=", "files=", "file-size=", "cpu-time="] {
            assert!(text.contains(&format!(" {name}")), "{text}");
        }
    }
}
