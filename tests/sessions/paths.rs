//! `path`: what the host and the box call the same file, while a session runs and afterwards.

use std::path::Path;

use crate::ground::Ground;
use crate::support::Ran;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_path_is_found_on_the_other_side_and_leads_to_the_same_file() {
    let ground = Ground::new();
    let work = ground.world.work().to_owned();
    let later = ground.world.path("later");
    ground.world.write("later/deep/file", "host");
    ground.start(&["--name", "one"], &["sleep", "1000"]);
    ground.say(&["mount", "one", text(&later)]).ok();
    let asked = |way: &str, path: &str| ground.say(&["path", way, "one", path]);
    let file = later.join("deep/file");
    let inside = asked("to-guest", text(&file)).ok().out;
    assert_eq!(inside, "/sessions/one/mnt/later/deep/file\n");
    // It is what it says: a program in the box reads the file by that name.
    let read = ground.exec("one", &["cat", inside.trim_end()]).ok();
    assert_eq!(read.out, "host");
    let back = asked("to-host", inside.trim_end()).ok().out;
    assert_eq!(back, format!("{}\n", file.display()));
    let home = ground.folder("one").join("inner/home/.profile");
    let said = asked("to-host", "/sessions/one/.profile").ok().out;
    assert_eq!(said, format!("{}\n", home.display()));
    let outputs = ground.folder("one").join("outputs/x");
    let said = asked("to-host", "/sessions/one/mnt/outputs/x").ok().out;
    assert_eq!(said, format!("{}\n", outputs.display()));
    let place = format!(
        "/sessions/one/mnt/{}",
        work.file_name().unwrap().to_str().unwrap()
    );
    assert_eq!(
        asked("to-guest", text(&work)).ok().out,
        format!("{place}\n")
    );

    let json = ground.json(&["path", "to-guest", "--json", "one", text(&file)]);
    assert_eq!(json["guest"], "/sessions/one/mnt/later/deep/file");
    assert_eq!(json["host"], text(&file));
    assert_eq!(json["mount"]["source"], text(&later));
    assert_eq!(json["state"], "running");

    // After its end it is known as it was then, what came later included.
    ground.say(&["kill", "one"]).ok();
    ground.becomes("one", "ended");
    assert_eq!(asked("to-guest", text(&file)).ok().out, inside);
    assert_eq!(asked("to-host", inside.trim_end()).ok().out, back);
}

#[test]
fn what_is_not_shared_is_said_with_what_is() {
    let ground = Ground::new();
    let work = ground.world.work().to_owned();
    ground.start(&["--name", "one"], &["sleep", "1000"]);
    let refused =
        |way: &str, path: &str| -> Ran { ground.say(&["path", way, "one", path]).failed_with(1) };
    refused("to-guest", "/etc/passwd")
        .complains("nothing that is shared with one")
        .complains(text(&work));
    // A folder whose name only begins alike.
    refused("to-guest", &format!("{}2/x", work.display())).complains("nothing that is shared");
    refused("to-host", "/etc/passwd").complains("/sessions/one");
    refused("to-host", "/sessions/one/../../etc/passwd").complains("..");
    refused("to-host", "mnt").complains("does not begin with a /");
    // What is not a mount lies in a folder of the box's own.
    ground.exec("one", &["sh", "-c", "cd && test -e mnt"]).ok();
    refused("to-host", "/sessions/one/mnt/none").complains("nothing that is shared");
    // A link to a shared folder is not that folder.
    let link = ground.world.path("link");
    std::os::unix::fs::symlink(&work, &link).unwrap();
    refused("to-guest", text(&link.join("x"))).complains("links are not followed");
    ground
        .say(&["path", "to-host", "none", "/x"])
        .failed_with(1)
        .complains("none");
    // What was taken away is not there any more.
    let later = ground.world.path("later");
    std::fs::create_dir(&later).unwrap();
    ground.say(&["mount", "one", text(&later)]).ok();
    ground.say(&["path", "to-guest", "one", text(&later)]).ok();
    ground.say(&["unmount", "one", "later"]).ok();
    refused("to-guest", text(&later)).complains("nothing that is shared");
}

#[test]
fn outputs_that_a_session_does_not_have_are_nowhere() {
    let ground = Ground::new();
    let flags = ["--name", "one", "--profile", "cowork"];
    ground.start(&flags, &["sleep", "1000"]);
    let asked = |path: &str| ground.say(&["path", "to-host", "one", path]);
    asked("/sessions/one/mnt/outputs/x")
        .failed_with(1)
        .complains("nothing that is shared");
    asked("/sessions/one/x").ok();
}

#[test]
fn sessions_that_are_kept_for_an_app_are_found_too() {
    let ground = Ground::new();
    let kept = |base: &str| {
        ground
            .world
            .path(&format!("{base}/cowork-linux/desktop/0123"))
    };
    let mut command = ground.cowork();
    command.args([
        "run", "-d", "-q", "--name", "apps-own", "--", "sleep", "1000",
    ]);
    command
        .env("XDG_STATE_HOME", kept("state"))
        .env("XDG_RUNTIME_DIR", kept("run"));
    for base in ["state", "run"] {
        std::fs::create_dir_all(kept(base)).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(kept(base), private).unwrap();
    }
    Ran::of(&mut command).ok();
    let asked = |id: &str| ground.say(&["path", "to-host", id, "/sessions/apps-own/x"]);
    let home = kept("state").join("cowork-linux/sessions/apps-own/inner/home/x");
    assert_eq!(asked("apps-own").ok().out, format!("{}\n", home.display()));
    asked("others-own").failed_with(1).complains("others-own");
    let mut kill = ground.cowork();
    kill.args(["kill", "apps-own"]);
    kill.env("XDG_STATE_HOME", kept("state"))
        .env("XDG_RUNTIME_DIR", kept("run"));
    Ran::of(&mut kill).ok();
}
