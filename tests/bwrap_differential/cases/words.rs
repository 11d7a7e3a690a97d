//! The command line itself: what is no option, lacks a value, or stands in the wrong place.

use crate::case::{Case, case, cases};

/// Nothing after the options.
fn bare(options: &str) -> Case {
    case(options).command("")
}

cases! {
    nothing_at_all => bare("");
    no_command => bare("--dir /x");
    no_command_after_dashes => bare("--dir /x --");
    called_by_an_odd_name => case("--no-such-option").called("/x/y\u{f8ff}/bwrap");
    no_command_under_another_name => bare("").called("/some/where/bwrap");
    help => bare("--help");
    help_under_another_name => bare("--help").called("./bwrap");
    help_after_others => bare("--dir /x --unshare-all --help --no-such-option");
    help_after_a_mistake => bare("--no-such-option --help");
    version => bare("--version");
    version_after_others => bare("--dir /x --version --no-such-option");
    version_as_a_value => case("--setenv A --version");
    unknown_option => case("--no-such-option");
    unknown_option_that_is_no_text => case("--no\u{f8ff}such");
    unknown_short_option => case("-x");
    single_dash => case("-");
    option_with_equals => case("--chdir=/");
    option_abbreviated => case("--unshare-us");
    option_in_capitals => case("--BIND / /");
    option_in_0_12 => case("--not-a-security-boundary");
    mistake_comes_first => case("--bind {W}/missing /x --no-such-option");

    bind_without_values => bare("--bind");
    bind_with_one_value => bare("--bind /");
    bind_try_with_one_value => bare("--bind-try /");
    ro_bind_with_one_value => bare("--ro-bind /");
    ro_bind_try_without_values => bare("--ro-bind-try");
    dev_bind_with_one_value => bare("--dev-bind /");
    dev_bind_try_with_one_value => bare("--dev-bind-try /");
    remount_ro_without_value => bare("--remount-ro");
    proc_without_value => bare("--proc");
    dev_without_value => bare("--dev");
    tmpfs_without_value => bare("--tmpfs");
    mqueue_without_value => bare("--mqueue");
    dir_without_value => bare("--dir");
    file_with_one_value => bare("--file 5");
    bind_data_with_one_value => bare("--bind-data 5");
    ro_bind_data_with_one_value => bare("--ro-bind-data 5");
    symlink_with_one_value => bare("--symlink x");
    chmod_with_one_value => bare("--chmod 0755");
    perms_without_value => bare("--perms");
    size_without_value => bare("--size");
    args_without_value => bare("--args");
    chdir_without_value => bare("--chdir");
    setenv_with_one_value => bare("--setenv A");
    unsetenv_without_value => bare("--unsetenv");
    uid_without_value => bare("--uid");
    gid_without_value => bare("--gid");
    hostname_without_value => bare("--hostname");
    lock_file_without_value => bare("--lock-file");
    sync_fd_without_value => bare("--sync-fd");
    block_fd_without_value => bare("--block-fd");
    userns_block_fd_without_value => bare("--userns-block-fd");
    info_fd_without_value => bare("--info-fd");
    json_status_fd_without_value => bare("--json-status-fd");
    seccomp_without_value => bare("--seccomp");
    add_seccomp_fd_without_value => bare("--add-seccomp-fd");
    userns_without_value => bare("--userns");
    userns2_without_value => bare("--userns2");
    pidns_without_value => bare("--pidns");
    cap_add_without_value => bare("--cap-add");
    cap_drop_without_value => bare("--cap-drop");
    exec_label_without_value => bare("--exec-label");
    file_label_without_value => bare("--file-label");
    exec_label => case("--exec-label some_u:some_r:some_t:s0");
    file_label => case("--file-label some_u:some_r:some_t:s0");

    fd_not_a_number => case("--file x /f");
    fd_negative => case("--bind-data -1 /f");
    fd_with_a_tail => case("--ro-bind-data 5x /f");
    fd_empty => case("--block-fd").word("");
    fd_in_hexadecimal => case("--sync-fd 0x5");
    fd_with_a_space => case("--block-fd").word(" 9").with("read 9 /dev/null");
    fd_with_a_plus => case("--block-fd +9").with("read 9 /dev/null");
    fd_with_zeros => case("--block-fd 009").with("read 9 /dev/null");
    fd_too_large => case("--info-fd 99999999999999999999");
    fd_beyond_32_bits => case("--block-fd 4294967305").with("read 9 /dev/null");
    fd_of_json_is_bad => case("--json-status-fd a");
    fd_of_info_is_bad => case("--info-fd a");
    fd_of_seccomp_is_bad => case("--seccomp 0a");
    fd_of_add_seccomp_is_bad => case("--add-seccomp-fd -1");
    fd_of_userns_is_bad => case("--userns a");
    fd_of_userns2_is_bad => case("--userns2 a");
    fd_of_pidns_is_bad => case("--pidns a");
    fd_of_userns_block_is_bad => case("--userns-block-fd a");
    fd_of_args_is_bad => case("--args a");

    perms_then_bind => case("--perms 0700 --bind {W}/src /s");
    perms_then_proc => case("--perms 0700 --proc /proc");
    perms_then_symlink => case("--perms 0700 --symlink a /b");
    perms_then_chmod => case("--dir /d --perms 0700 --chmod 0755 /d");
    perms_then_the_command => case("--perms 0700");
    perms_then_unshare => case("--perms 0700 --unshare-pid --dir /d");
    perms_twice => case("--perms 0700 --perms 0755 --dir /d");
    perms_not_octal => case("--perms 0789 --dir /d");
    perms_too_large => case("--perms 10000 --dir /d");
    perms_negative => case("--perms -1 --dir /d");
    perms_empty => case("--perms").word("").more("--dir /d");
    perms_in_words => case("--perms u+x --dir /d");
    perms_without_zero => case("--perms 751 --dir /d");
    perms_largest => case("--perms 7777 --dir /d");
    chmod_not_octal => case("--dir /d --chmod 9 /d");
    chmod_too_large => case("--dir /d --chmod 17777 /d");
    size_zero => case("--size 0 --tmpfs /t");
    size_negative => case("--size -1 --tmpfs /t");
    size_with_a_unit => case("--size 1M --tmpfs /t");
    size_empty => case("--size").word("").more("--tmpfs /t");
    size_with_a_space => case("--size").word(" 4096").more("--tmpfs /t");
    size_too_large => case("--size 9223372036854775808 --tmpfs /t");
    size_beyond_64_bits => case("--size 18446744073709551616 --tmpfs /t");
    size_largest => case("--size 9223372036854775807 --tmpfs /t");
    size_then_dir => case("--size 4096 --dir /d");
    size_then_the_command => case("--size 4096");
    size_twice => case("--size 4096 --size 8192 --tmpfs /t");

    args => case("--args 5").arguments_by(5, "--dir /a --dir /b", true);
    args_without_last_nul => case("--args 5 --dir /c").arguments_by(5, "--dir /a --dir /b", false);
    args_empty => case("--args 5").with("read 5 /dev/null");
    args_with_an_empty_word => case("--args 5").arguments_by(5, "--setenv A ", true);
    args_twice => case("--args 5 --tmpfs /t --args 6").arguments_by(5, "--dir /a", true)
        .arguments_by(6, "--dir /t/b", true);
    args_same_twice => case("--args 5 --args 5").arguments_by(5, "--dir /a", true);
    args_inside_args => case("--args 5").arguments_by(5, "--args 6", true).arguments_by(6, "--dir /a", true);
    args_with_a_command => case("--args 5 --dir /c").arguments_by(5, "--dir /a /bin/false --dir /b", true);
    args_with_dashes => case("--args 5 --dir /c").arguments_by(5, "--dir /a -- --dir /b", true);
    args_with_a_mistake => case("--args 5").arguments_by(5, "--dir /a --no-such-option", true);
    args_with_a_missing_value => case("--args 5 /more").arguments_by(5, "--dir /a --bind {W}/src", true);
    args_with_perms_at_the_end => case("--args 5 --dir /d").arguments_by(5, "--perms 0700", true);
    args_only_with_a_command => bare("--args 5").arguments_by(5, "/tools/probe exit 3", true);
    args_with_help => case("--args 5").arguments_by(5, "--dir /a --help", true);
    args_not_open => case("--args 25");
    args_of_a_directory => case("--args 5").with("read 5 {W}/src");
    args_by_a_pipe => case("--args 5").with("text 5 --dir");
    args_too_many => case("--args 5").arguments_by(5, &"--unshare-pid ".repeat(9001), true);
    args_nearly_too_many => case("--args 5").arguments_by(5, &"--unshare-ipc ".repeat(8900), true);
    too_many_words => case(&"--unshare-ipc ".repeat(9001));
    nearly_too_many_words => case(&"--unshare-ipc ".repeat(8900));
}
