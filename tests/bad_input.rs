//! Command lines and policies that make no sense, or that ask for too much.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "bad_input/refusal.rs"]
mod refusal;
mod support;

use std::ffi::OsStr;
use std::process::Command;

use refusal::refused;
use support::{Ran, World};

/// `run -q` with these flags, and `true` as the command.
fn run<S: AsRef<OsStr>>(world: &World, flags: &[S]) -> Command {
    let mut command = world.cowork();
    command.args(["run", "-q"]).args(flags).args(["--", "true"]);
    command
}

#[test]
fn flags_without_sense_are_refused() {
    let world = World::new();
    for (flags, what, because) in [
        (&["--no-such-flag"][..], "command line", "'--no-such-flag'"),
        (&["--moutn", "w"], "command line", "'--moutn'"),
        (&["--mount"], "command line", "a value is required"),
        (&["--quiet=yes"], "command line", "unexpected value"),
        (
            &["--name", "a", "--name", "b"],
            "command line",
            "multiple times",
        ),
        (
            &["--network", "allow"],
            "--network",
            "`allow` is not supported yet",
        ),
        (
            &["--network", "all"],
            "--network",
            "`all` is not none or host",
        ),
        (
            &["--isolation", "vm"],
            "--isolation",
            "`vm` is not namespaces",
        ),
        (
            &["--allow-missing", "x"],
            "--allow-missing",
            "`x` is not a layer",
        ),
        (&["--tmp-size", "0"], "--tmp-size", "no room"),
        (&["--tmp-size=-1"], "--tmp-size", "`-1` is not a size"),
        (&["--tmp-size", "-1"], "command line", "'-1'"),
        (&["--tmp-size", "9999999999G"], "--tmp-size", "too large"),
        (
            &["--tmp-size", "99999999999999999999999"],
            "--tmp-size",
            "too large",
        ),
        (&["--tmp-size", "5X"], "--tmp-size", "`X` is not a unit"),
        (&["--tmp-size", "1.5G"], "--tmp-size", "not a size"),
        (&["--tmp-size="], "--tmp-size", "not a size"),
        (&["--timeout", "0"], "--timeout", "lets nothing run"),
        (&["--timeout", "0s"], "--timeout", "lets nothing run"),
        (&["--timeout", "soon"], "--timeout", "not a time"),
        (
            &["--timeout", "99999999999999999y"],
            "--timeout",
            "not a time",
        ),
        (&["--hostname", "a b"], "call the box", "host name"),
        (&["--hostname", ""], "call the box", "host name"),
        (
            &["--workdir", "../../.."],
            "start in",
            "not an absolute path",
        ),
        (
            &["--workdir", "/no/such"],
            "start in /no/such",
            "No such file",
        ),
        (
            &["--env", "NO_SUCH_VARIABLE"],
            "NO_SUCH_VARIABLE",
            "not set",
        ),
        (&["--env", "=x"], "--env", "needs a name"),
        (&["--env", ""], "", ""),
    ] {
        refused(&world, &mut run(&world, flags), what, because);
    }
}

#[test]
fn a_misspelt_flag_is_guessed_and_an_unknown_command_is_named() {
    let world = World::new();
    refused(&world, &mut run(&world, &["--moutn", "w"]), "", "").complains("'--mount'");
    let unknown = Ran::of(world.cowork().arg("rnu")).failed_with(2);
    unknown
        .complains("because: unrecognized subcommand 'rnu'")
        .complains("help: ");
    // The command goes after `--`.
    let forgotten = &mut world.cowork();
    refused(
        &world,
        forgotten.args(["run", "ls"]),
        "command line",
        "'ls'",
    );
}

#[test]
fn session_names_cannot_be_paths_or_anything_long() {
    let world = World::new();
    let long = "x".repeat(64);
    for name in [
        "a/b",
        "..",
        ".",
        "",
        "ü",
        "A",
        "a b",
        "a\u{1b}[2J",
        long.as_str(),
    ] {
        let flag = format!("--name={name}");
        refused(
            &world,
            &mut run(&world, &[flag]),
            "--name",
            "is not a session name",
        );
    }
    Ran::of(&mut run(&world, &[format!("--name={}", "x".repeat(63))])).ok();
}

#[test]
fn policies_that_cannot_be_used_are_refused() {
    let world = World::new();
    nix::unistd::mkfifo(&world.path("fifo.toml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let big = format!("about = \"{}\"", "x".repeat(1 << 20));
    for (name, text, because) in [
        ("key.toml", "[files]\nno-such-key = 1\n", "no-such-key"),
        ("table.toml", "[no-such-table]\n", "no-such-table"),
        ("syntax.toml", "[files\n", "1"),
        ("type.toml", "[limits]\nprocesses = \"many\"\n", "many"),
        (
            "allow.toml",
            "[net]\nmode = \"allow\"\n",
            "`allow` is not supported yet",
        ),
        (
            "parent.toml",
            "extends = [\"no-such-parent\"]\n",
            "no-such-parent",
        ),
        (
            "mount.toml",
            "[files]\nmounts = [\"missing\"]\n",
            "No such file",
        ),
        ("big.toml", &big, "larger than 1 MiB"),
        (
            "filter.toml",
            "[lock]\nseccomp = \"no-such\"\n",
            "no built-in",
        ),
    ] {
        world.write(name, text);
        let flags = ["--profile", &format!("./{name}")];
        refused(&world, &mut run(&world, &flags), "cannot ", because);
    }
    for (name, because) in [
        ("no-such-policy", "no policy called `no-such-policy`"),
        ("./missing.toml", "No such file"),
        ("./fifo.toml", "not a regular file"),
        ("./w", "not a regular file"),
    ] {
        let flags = ["--profile", name];
        refused(&world, &mut run(&world, &flags), "cannot ", because);
    }
}

#[test]
fn filters_that_cannot_be_used_are_refused() {
    let world = World::new();
    world.write("broken.json", "{");
    for (name, because) in [
        ("no-such-filter", "there is no built-in one of that name"),
        ("./missing.json", "No such file"),
        ("./broken.json", "EOF"),
        ("./w", "Is a directory"),
    ] {
        let flags = ["--seccomp", name];
        refused(
            &world,
            &mut run(&world, &flags),
            "system call filter",
            because,
        );
    }
}

#[test]
fn a_project_that_widens_its_own_box_is_refused() {
    let world = World::new();
    world.write("w/.cowork.toml", "[net]\nmode = \"host\"\n");
    let ran = refused(
        &world,
        &mut run(&world, &["--mount", "w"]),
        "project's policy",
        "may not widen",
    );
    ran.complains("policy trust");
}

#[test]
fn ten_thousand_arguments_simply_work() {
    let world = World::new();
    let mut words = vec!["sh", "-c", "echo $# ${9999}", "sh"];
    words.extend(std::iter::repeat_n("word", 10_000));
    world.run(&[], &words).ok().says("10000 word\n");
}

#[test]
fn a_value_that_the_kernel_cannot_pass_is_refused_first() {
    let world = World::new();
    let value = |length: usize| format!("[env.set]\nBIG = \"{}\"\n", "x".repeat(length));
    world.write("big.toml", &value(1_000_000));
    let flags = ["--profile", "./big.toml"];
    let because = "1000004 bytes";
    refused(
        &world,
        &mut run(&world, &flags),
        "the variable BIG",
        because,
    );
    let longest = (128 << 10) - "BIG=".len() - 1;
    world.write("big.toml", &value(longest + 1));
    refused(
        &world,
        &mut run(&world, &flags),
        "the variable BIG",
        "128 KiB",
    );
    world.write("big.toml", &value(longest));
    world
        .run(&flags, &["sh", "-c", "echo ${#BIG}"])
        .ok()
        .says(&longest.to_string());
}

#[test]
fn a_time_limit_beyond_all_time_is_none() {
    let world = World::new();
    world.run(&["--timeout", "500000000000y"], &["true"]).ok();
}
