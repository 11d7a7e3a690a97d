//! Secrets in variables, in other processes' memory of their start, and in files by name.

use std::process::{Command, Stdio};

use crate::outside::{Living, run};
use crate::support::{Ran, World};

const SECRETS: [(&str, &str); 10] = [
    ("AWS_SECRET_ACCESS_KEY", "s3cret-aws"),
    ("ANTHROPIC_API_KEY", "s3cret-anthropic"),
    ("GITHUB_TOKEN", "s3cret-github"),
    ("SSH_AUTH_SOCK", "/s3cret-agent"),
    ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/s3cret-bus"),
    ("XDG_RUNTIME_DIR", "/s3cret-run"),
    ("BASH_ENV", "/s3cret-bash-env"),
    ("NODE_OPTIONS", "--require=/s3cret-node"),
    ("PYTHONSTARTUP", "/s3cret-python"),
    ("BASH_FUNC_ls%%", "() { echo s3cret-function; }"),
];

/// EN-01, EN-02, EN-54, EN-55, PO-12
#[test]
fn variables_of_the_caller_reach_neither_the_program_nor_pid_1() {
    let world = World::new();
    let look =
        "env; cat /proc/1/environ /proc/1/cmdline /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; :";
    let with_secrets = |command: &mut Command| {
        let command = command
            .envs(SECRETS)
            .env("LD_LIBRARY_PATH", "/s3cret-lib")
            .env("COWORK_SANDBOX", "0");
        Ran::of(command.stdin(Stdio::null())).ok()
    };
    // Outside only the probe's own start is read, not that of the host's processes.
    let own = "env; cat /proc/$$/environ | tr '\\0' '\\n'";
    let control = with_secrets(Command::new("sh").args(["-c", own]));
    assert_eq!(
        control.out.matches("AWS_SECRET_ACCESS_KEY=s3cret").count(),
        2
    );

    let inside = with_secrets(&mut run(&world, &[], &["sh", "-c", look]));
    let ran = inside
        .says_not("s3cret")
        .says_not("COWORK_SANDBOX")
        .says("IS_SANDBOX=1");
    let names: Vec<_> = ran
        .out
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name)
        .collect();
    let known = |name: &&str| {
        let made = [
            "PATH",
            "HOME",
            "USER",
            "LOGNAME",
            "SHELL",
            "PWD",
            "IS_SANDBOX",
            "COWORK_SESSION",
            "LANG",
            "OLDPWD",
            "_",
            "SHLVL",
        ];
        made.contains(name) || name.starts_with("GIT_")
    };
    assert!(names.iter().all(known), "{names:?}");
}

/// EN-51: a value that is handed on by name is in nobody's arguments; pid 1 has none at all.
#[test]
fn a_token_handed_on_by_name_is_not_in_any_list_of_processes() {
    let world = World::new();
    let script = "echo \"$TOKEN\"; read wait";
    let everybody = |pid: i32| {
        let of = |pid: &str| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let task = format!("/proc/{pid}/task/{pid}/children");
        let children = std::fs::read_to_string(task).unwrap_or_default();
        let mut all = of(&pid.to_string());
        for child in children.split_whitespace() {
            all.extend(of(child));
        }
        String::from_utf8_lossy(&all).into_owned()
    };
    let start = |given: &str| {
        let mut command = run(&world, &["--env", given], &["sh", "-c", script]);
        Living::start(command.env("TOKEN", "t0ken"))
    };
    let (control, said) = start("TOKEN=t0ken");
    assert_eq!(said, "t0ken");
    assert!(everybody(control.id()).contains("t0ken"));
    control.end();

    let (inside, said) = start("TOKEN");
    assert_eq!(said, "t0ken");
    assert!(!everybody(inside.id()).contains("t0ken"));
    inside.end();
    // Inside, the launcher's arguments are not to be seen either way.
    let look = "cat /proc/1/cmdline | tr '\\0' ' '";
    world
        .run(&["--env", "TOKEN=t0ken"], &["sh", "-c", look])
        .ok()
        .says_not("t0ken")
        .says_not("--env");
}

/// EN-50, EN-52, EN-55, PE-07
#[test]
fn files_with_credentials_are_not_there() {
    let world = World::new();
    let names = [
        ".aws/credentials",
        ".kube/config",
        ".netrc",
        ".git-credentials",
        ".docker/config.json",
        ".npmrc",
        ".bash_history",
        ".config/gh/hosts.yml",
        ".claude/.credentials.json",
        ".claude.json",
        ".ssh/id_ed25519",
        ".gnupg/private-keys-v1.d/key",
        ".config/gcloud/credentials.db",
        ".cache/git/credential/socket",
        ".local/share/keyrings/login.keyring",
        ".pypirc",
        ".cargo/credentials.toml",
        ".bashrc",
        ".local/bin/tool",
    ];
    let mut script = String::new();
    for name in names {
        let path = world.write(&format!("home/{name}"), "s3cret\n");
        let path = path.display();
        script.push_str(&format!("cat '{path}' ~/'{name}' '/proc/self/root{path}' '/proc/1/root{path}' ../../../../..'{path}'\n"));
    }
    let control = world.control(&script);
    assert!(control.out.matches("s3cret").count() >= names.len());
    // These are the host's own: nobody reads them outside for a test.
    let more =
        "cat /root/* /home/*/.[a-z]* /etc/shadow /run/cloud-init/* /var/lib/cloud/* /etc/ssh/*_key";
    let inside = world.sh(&format!("{script}{more}\n:")).ok();
    assert_eq!(inside.out, "");
    // Nothing was made there in passing either.
    for name in names {
        assert_eq!(
            std::fs::read_to_string(world.path("home").join(name)).unwrap(),
            "s3cret\n"
        );
    }
}

/// EN-52
#[test]
fn the_kernels_command_line_is_covered() {
    let world = World::new();
    let whole = std::fs::read_to_string("/proc/cmdline").unwrap();
    assert!(!whole.trim().is_empty());
    let ran = world
        .sh("cat /proc/cmdline; umount /proc/cmdline; cat /proc/cmdline /proc/self/../cmdline");
    assert_eq!(ran.out.trim(), "", "err: {}", ran.err);
}
