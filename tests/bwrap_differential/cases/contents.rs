//! What bwrap makes by itself: directories, files, links, filesystems.

use crate::case::{case, cases};

cases! {
    dir => case("--dir /a/b/c").then("write /a/b/c/new");
    dir_with_perms => case("--perms 0700 --dir /a/b --perms 01777 --dir /t --perms 0 --dir /closed");
    dir_with_group_perms => case("--perms 0750 --dir /a/b/c");
    dir_that_exists => case("--perms 0700 --dir /a --perms 0755 --dir /a --dir /a");
    dir_in_a_bind => case("--bind {W}/rw /d --perms 0705 --dir /d/x/y").with("umask 077");
    tmpfs => case("--tmpfs /t").then("write /t/new");
    tmpfs_with_perms => case("--perms 01777 --tmpfs /t --perms 0700 --tmpfs /a/b");
    tmpfs_with_size => case("--size 65536 --tmpfs /t").then("fill /t/file");
    tmpfs_with_both => case("--size 0x20000 --perms 0711 --tmpfs /t --perms 0710 --size 0400000 --tmpfs /u");
    tmpfs_of_odd_size => case("--size 1 --tmpfs /t").then("fill /t/file");
    tmpfs_as_root_directory => case("--tmpfs / --dir /x");
    tmpfs_over_content => case("--bind {W}/src /s --tmpfs /s/dir");
    tmpfs_twice => case("--tmpfs /t --file 5 /t/first --tmpfs /t").with("text 5 data");

    file => case("--file 5 /a/b/f").with("text 5 content");
    file_with_perms => case("--perms 0640 --file 5 /a/f --perms 0 --file 6 /g").with("text 5 five text 6 six");
    file_over_a_file => case("--bind {W}/rw /d --file 5 /d/f").file("rw/f", "was there before\n").with("text 5 new");
    file_over_a_closed_file => case("--bind {W}/rw /d --file 5 /d/f").file("rw/f", "x").mode("rw/f", 0o444)
        .with("text 5 new");
    file_over_a_directory_fails => case("--dir /d --file 5 /d").with("text 5 x");
    file_on_the_host => case("--bind {W}/rw /d --perms 0604 --file 5 /d/a/f").with("umask 077 text 5 x");
    file_from_a_regular_file => case("--file 5 /f").with("read 5 {W}/src/file");
    file_from_a_closed_descriptor => case("--file 5 /f");
    file_from_a_directory => case("--file 5 /f").with("read 5 {W}/src");
    file_from_one_that_cannot_be_read => case("--file 5 /f").with("append 5 {W}/src/file");
    bind_data => case("--bind-data 5 /a/f").with("text 5 content").then("write /a/f unlink /a/f");
    bind_data_with_perms => case("--perms 0644 --bind-data 5 /a/f --perms 0 --ro-bind-data 6 /g")
        .with("text 5 five text 6 six");
    ro_bind_data => case("--ro-bind-data 5 /a/f").with("text 5 content").then("write /a/f chmod /a/f");
    bind_data_large => case("--ro-bind-data 5 /f --file 6 /g").file("big", &"0123456789abcdef".repeat(20000))
        .with("read 5 {W}/big read 6 {W}/big");
    bind_data_over_a_file => case("--bind {W}/src /s --ro-bind-data 5 /s/file").with("text 5 other")
        .then("write /s/file");
    bind_data_over_a_directory => case("--dir /d --bind-data 5 /d").with("text 5 x");
    bind_data_from_a_closed_descriptor => case("--ro-bind-data 5 /f");
    same_descriptor_twice_for_files => case("--file 5 /f --file 5 /g").with("text 5 content");
    same_descriptor_for_file_and_data => case("--file 9 /f --ro-bind-data 9 /g").with("text 9 content");
    two_descriptors_of_one_file => case("--file 5 /f --ro-bind-data 6 /g")
        .with("read 5 {W}/src/file read 6 {W}/src/file");

    symlink => case("--symlink /somewhere/else /a/b/link --symlink ../x /link");
    symlink_that_is_there_already => case("--symlink a /link --symlink a /link");
    symlink_that_is_there_with_another_target => case("--symlink a /link --symlink b /link");
    symlink_over_a_file => case("--ro-bind {W}/src/file /f --symlink x /f");
    symlink_over_a_directory => case("--dir /d --symlink x /d");
    symlink_on_the_host => case("--bind {W}/rw /d --symlink {W}/src /d/link");
    symlink_to_nothing => case("--symlink").word("").word("/link");
    chmod_directory => case("--dir /d --chmod 0711 /d --chmod 02755 /");
    chmod_file => case("--file 5 /f --chmod 0400 /f").with("text 5 x");
    chmod_missing => case("--chmod 0700 /missing");
    chmod_below_missing => case("--chmod 0700 /missing/deeper");
    chmod_on_the_host => case("--bind {W}/rw /d --chmod 0705 /d");
    chmod_in_a_read_only_bind => case("--ro-bind {W}/rw /d --chmod 0700 /d");

    remount_ro_tmpfs => case("--tmpfs /t --remount-ro /t").then("write /t/new");
    remount_ro_of_the_root => case("--dir /tools --dir /d --remount-ro /").then("write /new");
    remount_ro_bind => case("--bind {W}/rw /d --remount-ro /d").then("write /d/new");
    remount_ro_not_below => case("--tmpfs /t --tmpfs /t/inner --remount-ro /t")
        .then("write /t/new write /t/inner/new");
    remount_ro_only_below => case("--tmpfs /t --tmpfs /t/inner --remount-ro /t/inner")
        .then("write /t/new write /t/inner/new");
    remount_ro_of_no_mount => case("--dir /d --remount-ro /d");
    remount_ro_of_nothing => case("--remount-ro /missing");
    remount_ro_below_a_mount => case("--bind {W}/src/dir /d --remount-ro /d/sub");
    remount_ro_twice => case("--tmpfs /t --remount-ro /t --remount-ro /t");
    remount_ro_with_slash => case("--tmpfs /t --remount-ro /t/");
    remount_ro_host_bind_with_submount => case("--bind {W}/src/dir /d --remount-ro /d")
        .with("own-mounts tmpfs {W}/src/dir/sub noexec")
        .then("write /d/new write /d/sub/new");

    proc_shared => case("--proc /proc");
    proc_of_its_own => case("--unshare-pid --proc /proc");
    proc_elsewhere => case("--unshare-pid --proc /a/p");
    proc_over_a_file => case("--file 5 /proc --proc /proc").with("text 5 x");
    proc_twice => case("--unshare-pid --proc /proc --proc /proc");
    proc_then_hidden_part => case("--unshare-pid --proc /proc --tmpfs /proc/acpi --ro-bind /dev/null /proc/version")
        .then("open /proc/version");
    proc_for_a_user_namespace => case("--unshare-user --unshare-pid --proc /proc");
    dev => case("--dev /dev")
        .then("write /dev/null open /dev/zero open /dev/full open /dev/random open /dev/urandom open /dev/pts/ptmx write /dev/shm/x");
    dev_elsewhere => case("--dev /a/devices");
    dev_then_more => case("--dev /dev --tmpfs /dev/shm --bind {W}/rw /dev/mine --dev-bind /dev/zero /dev/null");
    dev_over_earlier_mounts => case("--tmpfs /dev/shm --bind {W}/rw /dev/mine --dev /dev");
    dev_over_a_file => case("--file 5 /dev --dev /dev").with("text 5 x");
    dev_over_the_hosts => case("--ro-bind / / --dev /dev").on_host("list /dev write /dev/shm/new");
    dev_twice => case("--dev /dev --dev /dev2");
    dev_with_ids => case("--unshare-user --uid 4000 --gid 5000 --dev /dev").then("open /dev/pts/ptmx");
    dev_with_everything => case("--unshare-all --dev /dev --proc /proc");
    dev_on_a_terminal => case("--dev /dev --unshare-pid --proc /proc").with("tty")
        .then("open /dev/tty open /dev/console");
    dev_on_a_terminal_with_new_session => case("--dev /dev --new-session").with("tty")
        .then("open /dev/tty open /dev/console");
    dev_then_link_in_it => case("--dev /dev --symlink pts/ptmx /dev/mine --dir /dev/d --file 5 /dev/shm/f")
        .with("text 5 x");
    dev_remounted => case("--dev /dev --remount-ro /dev").then("write /dev/new write /dev/null write /dev/shm/new");
    proc_remounted => case("--unshare-pid --proc /proc --remount-ro /proc");
    root_remounted_after_all => case("--dir /tools --dev /dev --unshare-pid --proc /proc --tmpfs /t \
                                      --ro-bind {W}/tools /tools --remount-ro /")
        .command("/tools/probe write /new write /t/new write /dev/new list / show");
    mqueue => case("--mqueue /mq");
    mqueue_of_its_own => case("--unshare-ipc --mqueue /dev/mq").then("write /dev/mq/queue");
    mqueue_over_a_file => case("--unshare-ipc --file 5 /mq --mqueue /mq").with("text 5 x");
    many_binds => case(&(0..200).map(|n| format!("--ro-bind {{W}}/src/dir /many/{n} ")).collect::<String>())
        .only("show");
    many_kinds => case("--tmpfs /t --dir /t/d --symlink d /t/l --file 5 /t/f --ro-bind {W}/src/dir /t/b --remount-ro /t/b \
                        --chmod 0500 /t/d --dev /t/dev --proc /t/proc --bind-data 6 /t/data --unshare-pid")
        .with("text 5 five text 6 six");
}
