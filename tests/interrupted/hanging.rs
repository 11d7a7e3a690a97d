//! A folder that never answers, as on a network that is gone: whoever asked for it hears so after a
//! while, and nobody else notices anything. Its look-up is stopped in the middle.

use std::process::Child;

use crate::scene::Scene;
use crate::tracer::{Victim, hold_while};
use crate::watch::Watch;

/// The process that looks the folder up.
const LOOKS: Victim = Victim(2);

/// Does something while the look-up of a folder hangs, whose caller waits.
fn while_it_hangs<T: Send>(scene: &Scene, work: impl FnOnce(Watch, Child) -> T + Send) -> T {
    let more = scene.more();
    let mut asking = scene.command(&["mount", &scene.id, more.to_str().unwrap()]);
    hold_while(
        scene.supervisor,
        &mut asking,
        LOOKS,
        libc::SYS_openat2,
        |held, asking| work(Watch::over(&[held]), asking),
    )
}

#[test]
fn others_are_served_while_a_folder_does_not_answer_and_it_is_given_up() {
    let scene = Scene::new();
    let other = scene.ground.world.write("other/file", "other");
    let other = other.parent().unwrap().to_str().unwrap().to_owned();
    while_it_hangs(&scene, |held, asking| {
        let ground = &scene.ground;
        assert_eq!(held.len(), 1);
        // The same folder is on its way already.
        let again = scene.more();
        let again = ground.say(&["mount", "s", again.to_str().unwrap()]);
        again.failed_with(1).complains("is being changed already");
        ground.say(&["ls"]).ok().says("running");
        assert_eq!(scene.shown(), [""; 0]);
        ground.exec("s", &["echo", "served"]).ok().says("served");
        ground.say(&["mount", "s", &other]).ok();
        let place = "/sessions/s/mnt/other";
        ground
            .exec("s", &["cat", &format!("{place}/file")])
            .ok()
            .says("other");
        ground.say(&["unmount", "s", "other"]).ok();
        let ended = asking.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(1));
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(said.contains("the folder does not answer"), "{said}");
        held.all_gone();
    });
    scene.goes_on();
    let more = scene.more();
    let more = more.to_str().unwrap();
    scene.ground.say(&["mount", "s", more]).ok();
    assert_eq!(scene.shown().len(), 1);
}

#[test]
fn a_session_ends_though_a_folder_does_not_answer() {
    let scene = Scene::new();
    while_it_hangs(&scene, |held, mut asking| {
        scene.ground.say(&["stop", "s"]).ok();
        held.all_gone();
        assert_eq!(asking.wait().unwrap().code(), Some(1));
        scene.ground.sleeper("s");
        scene.ground.exec("s", &["true"]).ok();
        scene.ground.say(&["stop", "s"]).ok();
    });
    scene.ends();
}

#[test]
fn a_killed_supervisor_takes_along_who_waits_for_a_folder() {
    let scene = Scene::new();
    let watch = scene.all();
    while_it_hangs(&scene, |held, mut asking| {
        crate::watch::send(scene.supervisor, nix::sys::signal::Signal::SIGKILL);
        watch.all_gone();
        held.all_gone();
        assert_eq!(asking.wait().unwrap().code(), Some(1));
    });
    scene.ends();
}
