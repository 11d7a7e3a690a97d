//! The command of a caller is killed: the session goes on, and what was asked for is there whole
//! or not at all.

use std::process::Command;

use crate::ground::{Ground, eventually};
use crate::scene::{Scene, at_each_moment, is_cleared};
use crate::tracer::{Moment, Victim, strike_command};

const CALLER: Victim = Victim(0);

#[test]
fn a_caller_killed_while_it_adds_a_folder() {
    let scene = Scene::new();
    let more = scene.more();
    let command = scene.command(&["mount", &scene.id, more.to_str().unwrap()]);
    at_each_moment(|moment| {
        let struck = strike_command(&command, CALLER, moment);
        if !scene.shown().is_empty() {
            let ran = scene.ground.say(&["unmount", &scene.id, "more"]);
            ran.ok();
        }
        assert_eq!(scene.shown(), [""; 0]);
        scene.goes_on();
        struck
    });
}

#[test]
fn a_caller_killed_while_it_takes_a_folder_away() {
    let scene = Scene::new();
    let more = scene.more();
    let command = scene.command(&["unmount", &scene.id, "more"]);
    at_each_moment(|moment| {
        if scene.shown().is_empty() {
            let ran = scene
                .ground
                .say(&["mount", &scene.id, more.to_str().unwrap()]);
            ran.ok();
        }
        let struck = strike_command(&command, CALLER, moment);
        scene.shown();
        struck
    });
    scene.ground.say(&["unmount", &scene.id, "more"]);
    scene.goes_on();
}

#[test]
fn a_caller_killed_while_it_runs_a_program() {
    let scene = Scene::new();
    // It ends by itself only when nobody kills its caller before.
    let script = "echo said; echo said >&2; exec cat";
    let command = scene.command(&["exec", "-i", &scene.id, "--", "sh", "-c", script]);
    at_each_moment(|moment| {
        let struck = strike_command(&command, CALLER, moment);
        scene.goes_on();
        scene.ground.exec(&scene.id, &["true"]).ok();
        struck
    });
}

fn starting(ground: &Ground) -> Command {
    let mut command = ground.bare();
    command.args(["run", "-d", "-q", "--name", "s", "--mount"]);
    command.arg(ground.world.work());
    command.args(["--", "sleep", "1000"]);
    command
}

#[test]
fn a_caller_killed_while_it_starts_a_session() {
    let ground = Ground::new();
    let command = starting(&ground);
    at_each_moment(|moment| {
        let struck = strike_command(&command, CALLER, moment);
        // There is a session that can be ended, or there is none.
        eventually("nobody is left", || {
            ground.say(&["stop", "-t", "0", "s"]);
            ground.processes().is_empty()
        });
        is_cleared(&ground);
        struck
    });
}

/// Nobody knows of it, so nobody would end it.
#[test]
fn a_session_whose_caller_is_gone_before_it_runs_does_not_run() {
    let ground = Ground::new();
    let struck = strike_command(&starting(&ground), CALLER, Moment::Birth);
    assert!(struck.was_killed);
    eventually("nobody is left", || ground.processes().is_empty());
    assert_eq!(ground.state("s"), "ended");
    is_cleared(&ground);
    // The same caller, left alone, gets one that goes on.
    strike_command(&starting(&ground), CALLER, Moment::Never);
    assert_eq!(ground.state("s"), "running");
}
