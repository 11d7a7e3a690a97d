//! Folders that come to a session while its programs run (M17 to M22).

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use serde_json::{Value, json};

use crate::ground::{Ground, from_root, mount, with};

fn live(process: &str, folder: &Path, name: &str, mode: &str) -> Value {
    json!({"processId": process, "subpath": from_root(folder), "mountName": name, "mode": mode})
}

#[test]
fn m17_m18_a_folder_in_a_running_program() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let (w, extra, fixed) = (
        ground.folder("w"),
        ground.folder("extra"),
        ground.folder("fixed"),
    );
    let mounts = json!({"additionalMounts": {"w": mount(&w, "rw")}});
    let script = "while read line; do eval \"$line\" 2>&1; echo .; done";
    app.line.spawn(with(ground.sh("p", script), mounts.clone()));
    let guest = ground.inside("mnt/extra");
    let result = app.line.ok("mountPath", live("p", &extra, "extra", "rw"));
    assert_eq!(result["guestPath"], guest);
    app.line.ok("mountPath", live("p", &fixed, "fixed", "ro"));
    let script = "cat mnt/extra/file; echo live > mnt/extra/made; touch mnt/fixed/made\n";
    app.line
        .ok("writeStdin", json!({"id": "p", "data": script}));
    app.events.says("p", ".\n");
    let said = app.events.of("p").out;
    assert!(said.starts_with("of the user\n"), "{said}");
    assert!(said.contains("Read-only file system"), "{said}");
    assert_eq!(
        std::fs::read_to_string(extra.join("made")).unwrap(),
        "live\n"
    );
    assert!(!fixed.join("made").exists());
    // Also for the next program, which names all of them as the app does, or only those it began with.
    let mut all = mounts.clone();
    all["additionalMounts"]["extra"] = mount(&extra, "rw");
    assert_eq!(
        app.run(with(ground.sh("q", "cat mnt/extra/made"), all))
            .ok(),
        "live\n"
    );
}

#[test]
fn m19_m20_requests_that_lead_elsewhere_or_nowhere() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let folder = ground.folder("w");
    let name = ground.name.clone();
    app.line
        .spawn(ground.sh("p", "read word; ls -A mnt; ls /sessions"));
    let path = from_root(&folder);
    for (subpath, mount_name) in [
        ("../../etc", "etc"),
        ("etc", "etc"),
        ("", "root"),
        ("/", "root"),
        ("proc", "proc"),
        (&format!("{path}/../../../../etc"), "etc"),
        (&format!("{path}/.."), "up"),
        (&path, "../x"),
        (&path, ".."),
        (&path, "/abs"),
        (&path, ""),
        (&path, "a/../../x"),
        (&path, "a\0b"),
        ("/no/such/place", "gone"),
    ] {
        let params =
            json!({"processId": "p", "subpath": subpath, "mountName": mount_name, "mode": "rw"});
        app.line.refused("mountPath", params);
    }
    let why = app
        .line
        .refused("mountPath", live("nobody", &folder, "x", "ro"));
    assert!(why.contains("nobody"), "{why}");
    app.line
        .ok("mountPath", live(&name, &folder, "by-session", "ro"));
    app.line.ok("writeStdin", json!({"id": "p", "data": "\n"}));
    assert_eq!(
        app.events.finished("p").ok(),
        format!("by-session\n{name}\n")
    );
}

#[test]
fn m21_the_same_name_again_is_another_folder_or_another_mode() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let (one, two) = (ground.folder("one"), ground.folder("two"));
    std::fs::write(two.join("file"), "of the second\n").unwrap();
    app.line
        .spawn(ground.sh("p", "while read line; do eval \"$line\" 2>&1; echo .; done"));
    let mut says = |script: &str, change: Option<Value>| {
        if let Some(change) = change {
            app.line.ok("mountPath", change);
        }
        let before = app.events.of("p").out.len();
        app.line.ok(
            "writeStdin",
            json!({"id": "p", "data": format!("{script}\n")}),
        );
        app.events.until("it is done", |heard| {
            heard.of("p").out[before..].ends_with(".\n")
        });
        app.events.of("p").out[before..].to_owned()
    };
    let write = "cat mnt/x/file; touch mnt/x/new && echo written";
    let said = says(write, Some(live("p", &one, "x", "ro")));
    assert!(
        said.contains("of the user") && said.contains("Read-only"),
        "{said}"
    );
    let said = says(write, Some(live("p", &one, "x", "rw")));
    assert!(
        said.contains("of the user") && said.contains("written"),
        "{said}"
    );
    let said = says(write, Some(live("p", &one, "x", "ro")));
    assert!(said.contains("Read-only"), "{said}");
    let said = says(write, Some(live("p", &two, "x", "rw")));
    assert!(
        said.contains("of the second") && said.contains("written"),
        "{said}"
    );
    // The next program's list may say otherwise, and it counts.
    let mounts = json!({"additionalMounts": {"x": mount(&one, "ro")}});
    let done = app.run(with(
        ground.sh("q", "cat mnt/x/file; touch mnt/x/newer || echo no"),
        mounts,
    ));
    assert_eq!(done.ok(), "of the user\nno\n");
}

#[test]
fn m17_a_folder_that_the_next_list_leaves_out_is_gone() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let (one, two) = (ground.folder("one"), ground.folder("two"));
    let both = json!({"additionalMounts": {"one": mount(&one, "ro"), "two": mount(&two, "ro")}});
    app.line.spawn(with(
        ground.sh("p", "echo up; read word; cat mnt/two/file"),
        both,
    ));
    app.events.says("p", "up");
    // Not while a program runs that was started with it: a command beside it takes nothing away.
    let less = json!({"additionalMounts": {"one": mount(&one, "ro")}});
    app.run(with(ground.sh("q", "true"), less.clone())).ok();
    app.line.ok("writeStdin", json!({"id": "p", "data": "\n"}));
    assert_eq!(app.events.finished("p").ok(), "up\nof the user\n");
    assert_eq!(app.run(with(ground.sh("r", "ls mnt"), less)).ok(), "one\n");
}

#[test]
fn m22_a_folder_that_becomes_a_link_while_it_is_mounted() {
    let tries: usize = std::env::var("COWORK_TEST_RACES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(100);
    let ground = Ground::booted();
    let mut app = ground.app();
    let folder = ground.folder("w");
    let link = ground.world.path("link");
    symlink("/etc", &link).unwrap();
    let swap = || {
        renameat2(
            AT_FDCWD,
            &folder,
            AT_FDCWD,
            &link,
            RenameFlags::RENAME_EXCHANGE,
        )
        .unwrap();
    };
    // In the session somebody looks all the time, for what only /etc has.
    let script = "echo up; while ! [ -e /tmp/over ]; do [ -e mnt/race/passwd ] && echo LEAKED; done; echo over";
    app.line.spawn(ground.sh("p", script));
    app.events.says("p", "up");
    let is_over = AtomicBool::new(false);
    let (mut mounted, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                swap();
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        });
        for _ in 0..tries {
            let reply = app.line.ask("mountPath", live("p", &folder, "race", "ro"));
            match reply["success"] == true {
                true => mounted += 1,
                false => refused += 1,
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    if !folder.symlink_metadata().unwrap().is_dir() {
        swap();
    }
    app.run(ground.sh("q", "touch /tmp/over")).ok();
    assert_eq!(app.events.finished("p").ok(), "up\nover\n");
    assert!(
        mounted > 0 && refused > 0,
        "no race: {mounted} and {refused}"
    );
}
