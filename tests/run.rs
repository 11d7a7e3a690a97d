//! The main job: a program in a box over a folder.

mod support;

use std::os::unix::fs::MetadataExt;
use support::World;

#[test]
fn a_signal_without_a_name_ends_a_program_like_any_other() {
    let world = World::new();
    world.sh("kill -64 $$").failed_with(192);
    // Somebody else's end by such a signal does not concern the box.
    let script = "(kill -40 $BASHPID) & wait; echo still here";
    world
        .run(&[], &["bash", "-c", script])
        .ok()
        .says("still here");
}

#[test]
fn the_program_sees_its_session_and_nothing_else() {
    let world = World::new();
    let ran = world.sh("pwd; id -u; ls / ; ls /sessions/*/mnt").ok();
    let uid = if support::is_root() {
        "1000".to_owned()
    } else {
        nix::unistd::getuid().to_string()
    };
    ran.says("/mnt/w\n")
        .says(&format!("\n{uid}\n"))
        .says("outputs\nw\n")
        .says_not("home\n");
}

#[test]
fn files_made_inside_belong_to_the_caller_outside() {
    let world = World::new();
    world
        .sh("echo hello > x && mkdir d && echo y > d/y && cp -a d e")
        .ok();
    let made = std::fs::metadata(world.work().join("x")).unwrap();
    assert_eq!(made.uid(), nix::unistd::getuid().as_raw());
    assert_eq!(
        std::fs::read_to_string(world.work().join("e/y")).unwrap(),
        "y\n"
    );
}

#[test]
fn exit_codes_are_the_programs_own() {
    let world = World::new();
    world.sh("exit 7").failed_with(7);
    world.sh("kill -TERM $$").failed_with(143);
    world
        .run(&[], &["no-such-program"])
        .failed_with(127)
        .complains("cannot run no-such-program");
    world.run(&[], &["/etc/passwd"]).failed_with(126);
    world
        .run(&["--timeout", "300ms"], &["sleep", "60"])
        .failed_with(124)
        .complains("time limit");
}

#[test]
fn a_named_session_keeps_its_home_and_another_does_not() {
    let world = World::new();
    world
        .run(&["--name", "a"], &["sh", "-c", "echo kept > ~/note"])
        .ok();
    world
        .run(&["--name", "a"], &["cat", "/sessions/a/note"])
        .ok()
        .says("kept");
    world
        .run(&["--name", "b"], &["sh", "-c", "cat ~/note"])
        .failed_with(1);
    world.sh("echo x > ~/note").ok();
    let left: Vec<_> = std::fs::read_dir(world.path("state/cowork-linux/sessions"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
}
