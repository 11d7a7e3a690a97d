//! What the command is given: environment, directory, session, descriptors, signals, filters.

use crate::case::{Case, case, cases};

/// Loads a word at an offset of the data the filter sees.
const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
const FAIL_WITH: u32 = 0x0005_0000;

fn program(instructions: &[(u16, u8, u8, u32)]) -> Vec<u8> {
    let bytes = |(code, yes, no, value): &(u16, u8, u8, u32)| {
        let code = code.to_ne_bytes();
        let value = value.to_ne_bytes();
        [code.as_slice(), &[*yes, *no], &value].concat()
    };
    instructions.iter().flat_map(bytes).collect()
}

fn allow_all() -> Vec<u8> {
    program(&[(RETURN, 0, 0, ALLOW)])
}

/// `chroot` gives this error, everything else works.
fn no_chroot(error: u32) -> Vec<u8> {
    let call = u32::try_from(libc::SYS_chroot).unwrap();
    program(&[
        (LOAD, 0, 0, 0),
        (JUMP_IF_EQUAL, 0, 1, call),
        (RETURN, 0, 0, FAIL_WITH | error),
        (RETURN, 0, 0, ALLOW),
    ])
}

/// With filters on descriptors 5 and 6.
fn filtered(options: &str, five: &[u8], six: &[u8]) -> Case {
    case(options)
        .bytes("five", five)
        .bytes("six", six)
        .with("read 5 {W}/five read 6 {W}/six")
        .then("chroot")
}

cases! {
    setenv => case("--setenv NEW value --setenv KEPT changed");
    setenv_in_order => case("--setenv B 2 --setenv A 1 --setenv B 3 --unsetenv LANG --setenv LANG again");
    setenv_empty_value => case("--setenv EMPTY").word("");
    setenv_empty_name => case("--setenv").word("").word("value");
    setenv_name_with_equals => case("--setenv A=B value");
    setenv_with_spaces => case("--setenv SPACED").word("a  b\tc\nd");
    setenv_pwd => case("--setenv PWD /made/up --setenv OLDPWD /x");
    unsetenv => case("--unsetenv KEPT --unsetenv NEVER_SET");
    unsetenv_empty_name => case("--unsetenv").word("");
    unsetenv_name_with_equals => case("--unsetenv A=B");
    clearenv => case("--clearenv");
    clearenv_then_setenv => case("--setenv BEFORE 1 --clearenv --setenv AFTER 2 --setenv PATH /x");
    clearenv_twice => case("--clearenv --setenv A 1 --clearenv");
    caller_without_environment => case("").environment(&[]);
    caller_with_pwd => case("").environment(&[("PWD", "/not/here"), ("OLDPWD", "/x"), ("HOME", "/tools")]);
    caller_with_loader_variables => case("")
        .environment(&[("LD_PRELOAD", "/none.so"), ("LD_LIBRARY_PATH", "/none"), ("TMPDIR", "/none"), ("GCONV_PATH", "/none")]);

    caller_with_odd_entries => case("").with("entry NO-EQUALS entry =empty-name entry KEPT=twice entry ODD=\u{f8ff}");
    odd_entries_and_setenv => case("--setenv KEPT set --setenv NEW \u{f8ff}")
        .with("entry KEPT=twice entry NO-EQUALS");
    odd_entries_and_unsetenv => case("--unsetenv KEPT --unsetenv NO-EQUALS").with("entry KEPT=twice entry NO-EQUALS");
    odd_entries_and_pwd => case("").with("entry PWD=/one entry PWD=/two");
    chdir => case("--dir /a/b --chdir /a/b");
    chdir_relative => case("--dir /a/b --chdir a/b");
    chdir_missing => case("--chdir /missing");
    chdir_to_a_file => case("--ro-bind {W}/src/file /f --chdir /f");
    chdir_through_a_link => case("--dir /real --symlink /real /link --chdir /link");
    chdir_up => case("--dir /a --chdir /a/../..");
    chdir_twice => case("--dir /a --dir /b --chdir /a --chdir /b");
    chdir_empty => case("--chdir").word("");
    chdir_without_permission => case("--perms 0 --dir /closed --chdir /closed");
    directory_is_kept => case("--bind {W}/cwd {W}/cwd");
    directory_is_kept_under_another_root => case("--ro-bind / /").on_host("");
    directory_is_home => case("--bind {W}/home {W}/home");
    directory_is_home_of_setenv => case("--dir /h --setenv HOME /h");
    directory_is_root_without_home => case("--unsetenv HOME");
    directory_is_root_with_a_bad_home => case("--setenv HOME /missing");
    directory_of_the_caller_is_a_link => case("--bind {W}/src {W}/src").link("dir", "src/link")
        .with("chdir {W}/src/link")
        .environment(&[("PWD", "{W}/src/link")]);
    directory_of_the_caller_is_a_link_without_pwd => case("--bind {W}/src {W}/src").link("dir", "src/link")
        .with("chdir {W}/src/link");
    directory_of_the_caller_is_removed => case("").directory("gone").with("chdir {W}/gone rmdir {W}/gone");
    directory_of_the_caller_is_closed => case("--ro-bind / /").directory("closed").with("chdir {W}/closed")
        .mode("closed", 0o100).on_host("");

    new_session => case("--new-session");
    new_session_with_pids => case("--new-session --unshare-pid --proc /proc");
    new_session_of_a_leader => case("--new-session").with("session");
    session_leader => case("").with("session");
    terminal => case("").with("tty");
    terminal_with_new_session => case("--new-session").with("tty");
    terminal_with_new_pids => case("--unshare-pid --proc /proc").with("tty");
    die_with_parent => case("--die-with-parent");
    die_with_parent_and_pids => case("--die-with-parent --unshare-pid --proc /proc");
    as_pid_1 => case("--unshare-pid --as-pid-1 --proc /proc");
    as_pid_1_with_session => case("--unshare-pid --as-pid-1 --new-session --die-with-parent --proc /proc");
    as_pid_1_without_pids => case("--as-pid-1");
    as_pid_1_with_lock_file => case("--unshare-pid --as-pid-1 --lock-file /f");

    umask_is_kept => case("--dir /a/b --file 5 /f --perms 0777 --dir /c --bind {W}/rw /d --bind {W}/src/dir /d/x/y")
        .with("umask 077 text 5 x").then("write /new mkdir /made write /d/new");
    umask_of_nothing => case("--dir /a/b --file 5 /f --bind {W}/rw /d --ro-bind {W}/src/file /d/x/f")
        .with("umask 000 text 5 x").then("write /new mkdir /made write /d/new");
    umask_with_links_and_data => case("--tmpfs /t --symlink a /l --bind-data 5 /f --dev /dev")
        .with("umask 0777 text 5 x");

    stdin_is_closed => case("").with("close 0");
    stdout_is_closed => case("").with("close 1 append 7 {R}/output").only("output 7 list / show");
    stderr_is_closed => case("").with("close 2");
    all_three_are_closed => case("--unshare-pid --dev /dev --proc /proc")
        .with("close 0 close 1 close 2 append 7 {R}/output").only("output 7 list / show");
    failure_with_stderr_closed => case("--bind {W}/src/missing /d").with("close 2");
    data_with_stdin_closed => case("--file 5 /f --ro-bind-data 6 /g").with("close 0 text 5 five text 6 six");
    stdin_is_a_file => case("").with("read 0 {W}/src/file");
    output_is_a_file => case("").with("append 1 {R}/output");
    descriptors_are_inherited => case("")
        .with("read 3 {W}/src/file append 4 {W}/rw/log pipe 7 8 path 9 {W}/src read 50 /dev/null");
    descriptors_are_inherited_by_pid_2 => case("--unshare-pid --proc /proc")
        .with("read 3 {W}/src/file pipe 7 8 read 99 {W}/src");
    descriptors_as_pid_1 => case("--unshare-pid --as-pid-1").with("read 3 {W}/src/file pipe 7 8");
    descriptors_of_options_are_closed => case("--file 5 /f --bind-data 6 /g --ro-bind-data 7 /h --args 8 --block-fd 9 \
                                               --sync-fd 11 --info-fd 12 --json-status-fd 13 --add-seccomp-fd 14")
        .arguments_by(8, "--dir /by-args", true).bytes("allow", &allow_all())
        .with("text 5 x text 6 y text 7 z read 9 /dev/null read 11 {W}/src/file append 12 {R}/info append 13 {R}/status \
               read 14 {W}/allow read 15 {W}/src/file");
    monitor_keeps_no_pipe => case("--unshare-pid").with("pipe 5 6").only("close 6 hangs-up 5");
    monitor_keeps_no_pipe_without_pids => case("").with("pipe 5 6").only("close 6 hangs-up 5");
    sync_fd_is_kept => case("--unshare-pid --sync-fd 6").with("pipe 5 6").only("hangs-up 5 show");
    sync_fd_is_kept_without_pids => case("--sync-fd 6").with("pipe 5 6").only("hangs-up 5 show");
    sync_fd_as_pid_1 => case("--unshare-pid --as-pid-1 --sync-fd 6").with("pipe 5 6").only("show close 6 hangs-up 5");
    sync_fd_twice => case("--sync-fd 5 --sync-fd 6").with("pipe 5 6");
    sync_fd_not_open => case("--sync-fd 6");
    few_descriptors => case("--unshare-pid --proc /proc --dev /dev").with("open-files 400");

    signals_are_ignored => case("--unshare-pid").with("ignore 1 ignore 2 ignore 13 ignore 15 ignore 34");
    signals_are_blocked => case("").with("block 10 block 15 block 40");
    children_are_ignored => case("--unshare-pid").with("ignore 17 patience 1000").only("show exit 5");
    children_are_blocked => case("--unshare-pid").with("block 17").only("show exit 5");

    lock_file => case("--unshare-pid --bind {W}/rw /d --lock-file /d/lock").file("rw/lock", "")
        .then("locked /d/lock");
    lock_file_without_pids => case("--bind {W}/rw /d --lock-file /d/lock").file("rw/lock", "").then("locked /d/lock");
    lock_files => case("--bind {W}/rw /d --lock-file /d/one --lock-file /d/two").file("rw/one", "").file("rw/two", "")
        .then("locked /d/one locked /d/two");
    lock_file_twice => case("--bind {W}/rw /d --lock-file /d/lock --lock-file /d/lock").file("rw/lock", "")
        .then("locked /d/lock");
    lock_file_is_a_directory => case("--dir /d --lock-file /d").only("show");
    lock_file_missing => case("--unshare-pid --lock-file /missing").only("pause");
    lock_file_read_only => case("--ro-bind {W}/src/file /f --lock-file /f").only("show");

    seccomp_allows => filtered("--seccomp 5", &allow_all(), &[]);
    seccomp_refuses => filtered("--seccomp 5", &no_chroot(77), &[]);
    seccomp_with_pids => filtered("--unshare-all --proc /proc --seccomp 5", &no_chroot(77), &[]);
    seccomp_twice => filtered("--seccomp 5 --seccomp 6", &no_chroot(77), &no_chroot(78));
    add_seccomp_fd => filtered("--add-seccomp-fd 5", &no_chroot(77), &[]);
    add_seccomp_fd_two => filtered("--add-seccomp-fd 5 --add-seccomp-fd 6", &no_chroot(77), &no_chroot(78));
    add_seccomp_fd_two_in_order => filtered("--add-seccomp-fd 6 --add-seccomp-fd 5", &no_chroot(77), &allow_all());
    add_seccomp_fd_same_twice => filtered("--add-seccomp-fd 5 --add-seccomp-fd 5", &no_chroot(77), &[]);
    seccomp_both_ways => filtered("--seccomp 5 --add-seccomp-fd 6", &allow_all(), &allow_all());
    seccomp_both_ways_around => filtered("--add-seccomp-fd 6 --seccomp 5", &allow_all(), &allow_all());
    seccomp_of_odd_length => filtered("--seccomp 5", b"short", &[]);
    add_seccomp_of_odd_length => filtered("--add-seccomp-fd 5", b"123456789", &[]);
    seccomp_empty => filtered("--seccomp 5", &[], &[]);
    seccomp_that_is_no_program => filtered("--seccomp 5", &[0xff; 16], &[]);
    seccomp_not_open => case("--seccomp 25");
    add_seccomp_not_open => case("--add-seccomp-fd 25");
    seccomp_as_user_in_caps => filtered("--unshare-user --cap-add ALL --seccomp 5", &no_chroot(77), &[]);
}
