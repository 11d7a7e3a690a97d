//! The command's first moments: its first process may still be on its way to having nothing.

use crate::launchers::{Answers, Launcher, probe};
use crate::support::{Ran, World};

/// How often a command is started that is in a hurry.
const STARTS: usize = 25;

/// What the probe answered in each start.
fn answers(launcher: Launcher, world: &World, script: &str, name: &str) -> Vec<String> {
    probe(world);
    let answer = |_| {
        let ran = Ran::of(&mut launcher.by_bash(world, script));
        Answers::of(&ran).get(name).to_owned()
    };
    (0..STARTS).map(answer).collect()
}

/// Whoever may trace the first process does as that one may: it has to be behind the caller's
/// filter before the command runs, or out of its reach.
#[test]
fn the_first_process_is_never_found_without_the_callers_filter() {
    let world = World::new();
    let script = r#"printf '\x06\0\0\0\0\0\xff\x7f' > allow; exec 9< allow
        exec $BWRAP --ro-bind / / --unshare-user --unshare-pid --proc /proc @ "$TOP/probe" seize"#;
    let filtered = answers(
        Launcher::Ours,
        &world,
        &script.replace('@', "--seccomp 9"),
        "seized",
    );
    let bare = filtered.iter().filter(|answer| *answer == "bare").count();
    assert_eq!(bare, 0, "of {STARTS}");
    // The control: without a filter it is found so, wherever tracing one's parent is allowed.
    let open = answers(
        Launcher::Ours,
        &world,
        &script.replace('@', "9<&-"),
        "seized",
    );
    let known = ["bare", "EPERM"];
    assert!(
        open.iter().all(|answer| known.contains(&answer.as_str())),
        "{open:?}"
    );
}

/// A folder that was given by descriptor, to be shown read-only or elsewhere, is closed before
/// the command could find it with the first process.
#[test]
fn spent_descriptors_are_not_found_with_the_first_process() {
    let world = World::new();
    world.write("given/secret", "s3cret\n");
    let base = r#"exec $BWRAP --ro-bind /usr /usr --ro-bind probe /probe --unshare-user --unshare-pid --proc /proc"#;
    for (first, options) in [
        ("exec 9< given", "--ro-bind-fd 9 /shown --tmpfs /shown"),
        ("exec 9< given", "--block-fd 9"),
        (
            "exec 9< given 10< given",
            "--bind-fd 9 /shown --block-fd 10 --tmpfs /shown",
        ),
    ] {
        let script = format!("{first}\n{base} {options} /probe grab secret");
        let grabbed = answers(Launcher::Ours, &world, &script, "grabbed");
        assert!(!grabbed.contains(&"0".to_owned()), "{options}: {grabbed:?}");
    }
    // The control: what is to be kept open is kept open.
    let script = format!("exec 9< given\n{base} --sync-fd 9 /probe grab secret");
    let grabbed = answers(Launcher::Distribution, &world, &script, "grabbed");
    assert!(grabbed.contains(&"0".to_owned()), "{grabbed:?}");
}

/// A number that is not open stands for nothing, and for nothing of the host's.
#[test]
fn numbers_that_are_not_open_lead_nowhere() {
    let world = World::new();
    world.write("secret", "s3cret\n");
    let base = r#"exec $BWRAP --ro-bind /usr /usr --ro-bind probe /probe --unshare-user --unshare-pid --proc /proc"#;
    let secret = world.path("secret");
    let look = format!("/probe grab {}", secret.display());
    for options in [
        "--sync-fd 9",
        "--block-fd 9",
        "--sync-fd 9 --block-fd 10",
        "--sync-fd 9 --lock-file /usr/bin/sh",
    ] {
        let script = format!("{base} {options} {look}");
        let grabbed = answers(Launcher::Ours, &world, &script, "grabbed");
        assert!(!grabbed.contains(&"0".to_owned()), "{options}: {grabbed:?}");
    }
    // The control: the host's root, kept open by the caller's own wish.
    let script = format!("exec 9< /\n{base} --sync-fd 9 {look}");
    let grabbed = answers(Launcher::Distribution, &world, &script, "grabbed");
    assert!(grabbed.contains(&"0".to_owned()), "{grabbed:?}");
}
