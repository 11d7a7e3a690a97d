//! git over a folder that is shared with the host.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::support::{Ran, World};

const IDENTITY: &str = "[user]\n\tname = A Person\n\temail = person@example.invalid\n";

/// A repository with one commit, made outside.
fn repository(world: &World, name: &str) {
    world.write("home/.gitconfig", IDENTITY);
    world
        .control(&format!(
            "set -e; git init -q -b main {name}; cd {name}; echo one > one
             git add one; git commit -qm one"
        ))
        .ok();
}

/// What git says about it outside.
fn outside(world: &World, folder: &str, arguments: &[&str]) -> String {
    let mut git = Command::new("git");
    git.arg("-C").arg(world.work().join(folder)).args(arguments);
    Ran::of(git.env("HOME", world.path("home"))).ok().out
}

#[test]
fn work_on_branches_is_there_for_git_outside() {
    let world = World::new();
    repository(&world, "r");
    world
        .script(
            &[],
            "cd r
             git checkout -q -b topic
             echo two > two; git add two; git commit -qm two
             git checkout -q main
             echo three > three; git add three; git commit -qm three
             git checkout -q topic
             git rebase -q main
             git stash list; git gc -q; git fsck --strict
             git tag -a v1 -m v1; git mv two zwei; git commit -qam renamed
             git status --porcelain",
        )
        .ok();
    let log = outside(&world, "r", &["log", "--format=%s %an"]);
    let by = "A Person";
    assert_eq!(
        log,
        format!("renamed {by}\ntwo {by}\nthree {by}\none {by}\n")
    );
    assert_eq!(outside(&world, "r", &["status", "--porcelain"]), "");
    let made = std::fs::metadata(world.work().join("r/zwei")).unwrap();
    assert_eq!(made.uid(), nix::unistd::getuid().as_raw());
}

#[test]
fn clones_work_within_the_folder_and_into_the_home() {
    let world = World::new();
    repository(&world, "r");
    world
        .script(
            &[],
            "git clone -q r copy
             git clone -q r ~/copy
             git clone -q --bare file://$PWD/r ~/bare.git
             cd ~/copy; echo two > two; git add two; git commit -qm two
             git push -q ~/bare.git HEAD:main
             cd /workspace/copy; git pull -q ~/bare.git main",
        )
        .ok();
    assert_eq!(
        outside(&world, "copy", &["log", "--format=%s"]),
        "two\none\n"
    );
}

#[test]
fn a_worktree_made_inside_can_be_worked_in() {
    let world = World::new();
    repository(&world, "r");
    world
        .script(
            &[],
            "cd r; git worktree add -q ../tree -b side
             cd ../tree; echo side > side; git add side; git commit -qm side
             cd ../r; git worktree list; git worktree remove ../tree",
        )
        .ok()
        .says("[side]");
    assert_eq!(
        outside(&world, "r", &["log", "--format=%s", "side"]),
        "side\none\n"
    );
}

#[test]
fn a_worktree_of_a_repository_elsewhere_brings_it_along() {
    let world = World::new();
    world.write("home/.gitconfig", IDENTITY);
    world
        .control(
            "set -e; git init -q -b main ../elsewhere; cd ../elsewhere; echo one > one
             git add one; git commit -qm one; rmdir ../w; git worktree add -q ../w -b side",
        )
        .ok();
    let policy = world.write("unguarded.toml", "[guard]\nenabled = false\n");
    let commit = |name: &str| format!("echo x > {name}; git add {name}; git commit -qm {name}");
    world.script(&[], &commit("two")).ok();
    let unguarded = ["--profile", policy.to_str().unwrap()];
    world.script(&unguarded, &commit("three")).ok();
    let log = outside(&world, "../elsewhere", &["log", "--format=%s", "side"]);
    assert_eq!(log, "three\ntwo\none\n");
    // What is read-only is so as a whole.
    let tag = "git log --format=%s; git tag mine";
    let ran = world.script(&["--read-only-workspace"], tag);
    ran.says("three\n").failed_with(128);
    assert_eq!(outside(&world, "../elsewhere", &["tag"]), "");
}
