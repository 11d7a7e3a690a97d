//! The two processes that change a box's mounts are killed: the supervisor goes on, the folder is
//! there whole or not at all, and asking again works.

use crate::scene::{Scene, at_each_moment};
use crate::tracer::{Victim, strike_while};

/// Enters the box.
const ENTERS: Victim = Victim(1);
/// Looks the folder up.
const LOOKS: Victim = Victim(2);

#[track_caller]
fn killed_while_adding(victim: Victim) {
    let scene = Scene::new();
    let more = scene.more();
    let more = more.to_str().unwrap();
    let command = scene.command(&["mount", &scene.id, more]);
    at_each_moment(|moment| {
        let struck = strike_while(scene.supervisor, &command, victim, moment);
        let is_shown = !scene.shown().is_empty();
        // What its caller heard is what is there.
        assert_eq!(struck.code, Some(i32::from(!is_shown)), "{struck:?}");
        if !is_shown {
            assert!(struck.said.contains("was killed; ask again"), "{struck:?}");
            scene.ground.say(&["mount", &scene.id, more]).ok();
        }
        scene.ground.say(&["unmount", &scene.id, "more"]).ok();
        assert_eq!(scene.shown(), [""; 0]);
        scene.goes_on();
        struck
    });
}

#[test]
fn the_one_that_enters_the_box_killed_while_it_adds_a_folder() {
    killed_while_adding(ENTERS);
}

#[test]
fn the_one_that_looks_the_folder_up_killed() {
    killed_while_adding(LOOKS);
}

#[test]
fn the_one_that_enters_the_box_killed_while_it_takes_a_folder_away() {
    let scene = Scene::new();
    let more = scene.more();
    let more = more.to_str().unwrap();
    let command = scene.command(&["unmount", &scene.id, "more"]);
    at_each_moment(|moment| {
        scene.ground.say(&["mount", &scene.id, more]).ok();
        let struck = strike_while(scene.supervisor, &command, ENTERS, moment);
        if struck.code != Some(0) {
            assert!(struck.said.contains("was killed; ask again"), "{struck:?}");
            scene.ground.say(&["unmount", &scene.id, "more"]).ok();
        }
        assert_eq!(scene.shown(), [""; 0]);
        scene.goes_on();
        struck
    });
}

#[test]
fn the_one_that_enters_the_box_killed_while_it_exchanges_folders() {
    let scene = Scene::new();
    let (old, new) = (scene.more(), scene.ground.world.write("new/file", "new"));
    let old = format!("{}:more", old.display());
    let new = format!("{}:more", new.parent().unwrap().display());
    let command = scene.command(&["mount", "--replace", &scene.id, &new]);
    let file = "/sessions/s/mnt/more/file";
    at_each_moment(|moment| {
        scene
            .ground
            .say(&["mount", "--replace", &scene.id, &old])
            .ok();
        let struck = strike_while(scene.supervisor, &command, ENTERS, moment);
        let seen = scene.ground.exec("s", &["cat", file]);
        match struck.code {
            Some(0) => assert_eq!(seen.out, "new", "{struck:?}"),
            _ => {
                assert!(struck.said.contains("was killed; ask again"), "{struck:?}");
                // The old one, or nothing of either; and what is told is what is there.
                assert!(!seen.out.contains("new"), "{seen:?}");
                let is_gone = struck.said.contains("is gone too");
                assert_eq!(seen.code != 0, is_gone, "{struck:?} {seen:?}");
                assert_eq!(scene.shown().is_empty(), is_gone, "{struck:?}");
            }
        }
        scene
            .ground
            .say(&["mount", "--replace", &scene.id, &new])
            .ok();
        let seen = scene.ground.exec("s", &["cat", file]);
        assert_eq!(seen.ok().out, "new");
        scene.ground.say(&["unmount", &scene.id, "more"]).ok();
        let gone = scene
            .ground
            .exec("s", &["test", "!", "-e", "/sessions/s/mnt/more"]);
        gone.ok();
        scene.goes_on();
        struck
    });
}
