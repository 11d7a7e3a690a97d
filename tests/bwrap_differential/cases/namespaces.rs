//! Namespaces, made and joined, and who one is in them.

use crate::case::{Case, case, cases};

/// A user namespace on descriptor 10 in which the caller has this number.
fn in_userns(options: &str, number: u32) -> Case {
    case(options).with(&format!("userns 10 {number}"))
}

cases! {
    unshare_user => case("--unshare-user");
    unshare_user_try => case("--unshare-user-try");
    unshare_ipc => case("--unshare-ipc");
    unshare_pid => case("--unshare-pid");
    unshare_pid_with_proc => case("--unshare-pid --proc /proc");
    unshare_net => case("--unshare-net");
    unshare_uts => case("--unshare-uts");
    unshare_cgroup => case("--unshare-cgroup");
    unshare_cgroup_try => case("--unshare-cgroup-try");
    unshare_all => case("--unshare-all");
    unshare_all_with_proc => case("--unshare-all --proc /proc");
    unshare_all_but_net => case("--unshare-all --share-net");
    share_net_comes_first => case("--share-net --unshare-all");
    share_net_alone => case("--share-net");
    share_net_after_unshare_net => case("--unshare-net --share-net");
    unshare_net_and_user => case("--unshare-net --unshare-user");
    unshare_several => case("--unshare-ipc --unshare-uts --unshare-cgroup --unshare-net --unshare-user");
    unshare_twice => case("--unshare-pid --unshare-pid --unshare-user --unshare-user-try");

    uid => case("--unshare-user --uid 1234");
    gid => case("--unshare-user --gid 4321");
    uid_and_gid => case("--unshare-user --uid 0 --gid 0");
    uid_as_root_of_all => case("--unshare-all --uid 0 --gid 0 --proc /proc --dev /dev");
    uid_without_unshare => case("--uid 1234");
    gid_without_unshare => case("--gid 1234");
    uid_twice => case("--unshare-user --uid 1 --uid 2");
    gid_twice => case("--unshare-user --gid 1 --gid 2");
    uid_not_a_number => case("--unshare-user --uid me");
    uid_negative => case("--unshare-user --uid -1");
    uid_with_a_tail => case("--unshare-user --uid 12x");
    uid_empty => case("--unshare-user --uid").word("");
    uid_with_a_plus => case("--unshare-user --uid +7");
    uid_largest => case("--unshare-user --uid 2147483647 --gid 2147483647");
    gid_not_a_number => case("--unshare-user --gid 0x10");

    hostname => case("--unshare-uts --hostname inside");
    hostname_with_all => case("--unshare-all --hostname inside.example");
    hostname_without_uts => case("--hostname inside");
    hostname_twice => case("--unshare-uts --hostname one --hostname two");
    hostname_empty => case("--unshare-uts --hostname").word("");
    hostname_too_long => case("--unshare-uts --hostname").word(&"h".repeat(65));
    hostname_after_a_failure => case("--unshare-uts --bind {W}/src/missing /d --hostname inside");

    disable_userns => case("--unshare-user --disable-userns").then("more-userns");
    disable_userns_with_all => case("--unshare-all --unshare-user --disable-userns --proc /proc --dev /dev")
        .then("more-userns");
    disable_userns_as_somebody => case("--unshare-user --disable-userns --uid 77 --gid 88").then("more-userns");
    disable_userns_with_caps => case("--unshare-user --disable-userns --cap-add ALL").then("more-userns");
    disable_userns_alone => case("--disable-userns").then("more-userns");
    assert_userns_disabled => case("--unshare-user --disable-userns --assert-userns-disabled").then("more-userns");
    assert_userns_disabled_alone => case("--unshare-user --assert-userns-disabled");
    userns_can_be_nested => case("--unshare-user --dev /dev").then("more-userns");

    userns => in_userns("--userns 10", 0);
    userns_with_another_uid => in_userns("--userns 10 --uid 0 --gid 0", 0);
    userns_with_a_uid_that_is_not_mapped => in_userns("--userns 10 --uid 55", 0);
    userns_with_pid_and_net => in_userns("--userns 10 --unshare-pid --unshare-net --proc /proc", 0);
    userns_with_dev => in_userns("--userns 10 --uid 0 --gid 0 --dev /dev", 0);
    userns_with_unshare_user => in_userns("--userns 10 --unshare-user", 0);
    userns_with_unshare_user_try => in_userns("--userns 10 --unshare-user-try", 0);
    userns_with_unshare_all => in_userns("--userns 10 --unshare-all", 0);
    userns_twice => in_userns("--userns 10 --userns 10", 0);
    userns_not_open => case("--userns 10");
    userns_not_a_namespace => case("--userns 10").with("read 10 {W}/src/file");
    userns_of_another_kind => case("--userns 10").with("read 10 /proc/self/ns/uts");
    userns_our_own => case("--userns 10").with("read 10 /proc/self/ns/user");
    userns2 => case("--userns 10 --userns2 11 --unshare-pid --proc /proc").with("two-userns 10 11 0");
    userns2_not_open => in_userns("--userns 10 --userns2 11", 0);
    userns2_alone => in_userns("--userns2 10", 0);
    pidns => case("--userns 10 --pidns 11 --proc /proc").with("userns-and-pidns 10 11 0");
    pidns_with_unshare_pid => case("--userns 10 --pidns 11 --unshare-pid --proc /proc")
        .with("userns-and-pidns 10 11 0");
    pidns_with_json => case("--userns 10 --pidns 11 --json-status-fd 12 --proc /proc")
        .with("userns-and-pidns 10 11 0 append 12 {R}/status")
        .only("exit 7");
    pidns_alone => case("--pidns 11 --proc /proc").with("userns-and-pidns 10 11 0");
    pidns_not_open => case("--pidns 11");
    pidns_of_another_kind => case("--pidns 11").with("read 11 /proc/self/ns/net");
    pidns_our_own => case("--pidns 11 --proc /proc").with("read 11 /proc/self/ns/pid");

    cap_add => case("--unshare-user --cap-add CAP_NET_ADMIN");
    cap_add_all => case("--unshare-user --cap-add ALL");
    cap_add_all_as_root_inside => case("--unshare-user --uid 0 --gid 0 --cap-add ALL").then("chroot");
    cap_add_and_drop => case("--unshare-user --cap-add ALL --cap-drop CAP_SYS_ADMIN --cap-drop cap_chown");
    cap_drop_then_add => case("--unshare-user --cap-drop ALL --cap-add cap_kill --cap-add CAP_CHECKPOINT_RESTORE");
    cap_in_any_case => case("--unshare-user --cap-add Cap_Net_Raw --cap-drop all --cap-add all --cap-drop cAp_ChOwN");
    cap_by_number => case("--unshare-user --cap-add 5 --cap-add 39");
    cap_without_prefix => case("--unshare-user --cap-add net_admin");
    cap_unknown => case("--cap-add CAP_NOTHING");
    cap_drop_unknown => case("--cap-drop CAP_NOTHING");
    cap_empty => case("--cap-add").word("");
    cap_number_too_large => case("--unshare-user --cap-add 64");
    cap_add_without_userns => case("--cap-add CAP_NET_RAW");
    cap_drop_without_userns => case("--cap-drop CAP_NET_RAW");
    cap_drop_all_without_userns => case("--cap-drop ALL");
    // Less one that root lacks on some machines, where bwrap would then change nothing at all.
    cap_add_all_without_userns => case("--cap-add ALL --cap-drop CAP_SYS_RESOURCE");
    cap_drop_with_all => case("--unshare-all --cap-drop CAP_SYS_ADMIN --proc /proc");
    cap_drop_as_pid_1 => case("--unshare-pid --as-pid-1 --cap-drop CAP_NET_RAW --cap-drop CAP_SYS_ADMIN");
    cap_add_as_somebody => case("--unshare-user --uid 1000 --gid 1000 --cap-add CAP_SYS_ADMIN --cap-add CAP_SETPCAP");
    cap_add_twice => case("--unshare-user --cap-add CAP_KILL --cap-add CAP_KILL --cap-drop CAP_CHOWN");
    cap_add_with_dev => case("--unshare-user --dev /dev --cap-add CAP_SYS_PTRACE");
    cap_add_with_new_pids => case("--unshare-all --cap-add CAP_SYS_CHROOT --proc /proc");
    cap_add_with_userns => in_userns("--userns 10 --cap-add CAP_NET_RAW", 0);
}
