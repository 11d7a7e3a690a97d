//! `rm`: nothing is lost that somebody may want, unless that is said.

use crate::ground::{Ground, eventually};
use crate::support::exists;

#[test]
fn one_that_runs_is_not_removed_unless_forced() {
    let ground = Ground::new();
    ground.sleeper("s");
    ground
        .say(&["rm", "s"])
        .failed_with(1)
        .complains("it is running")
        .complains("rm -f s");
    assert_eq!(ground.state("s"), "running");
    ground.say(&["rm", "-f", "s"]).ok();
    assert_eq!(ground.state("s"), "none");
    assert!(!exists(&ground.folder("s")) && !exists(&ground.socket("s")));
}

/// Whoever was told that it has ended can go on at once.
#[test]
fn one_that_was_just_stopped_can_be_removed_at_once_and_started_again() {
    let ground = Ground::new();
    for _ in 0..5 {
        ground.sleeper("s");
        ground.say(&["stop", "s"]).ok();
        ground.say(&["rm", "s"]).ok();
        ground.sleeper("s");
        ground.say(&["stop", "s"]).ok();
        ground.sleeper("s");
        ground.exec("s", &["true"]).ok();
        ground.say(&["rm", "-f", "s"]).ok();
    }
}

#[test]
fn several_are_removed_and_one_that_cannot_be_does_not_hold_the_others_up() {
    let ground = Ground::new();
    ground.sleeper("a");
    ground.sleeper("b");
    ground.sleeper("c");
    assert_eq!(ground.say(&["rm", "-f", "a", "b"]).ok().out, "a\nb\n");
    ground.start(&["--name", "d"], &["true"]);
    ground.becomes("d", "ended");
    let ran = ground.say(&["rm", "c", "d"]);
    assert_eq!(ran.code, 1);
    assert_eq!(
        (ground.state("c"), ground.state("d")),
        ("running".into(), "none".into())
    );
}

#[test]
fn work_in_the_outputs_is_kept_until_it_is_given_up() {
    let ground = Ground::new();
    let id = ground.start(&[], &["sh", "-c", "echo work > $HOME/mnt/outputs/result"]);
    ground.becomes(&id, "ended");
    let kept = ground.folder(&id).join("outputs/result");
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "work\n");
    for flags in [&["rm"][..], &["rm", "-f"]] {
        let ran = ground.say(&[flags, &[&id]].concat()).failed_with(1);
        ran.complains("there is work in its outputs")
            .complains("rm --outputs");
        assert!(exists(&kept));
    }
    ground.say(&["rm", "--outputs", &id]).ok();
    assert!(!exists(&ground.folder(&id)));
    assert_eq!(ground.state(&id), "none");
}

/// Files in a home may have any mode; they go nevertheless, and links lead nowhere.
#[test]
fn a_home_with_closed_folders_goes_and_links_are_not_followed() {
    let ground = Ground::new();
    let outside = ground.world.write("precious/file", "precious");
    let script = "mkdir -p $HOME/a/b/c; touch $HOME/a/b/c/f; chmod 000 $HOME/a/b/c $HOME/a/b $HOME/a; ln -s \"$1\" $HOME/link; ln -s / $HOME/root";
    let precious = ground.world.path("precious");
    let id = ground.start(&[], &["sh", "-c", script, "sh", precious.to_str().unwrap()]);
    ground.becomes(&id, "ended");
    ground.say(&["rm", &id]).ok();
    assert!(!exists(&ground.folder(&id)));
    assert!(exists(&outside));
    // The shared folder is the user's.
    assert!(exists(&ground.world.work()));
}

#[test]
fn removing_leaves_the_journal() {
    let ground = Ground::new();
    let id = ground.start(&[], &["true"]);
    ground.becomes(&id, "ended");
    ground.say(&["rm", &id]).ok();
    eventually("history", || ground.say(&["history"]).out.contains(&id));
    ground.say(&["history", &id]).ok().says("exit code 0");
}
