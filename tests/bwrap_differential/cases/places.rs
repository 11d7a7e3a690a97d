//! Where things are put: destinations that exist or not, links in them, order.

use crate::case::{case, cases};

cases! {
    place_with_missing_parents => case("--bind {W}/src/dir /a/b/c/d");
    place_of_a_file_with_missing_parents => case("--ro-bind {W}/src/file /a/b/c/f");
    place_is_relative => case("--ro-bind {W}/src/dir a/b");
    place_has_a_trailing_slash => case("--bind {W}/src/dir /d/");
    place_of_a_file_has_a_trailing_slash => case("--bind {W}/src/file /f/");
    place_has_double_slashes => case("--bind {W}/src/dir //a//b --dir /c///d");
    place_has_dots => case("--dir /a --bind {W}/src/dir /a/./b");
    place_goes_up => case("--dir /a/b --bind {W}/src/dir /a/b/../c");
    place_goes_up_through_what_is_not_there => case("--bind {W}/src/dir /a/b/../c");
    place_goes_up_from_the_root => case("--bind {W}/src/dir /../up");
    place_goes_up_far => case("--bind {W}/src/dir /../../../../up");
    place_is_above_the_root => case("--bind {W}/src/dir /..");
    place_is_the_root => case("--bind {W} /").command("/tools/probe list /src show");
    place_is_the_root_read_only => case("--ro-bind {W} /").command("/tools/probe list /src write /rw/new show");
    place_is_the_root_after_others => case("--tmpfs /t --bind {W} /").command("/tools/probe list /src show");
    place_is_empty => case("--bind {W}/src/dir").word("");
    place_of_a_directory_is_empty => case("--dir").word("");
    place_of_a_tmpfs_is_empty => case("--tmpfs").word("");
    place_is_a_dot => case("--bind {W} .").command("/tools/probe list /src show");
    place_with_a_long_name => case("--bind {W}/src/dir").word(&format!("/{}", "n".repeat(300)));
    place_exists_as_a_directory => case("--dir /d --bind {W}/src/dir /d");
    place_exists_as_a_file => case("--ro-bind {W}/src/file /f --ro-bind {W}/src/dir/file /f");
    directory_over_a_file => case("--ro-bind {W}/src/file /f --bind {W}/src/dir /f");
    file_over_a_directory => case("--dir /d --bind {W}/src/file /d");
    below_a_file => case("--ro-bind {W}/src/file /f --bind {W}/src/dir /f/below");
    directory_below_a_file => case("--ro-bind {W}/src/file /f --dir /f/below/more");
    tmpfs_over_a_file => case("--ro-bind {W}/src/file /f --tmpfs /f");
    in_a_read_only_bind => case("--ro-bind {W}/src/dir /d --bind {W}/rw /d/new");
    file_in_a_read_only_bind => case("--ro-bind {W}/src/dir /d --ro-bind {W}/src/file /d/new");
    deep_in_a_read_only_bind => case("--ro-bind {W}/src/dir /d --bind {W}/rw /d/new/deep");
    directory_in_a_read_only_bind => case("--ro-bind {W}/src/dir /d --dir /d/new");
    tmpfs_in_a_read_only_bind => case("--ro-bind {W}/src/dir /d --tmpfs /d/new");
    link_in_a_read_only_bind => case("--ro-bind {W}/src/dir /d --symlink x /d/new");
    data_in_a_read_only_bind => case("--ro-bind {W}/src/dir /d --file 5 /d/new").with("text 5 data");
    existing_place_in_a_read_only_bind => case("--ro-bind {W}/src/dir /d --bind {W}/rw /d/sub")
        .then("write /d/sub/new write /d/new");
    existing_file_in_a_read_only_bind => case("--ro-bind {W}/src/dir /d --bind {W}/rw/file /d/file")
        .file("rw/file", "other\n")
        .then("write /d/file");
    in_a_writable_bind_it_is_made_on_the_host => case("--bind {W}/rw /d --bind {W}/src/dir /d/a/b --ro-bind {W}/src/file /d/c/f");
    in_a_directory_without_permission => case("--bind {W}/rw /d --dir /d/closed/new")
        .directory("rw/closed")
        .mode("rw/closed", 0o500);

    later_hides_earlier => case("--bind {W}/src/dir /d --bind {W}/rw /d").file("rw/second", "");
    child_then_parent => case("--bind {W}/src/file /d/f --bind {W}/src/dir /d");
    parent_then_child => case("--bind {W}/src/dir /d --bind {W}/rw /d/sub").file("rw/child", "");
    same_source_twice => case("--ro-bind {W}/rw /a --bind {W}/rw /b").then("write /a/new write /b/new");
    read_only_then_writable_part => case("--ro-bind {W}/src /s --bind {W}/src/dir /s/dir")
        .then("write /s/new write /s/dir/new");
    writable_then_read_only_part => case("--bind {W}/src /s --ro-bind {W}/src/dir /s/dir")
        .then("write /s/new write /s/dir/new");
    tmpfs_then_bind_back => case("--bind {W}/src /s --tmpfs /s/dir --bind {W}/src/dir/sub /s/dir/sub");
    bind_of_itself => case("--bind {W}/src {W}/src --ro-bind {W}/src/dir {W}/src/dir")
        .then("write {W}/src/new write {W}/src/dir/new");

    through_a_relative_link => case("--dir /real --symlink real /link --bind {W}/src/dir /link/d");
    through_a_relative_link_up => case("--dir /real --dir /a/b --symlink ../../real /a/b/link --bind {W}/src/dir /a/b/link/d");
    over_a_relative_link => case("--dir /real --symlink real /link --bind {W}/src/dir /link");
    over_a_relative_link_to_a_file => case("--file 5 /real --symlink real /link --ro-bind {W}/src/file /link")
        .with("text 5 data");
    over_a_dangling_relative_link => case("--symlink missing /link --bind {W}/src/dir /link");
    file_over_a_dangling_relative_link => case("--symlink missing /link --ro-bind {W}/src/file /link");
    through_an_absolute_link => case("--dir /real --symlink /real /link --bind {W}/src/dir /link/d")
        .then("open /real/d/file");
    over_an_absolute_link => case("--dir /real --symlink /real /link --bind {W}/src/dir /link")
        .then("open /real/file");
    directory_through_an_absolute_link => case("--dir /real --symlink /real /link --dir /link/made")
        .then("open /real/made");
    tmpfs_over_an_absolute_link => case("--dir /real --symlink /real /link --tmpfs /link").then("write /real/new");
    directory_through_a_link_to_the_host => case("--bind {W}/rw /d --dir /d/link/made")
        .link("/oldroot{W}/home", "rw/link");
    file_through_a_link_to_the_host => case("--bind {W}/rw /d --file 5 /d/link/file")
        .link("/oldroot{W}/src", "rw/link").with("text 5 data");
    chmod_through_a_link_to_the_host => case("--bind {W}/rw /d --chmod 0700 /d/link")
        .link("/oldroot{W}/home", "rw/link");
    bind_through_a_link_to_the_host => case("--bind {W}/rw /d --ro-bind /dev/null /d/link/.rc")
        .link("/oldroot{W}/home", "rw/link");
    through_a_dangling_absolute_link => case("--symlink /missing /link --bind {W}/src/dir /link/d");
    through_a_link_in_a_bind => case("--bind {W}/rw /d --dir /d/real --ro-bind {W}/src/file /d/link/f")
        .link("real", "rw/link");
    through_a_link_out_of_a_bind => case("--dir /out --bind {W}/rw /d --dir /d/link/made").link("../out", "rw/link");
    through_a_loop => case("--symlink two /one --symlink one /two --bind {W}/src/dir /one/d");
    chmod_through_a_link => case("--dir /real --symlink real /link --chmod 0700 /link");
    data_over_a_relative_link => case("--dir /real --symlink real/f /link --file 5 /link").with("text 5 data");
    remount_through_a_link => case("--tmpfs /real --symlink real /link --remount-ro /link").then("write /real/new");
}
