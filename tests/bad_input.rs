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
            &["--network", "all"],
            "--network",
            "`all` is not none, allow or host",
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
fn hosts_and_ports_without_sense_are_refused() {
    let world = World::new();
    let long = format!("{}.example", "a".repeat(64));
    for (flag, value, because) in [
        ("--allow-host", "", "it is empty"),
        (
            "--allow-host",
            "https://example.com/x",
            "leave out the scheme",
        ),
        ("--allow-host", "example.com/x", "before the slash"),
        ("--allow-host", "user@example.com", "a user's name"),
        ("--allow-host", "exa mple.com", "a space"),
        ("--allow-host", "b\u{fc}cher.example", "`xn--` form"),
        ("--allow-host", "evil*.example", "at the front of a pattern"),
        ("--allow-host", "a..example", "an empty part"),
        ("--allow-host", long.as_str(), "at most 63"),
        ("--allow-host", "example.com:0", "`0` is no port"),
        ("--allow-host", "example.com:99999", "`99999` is no port"),
        ("--allow-host", "example.com:90-80", "the wrong way round"),
        ("--allow-host", "127.1", "ends in a number"),
        ("--allow-host", "0x7f000001", "ends in a number"),
        ("--allow-host", "0.0.0.0", "nobody has this address"),
        (
            "--allow-host",
            "10.0.0.5/8",
            "the net it lies in is 10.0.0.0/8",
        ),
        ("--allow-host", "2001:db8::1", "in brackets"),
        ("--allow-host", "\u{1b}[2Jx", "names no host"),
        ("--deny-host", "*.", "it is empty"),
        ("--bundle", "npm", "there are claude, github, registries"),
        ("--publish", "80", "write [IP:]HOSTPORT:BOXPORT"),
        ("--publish", "localhost:1:2", "`localhost` is no address"),
        ("--publish", "8080:0", "`0` is no port"),
        ("--host-port", "0", "`0` is no port"),
        ("--host-port", "3128", "is taken in the box"),
        ("--host-port", "1-2", "`1-2` is no port"),
        ("--tls-audit", "*.example.com", "`*` is no host"),
        ("--tls-audit", "10.0.0.1", "ends in a number"),
        (
            "--upstream-proxy",
            "ftp://a.example",
            "write http://HOST:PORT",
        ),
        ("--upstream-proxy", "https://a.example", "spoken to in TLS"),
        ("--net-rate", "0", "leaves no room"),
        ("--net-rate", "10", "at least 1K"),
        ("--net-rate", "fast", "is not a"),
        ("--net-connections", "0", "from 1 to 65536"),
        ("--net-connections", "+5", "from 1 to 65536"),
        ("--net-connections", "65537", "from 1 to 65536"),
    ] {
        let given = format!("{flag}={value}");
        refused(&world, &mut run(&world, &[&given]), flag, because);
    }
}

#[test]
fn secrets_and_passwords_are_refused_without_being_repeated() {
    let world = World::new();
    for (flag, value, because) in [
        ("--secret", "hunter2", "needs the host"),
        ("--secret", "A=hunter2@", "it is empty"),
        ("--secret", "A=hunter2@10.0.0.1", "not for an address"),
        ("--secret", "A=hunter2@a.example:443", "not a port"),
        (
            "--secret",
            "A=hunter2@a.example:Host",
            "cannot carry a secret",
        ),
        ("--secret", "A=hunter2\n@a.example", "spaces around it"),
        ("--secret", "A=hunter2\nB@a.example", "no header can carry"),
        ("--secret", "A B=hunter2@a.example", "name of a variable"),
        ("--secret", "A=env:@a.example", "after `env:`"),
        (
            "--upstream-proxy",
            "http://me:hunter2@p.example",
            "HTTPS_PROXY",
        ),
    ] {
        let ran = refused(&world, &mut run(&world, &[flag, value]), flag, because);
        assert!(!ran.err.contains("hunter2"), "{}", ran.err);
    }
    let mut command = run(&world, &["--network", "allow", "--upstream-proxy", "env"]);
    refused(&world, &mut command, "--upstream-proxy", "no proxy is set");
    command.env("HTTPS_PROXY", "gopher://me:hunter2@p.example");
    let ran = refused(
        &world,
        &mut command,
        "--upstream-proxy",
        "HTTPS_PROXY is no proxy",
    );
    assert!(!ran.err.contains("hunter2"), "{}", ran.err);
}

#[test]
fn flags_of_a_list_of_hosts_take_a_list_of_hosts() {
    let world = World::new();
    for mode in ["none", "host"] {
        let said = format!("--network {mode}");
        for flags in [
            &["--allow-host", "a.example"][..],
            &["--deny-host", "a.example"],
            &["--bundle", "claude"],
            &["--secret", "A@a.example"],
            &["--tls-audit", "a.example"],
            &["--upstream-proxy", "http://p.example"],
            &["--net-rate", "1M"],
            &["--net-connections", "5"],
        ] {
            let all = [flags, &["--network", mode]].concat();
            refused(&world, &mut run(&world, &all), flags[0], &said);
        }
    }
    for flags in [["-p", "8080:80"], ["--host-port", "5432"]] {
        let all = [&flags[..], &["--network", "host"]].concat();
        let name = if flags[0] == "-p" {
            "--publish"
        } else {
            flags[0]
        };
        refused(&world, &mut run(&world, &all), name, "--network host");
    }
    // What the mode is may be up to the policy.
    for flag in ["--deny-host", "--tls-audit"] {
        let mut command = run(&world, &[flag, "a.example"]);
        refused(
            &world,
            &mut command,
            flag,
            "the policy says `--network none`",
        );
    }
    let flags = ["--allow-host", "a.example", "--secret", "A@b.example"];
    let because = "the secret A is for b.example, which no rule allows";
    refused(
        &world,
        &mut run(&world, &flags),
        "set up the network",
        because,
    );
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
    let long = "x".repeat(129);
    for name in [
        "a/b",
        "..",
        ".",
        "",
        "ü",
        ".a",
        "_a",
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
    Ran::of(&mut run(&world, &[format!("--name={}", "x".repeat(128))])).ok();
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
            "[net]\nallow = [\"https://a.example\"]\n",
            "leave out the scheme",
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
