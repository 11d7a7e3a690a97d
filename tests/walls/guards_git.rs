//! The workspace as a way out: what git on the host would run for the agent.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::attacks::{ATTACKS, Attack, EVIL, FROM_THE_SESSION};
use crate::outside::tree;
use crate::support::{Ran, World, exists};

fn host(dir: &Path, world: &World, script: &str) -> Ran {
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .current_dir(dir)
        .stdin(Stdio::null())
        .env_clear();
    command
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", world.path("home"))
        .env("TERM", "dumb");
    // What git would wait for, were it not for the attack.
    command
        .env("EDITOR", "true")
        .env("PAGER", "cat")
        .env("GIT_TERMINAL_PROMPT", "0");
    for role in ["AUTHOR", "COMMITTER"] {
        command
            .env(format!("GIT_{role}_NAME"), "me")
            .env(format!("GIT_{role}_EMAIL"), "me@example.invalid");
    }
    Ran::of(&mut command)
}

/// A world with one repository for each attack, and what to do in them.
struct Field {
    world: World,
    attacks: &'static [Attack],
}

impl Field {
    fn new(attacks: &'static [Attack]) -> Self {
        let world = World::new();
        for Attack(name, ..) in attacks {
            let mark = world.path("marks").join(name);
            let program = world.write(
                &format!("run/{name}"),
                &format!("#!/bin/sh\ntouch {}\n", mark.display()),
            );
            std::fs::set_permissions(program, std::os::unix::fs::PermissionsExt::from_mode(0o755))
                .unwrap();
        }
        std::fs::create_dir(world.path("marks")).unwrap();
        let make = "git -c init.defaultBranch=main init -q all && cd all && echo x > f && git add f && git commit -qm one";
        host(&world.work(), &world, make).ok();
        let copies: Vec<_> = attacks
            .iter()
            .map(|Attack(name, ..)| format!("cp -a all {name}"))
            .collect();
        host(
            &world.work(),
            &world,
            &format!("{}; rm -rf all", copies.join("; ")),
        )
        .ok();
        Self { world, attacks }
    }

    fn program(&self, name: &str) -> std::path::PathBuf {
        self.world.path("run").join(name)
    }

    fn outputs(&self) -> String {
        self.world
            .path("state/cowork-linux/sessions/agent/outputs")
            .display()
            .to_string()
    }

    /// Everything the agent tries, one repository after the other.
    fn script(&self) -> String {
        let mut all = String::new();
        for Attack(name, script, _) in self.attacks {
            let home = self
                .world
                .path("state/cowork-linux/sessions/agent/inner/home");
            let whole = format!("{EVIL}{script}");
            let whole = whole.replace("RUN", self.program(name).to_str().unwrap());
            let whole = whole
                .replace("HOME_OUT", &home.display().to_string())
                .replace("OUT/", &format!("{}/", self.outputs()));
            all.push_str(&format!(
                "(NAME={name}; cd {name}; {whole}) >/dev/null 2>&1\n"
            ));
        }
        all + ":"
    }

    /// The owner's day after; the names of the attacks that got something run.
    fn marks(&self) -> Vec<&'static str> {
        let mut reached = Vec::new();
        for Attack(name, _, later) in self.attacks {
            host(
                &self.world.work().join(name),
                &self.world,
                &format!("git status; {later}; git status"),
            );
            if exists(&self.world.path("marks").join(name)) {
                reached.push(*name);
            }
        }
        reached
    }
}

/// PE-01, PE-02, PE-04, PE-51, PE-53, FS-57, FS-59, FS-60
#[test]
fn git_on_the_host_runs_nothing_of_the_agents() {
    nothing_is_run(ATTACKS);
}

/// PE-04, FS-67
#[test]
fn git_on_the_host_runs_nothing_from_the_sessions_own_folders() {
    nothing_is_run(FROM_THE_SESSION);
}

fn nothing_is_run(attacks: &'static [Attack]) {
    let control = Field::new(attacks);
    let outputs = control.outputs();
    let home = control
        .world
        .path("state/cowork-linux/sessions/agent/inner/home");
    std::fs::create_dir_all(&outputs).unwrap();
    std::fs::create_dir_all(&home).unwrap();
    let mut outside = Command::new("sh");
    outside
        .args(["-c", &control.script()])
        .current_dir(control.world.work())
        .stdin(Stdio::null());
    outside.env("HOME", &home).env("OUT_INSIDE", &outputs);
    Ran::of(&mut outside).ok();
    let reached = control.marks();
    let all: Vec<_> = attacks.iter().map(|Attack(name, ..)| *name).collect();
    let vain: Vec<_> = all.iter().filter(|name| !reached.contains(name)).collect();
    assert!(
        vain.is_empty(),
        "these attacks do nothing even without a box: {vain:?}"
    );

    let field = Field::new(attacks);
    let script = format!("OUT_INSIDE=/sessions/agent/mnt/outputs; {}", field.script());
    field
        .world
        .run(&["--name", "agent"], &["sh", "-c", &script])
        .ok();
    let reached = field.marks();
    assert!(
        reached.is_empty(),
        "got something run on the host: {reached:?}"
    );
}

/// PE-*: none of that at the price of git itself.
#[test]
fn git_works_in_a_guarded_folder() {
    let world = World::new();
    host(
        &world.work(),
        &world,
        "git init -q mine && cd mine && echo 1 > f && git add f && git commit -qm one",
    )
    .ok();
    let script = "set -e; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@x
        cd mine; git config user.name agent; git config user.email a@example.invalid
        git checkout -q -b topic; echo 2 >> f; git commit -qam two; git checkout -q -; echo 3 > g; git add g; git commit -qm three
        git rebase -q topic; git merge -q topic; git stash list; git tag v1; git branch -m topic other; git gc -q
        git worktree add -q ../tree -b tree; echo 4 > ../tree/h; git -C ../tree add h; git -C ../tree commit -qm four
        git worktree remove ../tree; git branch -D tree >/dev/null
        git remote add origin ../copy; git config branch.other.description text
        cd ..; git clone -q mine copy; git -C mine fetch -q origin; git clone -q --bare mine bare.git; git -C copy pull -q
        git init -q fresh; cd fresh; echo 5 > f; git add .; git commit -qm five; git status --short; cd ..
        git -C mine submodule --quiet init; git -C copy reset -q --hard HEAD~1; git -C copy clean -fdq
        rm -rf copy bare.git fresh; git -C mine fsck --no-progress; echo well";
    world.sh(script).ok().says("well");
    let log = host(
        &world.work().join("mine"),
        &world,
        "git log --format=%s; git config user.name; git status --short",
    )
    .ok();
    assert_eq!(log.out, "three\ntwo\none\nagent\n");
    assert!(!exists(&world.work().join("copy")) && !exists(&world.work().join("fresh")));
}

/// LN-03
#[test]
fn a_look_with_git_changes_nothing_but_gits_own_notes() {
    let world = World::new();
    host(
        &world.work(),
        &world,
        "git init -q . && echo 1 > f && git add f && git commit -qm one && git status",
    )
    .ok();
    let names = |world: &World| tree(&world.work()).into_keys().collect::<Vec<_>>();
    let before = names(&world);
    world
        .sh("git status; git log --oneline; git diff; git branch; git config -l")
        .ok();
    assert_eq!(names(&world), before);
}
