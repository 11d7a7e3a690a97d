//! What is bound: kinds of sources, and the three ways to bind them.

use crate::case::{case, cases};

cases! {
    no_options => case("");
    bind_directory => case("--bind {W}/src/dir /d").then("open /d/file");
    bind_directory_is_writable => case("--bind {W}/rw /d").then("write /d/new mkdir /d/made chmod /d/new");
    ro_bind_directory_is_not_writable => case("--ro-bind {W}/src/dir /d")
        .then("write /d/new mkdir /d/made chmod /d/file unlink /d/file write /d/sub/deep");
    dev_bind_directory => case("--dev-bind {W}/rw /d").then("write /d/new");
    bind_file => case("--bind {W}/rw/file /f").file("rw/file", "old and longer\n").then("write /f unlink /f");
    ro_bind_file => case("--ro-bind {W}/src/file /f").then("write /f chmod /f");
    bind_devices => case("--bind /dev /hostdev").only("open /hostdev/null write /hostdev/null show");
    dev_bind_devices => case("--dev-bind /dev /hostdev").only("open /hostdev/null write /hostdev/null show");
    ro_bind_devices => case("--ro-bind /dev /hostdev").only("open /hostdev/null write /hostdev/null show");
    bind_one_device => case("--bind /dev/null /n").then("open /n");
    dev_bind_one_device => case("--dev-bind /dev/null /n --dev-bind-try /dev/zero /z")
        .then("open /n write /n open /z");
    ro_bind_null_over_a_file => case("--bind {W}/rw /p --ro-bind /dev/null /p/secret")
        .file("rw/secret", "secret\n")
        .then("open /p/secret write /p/secret");
    ro_bind_null_over_nothing => case("--bind {W}/rw /p --ro-bind /dev/null /p/a/b/.rc").then("open /p/a/b/.rc");

    source_is_a_relative_link => case("--bind {W}/src/link /d").link("dir", "src/link");
    source_is_an_absolute_link => case("--ro-bind {W}/src/link /d").link("{W}/src/dir", "src/link");
    source_is_a_link_to_a_file => case("--ro-bind {W}/src/link /f").link("file", "src/link");
    source_is_a_chain_of_links => case("--ro-bind {W}/src/one /f")
        .link("two", "src/one")
        .link("{W}/src/three", "src/two")
        .link("dir/../file", "src/three");
    source_has_a_link_inside => case("--ro-bind {W}/src/link/sub /d").link("dir", "src/link");
    source_is_a_dangling_link => case("--ro-bind {W}/src/link /d").link("missing", "src/link");
    source_is_a_loop_of_links => case("--ro-bind {W}/src/one /d").link("two", "src/one").link("one", "src/two");
    source_is_missing => case("--bind {W}/src/missing /d");
    source_below_a_file => case("--ro-bind {W}/src/file/below /d");
    source_is_empty => case("--bind").word("").word("/d");
    source_without_permission => case("--bind {W}/closed/file /f")
        .directory("closed")
        .file("closed/file", "hidden\n")
        .mode("closed", 0);
    source_directory_without_permission => case("--ro-bind {W}/closed /d").directory("closed").mode("closed", 0);
    source_file_that_cannot_be_read => case("--ro-bind {W}/src/file /f").mode("src/file", 0).then("open /f");
    source_of_somebody_else => case("--ro-bind /root/none-of-ours /d");
    try_source_of_somebody_else => case("--ro-bind-try /root/none-of-ours /d");
    source_is_relative => case("--bind ../src/dir /d");
    source_is_here => case("--bind . /d").file("cwd/here", "");
    source_is_relative_without_dots => case("--ro-bind dir /d").with("chdir {W}/src");
    source_with_dots => case("--ro-bind {W}/home/../src/./dir//sub /d");
    source_with_trailing_slash => case("--ro-bind {W}/src/dir/ /d");
    source_file_with_trailing_slash => case("--ro-bind {W}/src/file/ /f");
    source_with_a_space => case("--ro-bind").word("{W}/a b").word("/c d").directory("a b").file("a b/x", "");
    source_with_a_newline => case("--ro-bind").word("{W}/a\nb").word("/c\nd").directory("a\nb").only("show");
    source_with_odd_bytes => case("--ro-bind {W}/a\u{f8ff}b /c\u{f8ff}d").directory("a\u{f8ff}b")
        .file("a\u{f8ff}b/x", "");
    source_with_odd_bytes_is_missing => case("--ro-bind {W}/a\u{f8ff}b /d");
    source_is_a_proc_link => case("--ro-bind /proc/self/cwd /d").file("cwd/here", "");

    bind_try_is_there => case("--bind-try {W}/src/dir /d");
    bind_try_is_missing => case("--bind-try {W}/src/missing /a/b");
    ro_bind_try_is_there => case("--ro-bind-try {W}/src/file /f").then("write /f");
    ro_bind_try_is_missing => case("--ro-bind-try {W}/src/missing /d");
    dev_bind_try_is_missing => case("--dev-bind-try /dev/no-such-device /d");
    try_with_a_dangling_link => case("--ro-bind-try {W}/src/link /d").link("missing", "src/link");
    try_below_a_file => case("--bind-try {W}/src/file/below /d");
    try_without_permission => case("--bind-try {W}/closed/file /f")
        .directory("closed")
        .file("closed/file", "hidden\n")
        .mode("closed", 0);
    try_with_a_loop => case("--dev-bind-try {W}/src/one /d").link("one", "src/one");

    submount_is_bound_too => case("--bind {W}/src/dir /d")
        .with("own-mounts tmpfs {W}/src/dir/sub nosuid")
        .then("write /d/sub/new");
    submount_is_read_only_too => case("--ro-bind {W}/src/dir /d")
        .with("own-mounts tmpfs {W}/src/dir/sub -")
        .then("write /d/new write /d/sub/new");
    submount_keeps_its_flags => case("--bind {W}/src/dir /d --dev-bind {W}/src/dir /e")
        .with("own-mounts tmpfs {W}/src/dir/sub noexec,noatime");
    submount_stays_read_only => case("--bind {W}/src/dir /d")
        .with("own-mounts tmpfs {W}/src/dir/sub ro,nodev")
        .then("write /d/sub/new");
    two_submounts_on_one_place => case("--ro-bind {W}/src/dir /d")
        .with("own-mounts tmpfs {W}/src/dir/sub - tmpfs {W}/src/dir/sub noexec")
        .then("write /d/sub/new");
    mount_that_follows_no_links => case("--ro-bind {W}/src/dir /d")
        .with("own-mounts tmpfs {W}/src/dir/sub nosymfollow");
    mount_keeps_its_flags => case("--bind {W}/src/dir/sub /d --dev-bind {W}/src/dir/sub /e --ro-bind {W}/src/dir/sub /f")
        .with("own-mounts tmpfs {W}/src/dir/sub noexec,noatime");
    mount_stays_read_only => case("--bind {W}/src/dir/sub /d")
        .with("own-mounts tmpfs {W}/src/dir/sub ro,nosuid")
        .then("write /d/new");
    file_of_a_mount => case("--ro-bind {W}/src/dir/sub/mounted /f")
        .with("own-mounts tmpfs {W}/src/dir/sub noexec,nodev")
        .then("write /f");
    shared_mounts => case("--ro-bind {W}/src/dir /d --tmpfs /t --proc /proc").with("own-mounts shared");
    shared_host => case("--ro-bind / / --dev /dev").with("own-mounts shared").on_host("");

    host_read_only => case("--ro-bind / /").on_host("write {W}/rw/new mkdir /made-by-a-sandbox");
    host_writable => case("--bind / /").on_host("write {W}/rw/new");
    host_with_devices => case("--dev-bind / /").on_host("write {W}/rw/new write /dev/null");
    host_with_everything_unshared => case("--unshare-all --ro-bind / / --proc /proc --dev /dev --die-with-parent")
        .on_host("write /dev/null");
    host_with_a_writable_part => case("--ro-bind / / --bind {W}/rw {W}/rw").on_host("write {W}/rw/new write {W}/new");
    host_with_a_hidden_part => case("--ro-bind / / --tmpfs {W}/src")
        .on_host("write {W}/src/new list {W}/src");
    host_with_a_masked_file => case("--ro-bind / / --ro-bind /dev/null {W}/src/file")
        .on_host("open {W}/src/file list {W}/src");
    host_without_tmp => case("--ro-bind / / --tmpfs /tmp --ro-bind {W}/src {W}/src --ro-bind {W}/tools {W}/tools")
        .on_host("write /tmp/new list {W} write {W}/src/new");
    host_with_its_proc => case("--ro-bind / / --proc /proc").on_host("");
    host_bound_elsewhere => case("--ro-bind / /host")
        .command("/host{W}/tools/probe write /host{W}/rw/new write /new show");
    hosts_proc => case("--bind /proc /proc --ro-bind /proc /p").then("");
    hosts_sys => case("--ro-bind /sys /sys --bind /sys /s").then("");
    hosts_dev_and_pids => case("--dev-bind /dev /dev --unshare-pid --proc /proc").only("open /dev/null show");
    host_as_an_agent_is_run => case(
        "--new-session --die-with-parent --unshare-net --ro-bind / / --bind {W}/rw {W}/rw \
         --ro-bind {W}/rw/.git/hooks {W}/rw/.git/hooks --tmpfs {W}/home --ro-bind /dev/null {W}/src/file \
         --dev /dev --unshare-pid --proc /proc --")
        .directory("rw/.git/hooks")
        .on_host("write {W}/rw/new write {W}/rw/.git/hooks/new write {W}/home/new list {W}/rw");
}
