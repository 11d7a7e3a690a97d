//! How it begins, ends, is told about, and what is left.

use crate::case::{Case, case, cases};

/// With a status on descriptor 12 and information on 13.
fn told(options: &str) -> Case {
    case(&format!("{options} --json-status-fd 12 --info-fd 13"))
        .with("append 12 {R}/status append 13 {R}/info")
}

cases! {
    exit_0 => case("").only("exit 0");
    exit_1 => case("").only("exit 1");
    exit_7 => case("--unshare-pid").only("exit 7");
    exit_255 => case("--unshare-pid").only("exit 255");
    exit_as_pid_1 => case("--unshare-pid --as-pid-1").only("exit 9");
    exit_with_lock => case("--lock-file /tools/probe").only("exit 6");
    end_by_term => case("").only("end-by 15");
    end_by_kill => case("--unshare-pid").only("end-by 9");
    end_by_kill_without_pids => case("").only("end-by 9");
    end_by_segv => case("--unshare-pid --die-with-parent").only("end-by 11");
    end_by_a_late_signal => case("").only("end-by 64");
    end_by_term_with_session => case("--new-session").only("end-by 15");

    info => told("");
    info_unshare_all => told("--unshare-all --proc /proc");
    info_with_dev => told("--unshare-user --dev /dev");
    info_of_some => told("--unshare-net --unshare-uts");
    info_alone => case("--info-fd 13").with("append 13 {R}/info");
    info_share_net => told("--unshare-all --share-net");
    info_in_a_joined_namespace => told("--userns 10 --unshare-pid").with("userns 10 0");
    status_exit_7 => told("--unshare-pid").only("exit 7");
    status_exit_7_without_pids => told("").only("exit 7");
    status_of_a_signal => told("--unshare-pid").only("end-by 9");
    status_of_a_signal_without_pids => told("").only("end-by 15");
    status_as_pid_1 => told("--unshare-pid --as-pid-1").only("exit 3");
    status_of_a_missing_command => told("").command("/no/such/command");
    status_of_a_missing_command_with_pids => told("--unshare-all").command("/no/such/command");
    status_of_a_failed_setup => told("--bind {W}/src/missing /d");
    status_of_a_failed_chdir => told("--unshare-pid --chdir /missing");
    status_of_a_failed_mount => told("--remount-ro /missing");
    status_of_a_bad_option => told("--no-such-option");
    status_not_open => case("--json-status-fd 12");
    info_not_open => case("--info-fd 12");
    status_twice => case("--json-status-fd 12 --json-status-fd 13").with("append 12 {R}/info append 13 {R}/status");
    info_twice => case("--info-fd 12 --info-fd 13").with("append 12 {R}/status append 13 {R}/info");
    status_and_info_on_one => case("--json-status-fd 12 --info-fd 12").with("append 12 {R}/status").only("exit 4");
    status_to_a_reader_only => case("--json-status-fd 12").with("read 12 /dev/null").only("exit 4");

    block_fd_with_data => case("--block-fd 9").with("text 9 go");
    block_fd_at_its_end => case("--block-fd 9").with("read 9 /dev/null");
    block_fd_waits => case("--block-fd 9").with("held 9 ready-on 101").only("ready show");
    block_fd_waits_with_pids => case("--unshare-pid --block-fd 9").with("held 9 ready-on 101").only("ready show");
    block_fd_twice => case("--block-fd 8 --block-fd 9").with("text 8 x text 9 y");
    block_fd_not_open => case("--block-fd 9");
    userns_block_fd => case("--unshare-user --userns-block-fd 9 --info-fd 12").with("held 9 info-to 12 maps 0 0");
    userns_block_fd_with_ids => case("--unshare-user --uid 50 --gid 60 --unshare-pid --proc /proc --userns-block-fd 9 --info-fd 12")
        .with("held 9 info-to 12 maps 50 60");
    userns_block_fd_without_info => case("--unshare-user --userns-block-fd 9").with("text 9 x");
    userns_block_fd_without_userns => case("--userns-block-fd 9 --info-fd 12").with("text 9 x append 12 {R}/info")
        .only("exit 0");
    userns_block_fd_with_disable => case("--unshare-user --disable-userns --userns-block-fd 9 --info-fd 12")
        .with("text 9 x");

    left_behind => case("").only("settled behind");
    left_behind_with_pids => case("--unshare-pid").only("settled behind exit 5");
    left_behind_with_die_with_parent => case("--unshare-pid --die-with-parent").only("settled behind exit 5");
    left_behind_without_pids_with_die_with_parent => case("--die-with-parent").only("settled behind");
    left_behind_as_pid_1 => case("--unshare-pid --as-pid-1").only("settled behind exit 4");
    left_behind_with_lock => case("--lock-file /tools/probe").only("settled behind exit 4");
    left_behind_with_sync_fd => case("--unshare-pid --sync-fd 6").with("pipe 5 6").only("settled behind");
    left_behind_in_new_session => case("--new-session --unshare-pid").only("settled behind");

    term_to_the_monitor => case("--unshare-pid").with("ready-on 101 signal 15").only("settled ready pause");
    term_to_the_monitor_without_pids => case("").with("ready-on 101 signal 15").only("settled ready pause");
    term_to_the_monitor_with_die_with_parent => case("--unshare-pid --die-with-parent").with("ready-on 101 signal 15")
        .only("settled ready pause");
    term_to_the_monitor_with_die_without_pids => case("--die-with-parent").with("ready-on 101 signal 15")
        .only("settled ready pause");
    kill_to_the_monitor => case("--unshare-pid --die-with-parent --as-pid-1").with("ready-on 101 signal 9")
        .only("settled ready pause");
    interrupt_to_the_monitor => case("--unshare-all --new-session").with("ready-on 101 signal 2")
        .only("settled ready pause");
    hangup_to_the_monitor => case("").with("ready-on 101 signal 1").only("settled ready pause");
    parent_dies => case("--unshare-pid").with("ready-on 101 dies-first").only("settled ready pause");
    parent_dies_and_all_with_it => case("--unshare-pid --die-with-parent").with("ready-on 101 dies-first")
        .only("settled ready pause");
    parent_dies_and_all_with_it_without_pids => case("--die-with-parent").with("ready-on 101 dies-first")
        .only("settled ready pause");
    parent_dies_with_lock_file => case("--die-with-parent --lock-file /tools/probe").with("ready-on 101 dies-first")
        .only("settled ready pause");

    nested => case("--unshare-all --ro-bind / / --proc /proc --dev /dev")
        .command("{BWRAP} --unshare-all --ro-bind / / --proc /proc --dev /dev --tmpfs {W}/src {W}/tools/probe list {W}/src show");
    nested_by_proc_self_exe => case("--ro-bind / / --unshare-pid --proc /proc")
        .command("/proc/self/exe --unshare-all --ro-bind / / --proc /proc {W}/tools/probe exit 8");
    nested_when_disabled => case("--unshare-user --disable-userns --ro-bind / / --proc /proc")
        .command("{BWRAP} --unshare-user --ro-bind / / {W}/tools/probe exit 8");
}
