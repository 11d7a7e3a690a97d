//! Options that came after 0.8.0. Where the other bwrap lacks them, ours is held against what
//! 0.11.1 does.

use crate::case::{Case, case, cases};

/// Two lower layers that share a name.
fn layered(options: &str) -> Case {
    case(options)
        .directory("low/a")
        .directory("high")
        .directory("up")
        .directory("work")
        .file("low/a/one", "low one\n")
        .file("low/both", "low\n")
        .file("high/both", "high\n")
}

/// Ends with 1 and says this, and the command does not run.
fn refused(case: Case, message: &str) -> Case {
    case.expects_exactly("ended", &["ended 1", "left 0"])
        .expects_exactly("stderr", &[message])
        .expects_exactly("did", &[])
}

const NO_MORE: &str = "bwrap: --overlay-src must be followed by another --overlay-src or one of --overlay, \
                       --tmp-overlay, or --ro-overlay";

cases! {
    argv0 => case("--ro-bind {W}/tools/probe /echo --argv0 another").command("/echo a")
        .expects_exactly("called", &["another", "a"])
        .expects_exactly("ended", &["ended 0", "left 0"]);
    argv0_empty => case("--ro-bind {W}/tools/probe /echo --argv0").word("").command("/echo a")
        .expects_exactly("called", &["", "a"]);
    argv0_of_a_missing_command => refused(case("--argv0 another")
        .command("/missing"), "bwrap: execvp /missing: No such file or directory");
    argv0_by_path => case("--ro-bind {W}/tools/probe /usr/bin/echo --argv0 x/y").command("echo")
        .expects_exactly("called", &["x/y"]);
    argv0_twice => refused(case("--argv0 a --argv0 b").command("/missing"), "bwrap: --argv0 used multiple times");
    argv0_without_value => refused(case("--argv0").command(""), "bwrap: --argv0 takes one argument");

    level_prefix_of_an_error => refused(case("--level-prefix --bind {W}/src/missing /d"),
        "<3>bwrap: Can't find source path {W}/src/missing: No such file or directory");
    level_prefix_of_a_warning => case("--level-prefix --chdir /a --chdir /").only("exit 2")
        .expects_exactly("stderr", &["<4>bwrap: Only the last --chdir option will take effect"])
        .expects_exactly("ended", &["ended 2", "left 0"]);
    level_prefix_from_here_on => case("--chdir / --chdir / --level-prefix --nope")
        .expects_exactly("ended", &["ended 1", "left 0"])
        .expects_exactly("stderr", &["bwrap: Only the last --chdir option will take effect", "<3>bwrap: Unknown option --nope"]);
    level_prefix_of_a_mount => refused(case("--level-prefix --remount-ro /missing"),
        "<3>bwrap: Can't remount readonly on /newroot/missing: realpath(destination): No such file or directory");
    level_prefix_of_exec => refused(case("--level-prefix")
        .command("/missing"), "<3>bwrap: execvp /missing: No such file or directory");

    bind_fd => case("--bind-fd 5 /d").with("path 5 {W}/rw").then("write /d/new")
        .expects("did", &["write /d/new: done"])
        .expects("host", &["{W}/rw/new 100644 written\\n"]);
    ro_bind_fd => case("--ro-bind-fd 5 /d").with("read 5 {W}/src/dir").then("write /d/new open /d/file")
        .expects_exactly("did", &["write /d/new: Read-only file system", "open /d/file: done"]);
    bind_fd_of_a_file => case("--ro-bind-fd 5 /f").with("read 5 {W}/src/file").then("write /f open /f")
        .expects_exactly("did", &["write /f: Read-only file system", "open /f: done"]);
    bind_fd_is_closed_for_the_command => case("--bind-fd 5 /d").with("path 5 {W}/rw read 6 {W}/src/file")
        .expects_exactly("ended", &["ended 0", "left 0"]);
    bind_fd_of_a_removed_directory => case("--bind-fd 5 /d").directory("gone").with("read 5 {W}/gone rmdir {W}/gone")
        .expects_exactly("ended", &["ended 1", "left 0"]);
    bind_fd_of_a_pipe => case("--bind-fd 5 /d").with("text 5 x").expects_exactly("ended", &["ended 1", "left 0"]);
    argv0_as_pid_1 => case("--ro-bind {W}/tools/probe /echo --unshare-pid --as-pid-1 --argv0 x").command("/echo a")
        .expects_exactly("called", &["x", "a"]);
    bind_fd_same_twice => refused(case("--bind-fd 5 /d --ro-bind-fd 5 /e")
        .with("path 5 {W}/rw"), "bwrap: Can't stat fd 5: Bad file descriptor");
    bind_fd_not_open => refused(case("--bind-fd 5 /d"), "bwrap: Can't find source path /proc/self/fd/5: No such file or directory");
    bind_fd_bad_number => refused(case("--bind-fd x /d"), "bwrap: Invalid fd: x");
    ro_bind_fd_with_one_value => refused(case("--ro-bind-fd 5").command(""), "bwrap: --bind-fd takes two arguments");

    tmp_overlay => layered("--overlay-src {W}/low --overlay-src {W}/high --tmp-overlay /o")
        .then("write /o/new write /o/both")
        .expects("list", &[&own("/o/a/one 100644 0 0 size 8 low one\\x0a")])
        .expects_exactly("did", &["write /o/new: done", "write /o/both: done"])
        .expects("host", &["{W}/high/both 100644 high\\n", "{W}/low/both 100644 low\\n"]);
    tmp_overlay_twice => layered("--overlay-src {W}/low --tmp-overlay /o --overlay-src {W}/high --tmp-overlay /p")
        .then("write /o/new open /p/new open /p/both")
        .expects_exactly("did", &["write /o/new: done", "open /p/new: No such file or directory", "open /p/both: done"]);
    ro_overlay => layered("--overlay-src {W}/low --overlay-src {W}/high --ro-overlay /o")
        .then("write /o/new open /o/a/one")
        .expects_exactly("did", &["write /o/new: Read-only file system", "open /o/a/one: done"]);
    overlay => layered("--overlay-src {W}/low --overlay-src {W}/high --overlay {W}/up {W}/work /o")
        .then("write /o/new unlink /o/a/one")
        .expects_exactly("did", &["write /o/new: done", "unlink /o/a/one: done"])
        .expects("host", &["{W}/up/new 100644 written\\n", "{W}/low/a/one 100644 low one\\n"]);
    overlay_later_source_wins => layered("--overlay-src {W}/low --overlay-src {W}/high --tmp-overlay /o")
        .only("list /o")
        .expects("list", &[&own("/o/both 100644 0 0 size 5 high\\x0a")]);
    overlay_over_a_bind => layered("--bind {W}/rw /o --overlay-src {W}/low --tmp-overlay /o").then("write /o/new")
        .expects("did", &["write /o/new: done"]);
    overlay_with_odd_names => case("--overlay-src").word("{W}/a:b,c\\d").more("--tmp-overlay /o")
        .directory("a:b,c\\d").file("a:b,c\\d/x", "odd\n")
        .then("open /o/x").expects_exactly("did", &["open /o/x: done"]);
    overlay_on_a_missing_source => refused(case("--overlay-src {W}/missing --tmp-overlay /o"),
        "bwrap: Can't find source path {W}/missing: No such file or directory");
    overlay_without_source => refused(case("--overlay {W}/up {W}/work /o"), "bwrap: --overlay requires at least one --overlay-src");
    tmp_overlay_without_source => refused(case("--tmp-overlay /o"), "bwrap: --tmp-overlay requires at least one --overlay-src");
    ro_overlay_with_one_source => refused(case("--overlay-src {W}/src --ro-overlay /o"),
        "bwrap: --ro-overlay requires at least two --overlay-src");
    overlay_src_then_bind => refused(case("--overlay-src {W}/src --bind / /"), NO_MORE);
    overlay_src_then_the_command => refused(case("--overlay-src {W}/src --").command("/missing"), NO_MORE);
    overlay_src_at_the_end => refused(case("--overlay-src {W}/src").command("/missing"), NO_MORE);
    overlay_with_two_values => refused(case("--overlay-src {W}/src --overlay a b")
        .command(""), "bwrap: --overlay takes three arguments");
    tmp_overlay_without_value => refused(case("--overlay-src {W}/src --tmp-overlay")
        .command(""), "bwrap: --tmp-overlay takes an argument");
    ro_overlay_without_value => refused(case("--overlay-src {W}/src --ro-overlay")
        .command(""), "bwrap: --ro-overlay takes an argument");
    overlay_perms => refused(case("--perms 0700 --overlay-src {W}/src --tmp-overlay /o"),
        "bwrap: --perms must be followed by an option that creates a file");
}

/// A line of a listing in which the caller owns what root would.
fn own(line: &str) -> String {
    let (user, group) = (nix::unistd::getuid(), nix::unistd::getgid());
    line.replace(" 0 0 ", &format!(" {user} {group} "))
}
