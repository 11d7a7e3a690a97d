//! Which program is run, and how it is found.

use crate::case::{case, cases};

const TOOL: &str = "--ro-bind {W}/tools /tools";

cases! {
    command_by_path => case(TOOL).command("/tools/probe exit 3");
    command_after_dashes => case(TOOL).command("-- /tools/probe exit 3");
    command_after_two_dashes => case(TOOL).command("-- -- /tools/probe exit 3");
    command_with_options_of_its_own => case("--ro-bind {W}/tools/probe /echo").command("/echo --bind x --help -- -h");
    command_that_looks_like_an_option => case(TOOL).command("-- --probe");
    command_is_missing => case(TOOL).command("/tools/missing");
    command_in_a_missing_directory => case(TOOL).command("/missing/probe");
    command_below_a_file => case(TOOL).command("/tools/probe/below");
    command_is_a_directory => case(TOOL).command("/tools");
    command_is_not_executable => case("--ro-bind {W}/src/file /f").command("/f");
    command_cannot_be_read => case("--perms 0111 --file 5 /f").with("read 5 {W}/tools/probe").command("/f x");
    command_on_a_mount_without_execution => case("--ro-bind {W}/src/dir/sub /s")
        .with("own-mounts tmpfs {W}/src/dir/sub noexec")
        .command("/s/mounted");
    command_in_a_new_pid_namespace_is_missing => case(TOOL).more("--unshare-all --proc /proc").command("/missing");
    command_as_pid_1_is_missing => case(TOOL).more("--unshare-pid --as-pid-1").command("/missing");
    command_is_empty => case(TOOL).word("--").word("").command("");
    command_by_the_path_variable => case("--ro-bind {W}/tools/probe /usr/bin/echo").command("echo a b");
    command_by_a_set_path => case(TOOL).more("--setenv PATH /none:/tools").command("probe exit 3");
    command_in_no_path => case(TOOL).command("probe exit 3");
    command_without_path => case("--ro-bind {W}/tools/probe /bin/echo --unsetenv PATH").command("echo");
    command_without_path_elsewhere => case("--ro-bind {W}/tools/probe /opt/echo --unsetenv PATH").command("echo");
    command_with_an_empty_path => case("--ro-bind {W}/tools/probe /h/echo --chdir /h --setenv PATH").word("")
        .command("echo");
    command_with_an_empty_part_of_path => case("--ro-bind {W}/tools/probe /h/echo --chdir /h --setenv PATH /none::/x")
        .command("echo");
    command_in_a_closed_part_of_path => case("--perms 0 --dir /closed --ro-bind {W}/tools/probe /open/echo --setenv PATH /closed:/open")
        .command("echo");
    command_not_executable_in_path => case("--file 5 /one/echo --ro-bind {W}/tools/probe /two/echo --setenv PATH /one:/two")
        .with("text 5 x").command("echo");
    command_not_executable_anywhere => case("--file 5 /one/echo --setenv PATH /one:/two").with("text 5 x")
        .command("echo");
    command_relative => case("--ro-bind {W}/tools/probe /a/b/echo --chdir /a").command("b/echo x");
    command_relative_to_here => case("--ro-bind {W}/tools/probe /a/echo --chdir /a").command("./echo x");
    command_through_a_link => case(TOOL).more("--symlink /tools/probe /link").command("/link x");
    command_through_a_dangling_link => case(TOOL).more("--symlink /tools/nothing /link").command("/link x");
    script => case("--ro-bind {W}/tools/probe /interpreter --perms 0755 --file 5 /script")
        .file("text", "#!/interpreter one two\n").with("read 5 {W}/text").command("/script a b");
    script_without_interpreter => case("--perms 0755 --file 5 /script")
        .file("text", "#!/missing\n").with("read 5 {W}/text").command("/script a b");
    script_without_first_line => case("--ro-bind {W}/tools/probe /bin/sh --perms 0755 --file 5 /script")
        .file("text", "echo hello\n").with("read 5 {W}/text").command("/script a b");
    script_without_first_line_and_shell => case("--perms 0755 --file 5 /script")
        .file("text", "echo hello\n").with("read 5 {W}/text").command("/script a b");
    script_without_first_line_in_path => case("--ro-bind {W}/tools/probe /bin/sh --perms 0755 --file 5 /p/script --setenv PATH /p")
        .file("text", "echo hello\n").with("read 5 {W}/text").command("script a b");
    script_that_is_empty => case("--ro-bind {W}/tools/probe /bin/sh --perms 0755 --file 5 /script")
        .with("read 5 /dev/null").command("/script");
    damaged_program => case("--perms 0755 --file 5 /program").with("text 5 \u{7f}ELF\u{2}\u{1}\u{1}damaged")
        .command("/program");
    many_arguments => case("--ro-bind {W}/tools/probe /echo").command(&format!("/echo {}", "word ".repeat(9500)));
    arguments_with_odd_bytes => case("--ro-bind {W}/tools/probe /echo --").word("/echo").word("").word("a b")
        .word("\u{e4}\u{1}\n").command("");
    arguments_that_are_no_text => case("--ro-bind {W}/tools/probe /e\u{f8ff}cho")
        .command("/e\u{f8ff}cho a\u{f8ff}b \u{f8ff}");
    command_that_is_no_text_is_missing => case("").command("/mis\u{f8ff}sing");
    command_missing_under_a_filter => case("--seccomp 5").bytes("allow", &[6, 0, 0, 0, 0, 0, 0xff, 0x7f])
        .with("read 5 {W}/allow").command("/missing");
    command_missing_with_session_and_parent => case("--new-session --die-with-parent --unshare-all")
        .command("/missing");
    setuid_program => case("--perms 06755 --file 5 /probe").with("read 5 {W}/tools/probe").command("/probe show");
}
