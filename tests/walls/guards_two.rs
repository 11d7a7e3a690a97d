//! Guards against tricks that need two steps, two mounts or two boxes.

use std::process::Command;

use crate::support::{Ran, World, exists};

/// What git on the host runs when the user merely looks at the project.
fn look(world: &World, folder: &str) {
    let mut git = Command::new("git");
    git.args(["-C", folder, "status", "-s"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", world.path("home"))
        .env("GIT_CEILING_DIRECTORIES", world.path(""))
        .current_dir(world.work());
    let _ = Ran::of(&mut git);
}

fn repository(world: &World) {
    let script =
        "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m 1";
    world.control(script).ok();
}

/// Makes a repository at `$T` that runs a program, as far as it is let.
fn trap(world: &World) -> String {
    let mark = world.path("mark");
    format!(
        "mkdir -p $T && cd $T && git init -q --bare . && git config core.bare false; \
         git config core.fsmonitor 'touch {}; false'; cd ~-; ",
        mark.display()
    )
}

/// PE-04: a link or pointer in the project leads git to a folder of the session.
#[test]
fn git_on_the_host_is_not_led_into_the_sessions_folders() {
    let world = World::new();
    let state = world.path("state/cowork-linux/sessions/agent");
    for (inside, outside) in [
        ("/sessions/agent/mnt/outputs", state.join("outputs")),
        ("/sessions/agent", state.join("inner/home")),
    ] {
        let control = World::new();
        repository(&control);
        let there = control.path("there");
        let attack = |real: &str, named: &str| {
            format!(
                "T={real}/m/sub; {}mkdir -p sub plain; echo 'gitdir: ../.git/modules/sub' > sub/.git; \
                 ln -s {named}/m .git/modules; ln -s {named}/m/sub link; exit 0",
                trap(&control)
            )
        };
        let there = there.to_str().unwrap();
        Ran::of(
            Command::new("bash")
                .args(["-c", &attack(there, there)])
                .current_dir(control.work()),
        )
        .ok();
        look(&control, "sub");
        assert!(exists(&control.path("mark")), "the control does nothing");

        let _ = std::fs::remove_dir_all(world.work());
        std::fs::create_dir(world.work()).unwrap();
        repository(&world);
        let script = attack(inside, outside.to_str().unwrap()).replace(
            &control.path("mark").display().to_string(),
            world.path("mark").to_str().unwrap(),
        );
        world
            .run(&["--name", "agent"], &["bash", "-c", &script])
            .ok();
        for folder in [".", "sub", "link"] {
            look(&world, folder);
        }
        assert!(!exists(&world.path("mark")), "by way of {inside}");
    }
}

/// FS-59: folders that overlap on the host would have two names for one file.
#[test]
fn folders_that_overlap_are_not_shared_together() {
    let world = World::new();
    std::fs::create_dir(world.work().join("docs")).unwrap();
    let docs = world.work().join("docs");
    let both = |mode: &str| {
        let mut command = world.cowork();
        command
            .args(["run", "-q", "--mount"])
            .arg(format!("{}{mode}", world.work().display()));
        command
            .arg("--mount")
            .arg(format!("{}{mode}", docs.display()));
        Ran::of(command.args(["--", "true"]))
    };
    both("").failed_with(125).complains("go past the guard");
    both(":ro").ok();
}

/// FS-59: what was judged at one place may not be moved to another.
#[test]
fn a_submodules_repository_stays_where_it_is() {
    let world = World::new();
    repository(&world);
    let script = "mkdir -p .git/modules/a/sub && cd .git/modules/a/sub && git init -q --bare . \
         && cd ~- && mv .git/modules/a/sub .git/modules/sub";
    let ran = world.run(&[], &["bash", "-c", script]);
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(!exists(&world.work().join(".git/modules/sub")));
}

/// PE-04: what pid 1 wrote cannot be cut to something else.
#[test]
fn a_pointer_cannot_be_shortened() {
    let world = World::new();
    repository(&world);
    let script = "mkdir sub; : > sub/.git; python3 -c 'import os; os.truncate(\"sub/.git\", 10)'";
    let ran = world.run(&[], &["sh", "-c", script]);
    assert_ne!(ran.code, 0, "{ran:?}");
    let content = std::fs::read_to_string(world.work().join("sub/.git")).unwrap();
    assert_eq!(content, "gitdir: ../.git/modules/sub\n");
}

/// FS-60: names that a forgiving filesystem takes for a guarded one.
#[test]
fn ligatures_and_the_like_do_not_hide_a_name() {
    let world = World::new();
    for name in [".gitcon\u{fb01}g", ".bash_pro\u{fb01}le", ".M\u{212a}.json"] {
        let _ = world.sh(&format!("echo x > '{name}'"));
    }
    assert!(!exists(&world.work().join(".gitcon\u{fb01}g")));
    assert!(!exists(&world.work().join(".bash_pro\u{fb01}le")));
}
