//! The supervisor is killed: its box dies with it, and what it left on the disk is told of and can
//! be cleared up, whatever it was about to write.

use crate::ground::Ground;
use crate::scene::{Scene, at_each_moment, is_cleared};
use crate::tracer::{Moment, Struck, Victim, strike_command, strike_while};

const ITSELF: Victim = Victim(0);

/// Strikes while a command is served; afterwards nothing of the session is there.
#[track_caller]
fn struck_while(words: &[&str], moment: Moment) -> Struck {
    let scene = Scene::new();
    let watch = scene.all();
    let more = scene.more();
    let words = words.iter().map(|word| match *word {
        "MORE" => more.to_str().unwrap(),
        word => word,
    });
    let command = scene.command(&words.collect::<Vec<_>>());
    let struck = strike_while(scene.supervisor, &command, ITSELF, moment);
    if struck.was_killed {
        watch.all_gone();
    } else {
        scene.ground.say(&["stop", "-t", "0", "s"]);
    }
    let ground = scene.ends();
    // The name is free for the next one.
    if struck.was_killed {
        ground.sleeper("s");
        ground.exec("s", &["true"]).ok();
        ground.say(&["rm", "-f", "s"]).ok();
    }
    struck
}

#[test]
fn a_supervisor_killed_while_it_adds_a_folder() {
    at_each_moment(|moment| {
        let struck = struck_while(&["mount", "s", "MORE"], moment);
        assert_eq!(
            struck.code == Some(0),
            !struck.was_killed || struck.said.is_empty()
        );
        struck
    });
}

#[test]
fn a_supervisor_killed_while_it_runs_a_program() {
    at_each_moment(|moment| {
        struck_while(
            &["exec", "s", "--", "sh", "-c", "echo hi; sleep 0.05"],
            moment,
        )
    });
}

#[test]
fn a_supervisor_killed_while_it_ends_a_session() {
    at_each_moment(|moment| struck_while(&["stop", "s"], moment));
}

#[test]
fn a_supervisor_killed_while_it_starts_a_session() {
    let ground = Ground::new();
    let mut command = ground.bare();
    command.args(["run", "-d", "-q", "--name", "s", "--mount"]);
    command
        .arg(ground.world.work())
        .args(["--", "sleep", "1000"]);
    at_each_moment(|moment| {
        let struck = strike_command(&command, Victim(1), moment);
        if struck.was_killed {
            assert_ne!(struck.code, None, "the caller returns");
        } else {
            ground.say(&["stop", "-t", "0", "s"]).ok();
        }
        crate::ground::eventually("nobody is left", || ground.processes().is_empty());
        is_cleared(&ground);
        struck
    });
}
