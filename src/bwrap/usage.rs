//! The help. Callers look in it for the options they need, so each has a line of its own.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// What callers read to learn which options there are.
pub const VERSION: &str = "bubblewrap 0.11.1";

/// An option with its values, and what it does. A line break goes on in the second column.
const ROWS: [(&str, &str); 73] = [
    ("--help", "Show this text"),
    ("--version", "Show the version"),
    (
        "--args FD",
        "Read more options from FD, separated by NUL bytes",
    ),
    ("--argv0 VALUE", "Run the command with VALUE as its argv[0]"),
    (
        "--level-prefix",
        "Start messages with their level, such as <3>",
    ),
    (
        "--unshare-all",
        "A new namespace of every kind that can be had",
    ),
    (
        "--share-net",
        "Keep the network after all, after --unshare-all",
    ),
    (
        "--unshare-user",
        "A new user namespace (always, unless root or with --userns)",
    ),
    (
        "--unshare-user-try",
        "The same if possible, else go on without",
    ),
    ("--unshare-ipc", "A new ipc namespace"),
    ("--unshare-pid", "A new pid namespace"),
    (
        "--unshare-net",
        "A new network namespace, with nothing but loopback",
    ),
    ("--unshare-uts", "A new uts namespace"),
    ("--unshare-cgroup", "A new cgroup namespace"),
    (
        "--unshare-cgroup-try",
        "The same if possible, else go on without",
    ),
    (
        "--userns FD",
        "Join this user namespace (not with --unshare-user)",
    ),
    (
        "--userns2 FD",
        "Change to this user namespace once all is set up",
    ),
    (
        "--disable-userns",
        "Allow no further user namespaces (needs --unshare-user)",
    ),
    (
        "--assert-userns-disabled",
        "Fail if further user namespaces can be made",
    ),
    (
        "--pidns FD",
        "Join this pid namespace; with --unshare-pid, below it",
    ),
    (
        "--uid UID",
        "User id inside (needs --unshare-user or --userns)",
    ),
    (
        "--gid GID",
        "Group id inside (needs --unshare-user or --userns)",
    ),
    ("--hostname NAME", "Host name inside (needs --unshare-uts)"),
    ("--chdir DIR", "Start the command in DIR"),
    ("--clearenv", "Start from an empty environment"),
    ("--setenv VAR VALUE", "Set a variable"),
    ("--unsetenv VAR", "Remove a variable"),
    (
        "--lock-file DEST",
        "Hold a shared lock on DEST while the sandbox lives",
    ),
    ("--sync-fd FD", "Hold FD open while the sandbox lives"),
    ("--bind SRC DEST", "Show SRC at DEST, writable"),
    ("--bind-try SRC DEST", "The same, unless SRC does not exist"),
    (
        "--dev-bind SRC DEST",
        "Show SRC at DEST, writable, with working devices",
    ),
    (
        "--dev-bind-try SRC DEST",
        "The same, unless SRC does not exist",
    ),
    ("--ro-bind SRC DEST", "Show SRC at DEST, read-only"),
    (
        "--ro-bind-try SRC DEST",
        "The same, unless SRC does not exist",
    ),
    (
        "--bind-fd FD DEST",
        "Show the file or folder that FD has open at DEST, writable",
    ),
    ("--ro-bind-fd FD DEST", "The same, read-only"),
    (
        "--remount-ro DEST",
        "Make the mount at DEST read-only, but none below it",
    ),
    (
        "--overlay-src SRC",
        "A lower layer of the overlay that follows",
    ),
    (
        "--overlay RWSRC WORKDIR DEST",
        "An overlay at DEST; changes go to RWSRC, with WORKDIR an empty\n\
         folder on the same file system",
    ),
    (
        "--tmp-overlay DEST",
        "An overlay at DEST; changes are forgotten at the end",
    ),
    ("--ro-overlay DEST", "An overlay at DEST, read-only"),
    ("--exec-label LABEL", "SELinux label of the command"),
    (
        "--file-label LABEL",
        "SELinux label of what is made for the sandbox",
    ),
    ("--proc DEST", "A procfs at DEST"),
    ("--dev DEST", "A minimal /dev at DEST"),
    ("--tmpfs DEST", "An empty tmpfs at DEST"),
    ("--mqueue DEST", "POSIX message queues at DEST"),
    ("--dir DEST", "Make the folder DEST"),
    ("--file FD DEST", "Write what FD holds to the file DEST"),
    (
        "--bind-data FD DEST",
        "Show what FD holds as a file at DEST, writable",
    ),
    ("--ro-bind-data FD DEST", "The same, read-only"),
    (
        "--symlink SRC DEST",
        "Make the symbolic link DEST that says SRC",
    ),
    (
        "--seccomp FD",
        "Load the seccomp program that FD holds (once)",
    ),
    ("--add-seccomp-fd FD", "The same, as often as needed"),
    (
        "--block-fd FD",
        "Do not start the command before FD can be read",
    ),
    (
        "--userns-block-fd FD",
        "Do not go on before FD can be read: ids are mapped by others",
    ),
    ("--info-fd FD", "Write about the sandbox to FD, as JSON"),
    (
        "--json-status-fd FD",
        "Write start and exit to FD, one JSON object per line",
    ),
    (
        "--new-session",
        "Start the command in a terminal session of its own",
    ),
    (
        "--die-with-parent",
        "Kill the sandbox when bwrap or its parent dies",
    ),
    ("--as-pid-1", "Make the command pid 1 (needs --unshare-pid)"),
    ("--cap-add CAP", "Give the command this capability"),
    ("--cap-drop CAP", "Take this capability from the command"),
    ("--perms OCTAL", "Permissions of what the next option makes"),
    ("--size BYTES", "Size of the tmpfs that follows"),
    (
        "--chmod OCTAL PATH",
        "Change the permissions of PATH, which has to exist",
    ),
    (
        "--not-a-security-boundary",
        "Where a protection cannot be had, go on without it",
    ),
    (
        "--cowork-profile NAME",
        "Take limits and rules from this policy of cowork-linux",
    ),
    (
        "--cowork-seccomp NAME",
        "Load a seccomp profile by its name or file",
    ),
    (
        "--cowork-landlock",
        "Hold the file rules a second time, with Landlock",
    ),
    (
        "--cowork-limit NAME=VALUE",
        "Limit memory=SIZE, pids=NUMBER, files=NUMBER, file-size=SIZE or\n\
         cpu-time=SECONDS; a SIZE may end in k, m, g or t",
    ),
    (
        "--cowork-dry-run",
        "Show what would be done, and do nothing",
    ),
];

/// The whole help, for a program that was called by this name.
pub fn usage(argv0: &OsStr) -> Vec<u8> {
    let mut text = b"usage: ".to_vec();
    text.extend_from_slice(argv0.as_bytes());
    text.extend_from_slice(b" [OPTIONS...] [--] COMMAND [ARGS...]\n\n");
    for (option, meaning) in ROWS {
        let mut left = option;
        for line in meaning.lines() {
            text.extend_from_slice(format!("    {left:<28} {line}\n").as_bytes());
            left = "";
        }
    }
    text
}

/// Every option there is, without its values.
pub(super) fn options() -> impl Iterator<Item = &'static str> {
    ROWS.iter()
        .map(|(option, _)| option.split_once(' ').map_or(*option, |(name, _)| name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::super::args::{Stop, is_option, parse};
    use super::super::messages::{Open, caller};
    use super::*;

    #[test]
    fn every_option_in_the_help_is_known_and_nothing_else_is() {
        assert_eq!(options().count(), 73);
        for option in options() {
            assert!(is_option(OsStr::new(option)));
            let alone = parse(
                &[option.into()],
                &caller(0),
                &mut Open::default(),
                &mut Vec::new(),
            );
            if let Err(Stop::Die { text, .. }) = alone {
                assert!(!text.starts_with("Unknown"), "{text}");
            }
        }
        for word in [
            "",
            "-",
            "--",
            "true",
            "--bin",
            "--bind SRC DEST",
            "--cowork",
            "--Help",
        ] {
            assert!(!is_option(OsStr::new(word)), "{word}");
        }
        assert!(!is_option(OsStr::from_bytes(b"--bind\xff")));
    }

    #[test]
    fn the_help_names_the_program_and_keeps_its_columns() {
        let text = usage(OsStr::from_bytes(b"./b\xffwrap"));
        assert!(
            text.starts_with(
                b"usage: ./b\xffwrap [OPTIONS...] [--] COMMAND [ARGS...]\n\n    --help "
            )
        );
        let text = String::from_utf8(usage(OsStr::new("bwrap"))).unwrap();
        for line in text.lines().skip(2) {
            let (left, right) = line.split_at(33);
            assert!(left.starts_with("    "), "{line}");
            assert!(left.ends_with(' ') && !right.starts_with(' '), "{line}");
            assert!(line.len() <= 100, "{line}");
        }
        assert_eq!(VERSION, "bubblewrap 0.11.1");
    }
}
