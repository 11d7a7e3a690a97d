//! sandbox-runtime's rules for files, seen from the host afterwards.

use std::path::Path;

use serde_json::{Value, json};

use crate::runtime::Runtime;
use crate::support::Ran;

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names in a folder, hidden ones too.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Tries each of them in one sandbox, in a shell of its own.
#[track_caller]
fn none_goes_through<S: AsRef<str>>(runtime: &Runtime, settings: &Value, attempts: &[S]) {
    let tries = attempts.iter().map(AsRef::as_ref);
    let script: String = tries
        .map(|attempt| format!("( {attempt} ) && echo \"line $LINENO went through\"\n"))
        .collect();
    let ran = runtime.run(settings, &format!("{script}echo that was all"));
    assert_eq!(ran.out, "that was all\n", "{}", ran.err);
}

#[test]
fn writes_are_kept_to_what_is_allowed() {
    let Some(runtime) = Runtime::new() else {
        return;
    };
    let world = &runtime.caller.world;
    runtime
        .sh("echo inside > made; cat made")
        .ok()
        .says("inside\n");
    assert_eq!(read(&world.work().join("made")), "inside\n");

    let outside = runtime.caller.outside();
    let kept = world.write("outside/kept", "as it was\n");
    let attempts = [
        format!("echo x > {}/made", outside.display()),
        format!("echo x >> {}", kept.display()),
        format!("rm {}", kept.display()),
        format!("mv {} {}/moved", kept.display(), outside.display()),
        format!("chmod 777 {}", kept.display()),
        "echo x > ~/made".to_owned(),
        // By a name inside that leads outside.
        format!("ln -sfn {} link; echo x > link/made", outside.display()),
    ];
    none_goes_through(&runtime, &runtime.settings(), &attempts);
    assert_eq!(names(&outside), ["kept"]);
    assert_eq!(names(&world.path("home")), [""; 0]);
    assert_eq!(read(&kept), "as it was\n");
    // Each of them works where nothing stops it.
    for attempt in &attempts {
        runtime.caller.control(attempt).ok();
        world.write("outside/kept", "as it was\n");
    }
    assert_eq!(names(&outside), ["kept", "made", "moved"]);
}

#[test]
fn what_must_not_be_read_is_hidden() {
    let Some(runtime) = Runtime::new() else {
        return;
    };
    let world = &runtime.caller.world;
    let folder = world.path("outside/keys");
    let file = world.write("outside/token", "a secret token");
    world.write("outside/keys/private", "a secret key");
    world.write("outside/keys/public/key", "a public key");
    world.write("w/.env", "a secret of the project");
    let mut settings = runtime.settings();
    settings["filesystem"]["denyRead"] = json!([folder, file, world.work().join(".env")]);
    settings["filesystem"]["allowRead"] = json!([folder.join("public")]);
    let script = format!(
        "cat {0}/private {1} .env; find {0}; head -c 99 {0}/public/key",
        folder.display(),
        file.display()
    );
    runtime.caller.control(&script).ok().says("a secret token");
    let ran = runtime.run(&settings, &script).ok();
    let ran = ran.says("a public key").says_not("a secret");
    assert!(!ran.out.contains("private"), "{ran:?}");
    // Nothing of it was touched.
    assert_eq!(names(&folder), ["private", "public"]);
    assert_eq!(read(&file), "a secret token");
}

#[test]
fn what_must_not_be_written_holds_within_an_allowed_folder() {
    let Some(runtime) = Runtime::new() else {
        return;
    };
    let world = &runtime.caller.world;
    let file = world.write("w/lock", "as it was\n");
    world.write("w/closed/inner/file", "as it was\n");
    let absent = world.work().join("absent/one/two");
    let mut settings = runtime.settings();
    settings["filesystem"]["denyWrite"] = json!([file, world.work().join("closed"), absent]);
    let attempts = [
        "echo x > lock",
        "rm -f lock",
        "mv lock lock2",
        "echo x > closed/inner/file",
        "echo x > closed/new",
        "mv closed open",
        "mkdir -p absent/one && echo x > absent/one/two",
    ];
    none_goes_through(&runtime, &settings, &attempts);
    runtime.run(&settings, "echo x > open").ok();
    assert_eq!(names(&world.work()), ["closed", "lock", "open"]);
    assert_eq!(read(&file), "as it was\n");
    assert_eq!(read(&world.work().join("closed/inner/file")), "as it was\n");
    // Each of them works where nothing stops it.
    for attempt in ["rm open"].iter().chain(&attempts) {
        runtime.caller.control(attempt).ok();
        world.write("w/lock", "as it was\n");
        world.write("w/closed/inner/file", "as it was\n");
    }
}

/// Files that others would run later are closed without being named, and whether they exist or not.
#[test]
fn files_that_others_run_are_closed_and_leave_no_trace() {
    let Some(runtime) = Runtime::new() else {
        return;
    };
    let world = &runtime.caller.world;
    world.write("w/.profile", "as it was\n");
    runtime.caller.control("git init -q repository").ok();
    let hooks = world.work().join("repository/.git/hooks");
    let before = (names(&world.work()), names(&hooks));
    let attempts = [
        "echo x > .bashrc",
        "echo x >> .profile",
        "mkdir -p .vscode && echo x > .vscode/tasks.json",
        "mkdir -p .claude/commands && echo x > .claude/commands/evil.md",
        "echo x > repository/.git/hooks/pre-commit",
        "git -C repository config core.fsmonitor /bin/false",
    ];
    none_goes_through(&runtime, &runtime.settings(), &attempts);
    assert_eq!((names(&world.work()), names(&hooks)), before);
    assert_eq!(read(&world.work().join(".profile")), "as it was\n");
    for attempt in attempts {
        runtime.caller.control(attempt).ok();
    }
}

/// More rules than fit on a command line reach bwrap by `--args`, from a file without a name.
#[test]
fn a_thousand_rules_hold() {
    let Some(runtime) = Runtime::new() else {
        return;
    };
    let world = &runtime.caller.world;
    let long = "x".repeat(60);
    let closed: Vec<_> = (0..1000)
        .map(|number| world.write(&format!("w/{long}{number}"), "as it was\n"))
        .collect();
    let mut settings = runtime.settings();
    settings["filesystem"]["denyWrite"] = json!(closed);
    let mut command = runtime.command(
        &settings,
        "for file in xxx*; do ! echo x > $file || exit 9; done 2> /dev/null; echo free > free",
    );
    let ran = Ran::of(command.env("SRT_DEBUG", "true"));
    ran.ok().complains("bwrap mounts moved to an unnamed file");
    assert_eq!(read(&world.work().join("free")), "free\n");
    for file in &closed {
        assert_eq!(read(file), "as it was\n");
    }
}
