//! Folders of the user's in a session: which, and how (M1 to M11, M33).
//!
//! That nothing of it is left is checked after every test (see `ground`).

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use serde_json::{Value, json};

use crate::client::App;
use crate::ground::{Ground, from_root, mount, with};
use crate::support::exists;

/// Runs a script with these mounts, of which none may fail.
#[track_caller]
pub(crate) fn over(
    ground: &Ground,
    app: &mut App,
    mounts: Value,
    script: &str,
) -> crate::client::Done {
    let id = format!("m{}", crate::ground::fresh());
    app.run(with(
        ground.sh(&id, script),
        json!({"additionalMounts": mounts}),
    ))
}

/// Runs a script with these mounts; those that failed, sorted, and what it said.
#[track_caller]
pub(crate) fn tried(
    ground: &Ground,
    app: &mut App,
    mounts: Value,
    script: &str,
) -> (Vec<String>, String) {
    let id = format!("m{}", crate::ground::fresh());
    let params = with(ground.sh(&id, script), json!({"additionalMounts": mounts}));
    let mut failed = app.line.spawn(params);
    failed.sort();
    (failed, app.events.finished(&id).ok())
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn m1_m2_m4_what_the_modes_allow() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let (rw, ro, rwd) = (
        ground.folder("rw"),
        ground.folder("ro"),
        ground.folder("rwd"),
    );
    let mounts = json!({"rw": mount(&rw, "rw"), "ro": mount(&ro, "ro"), "rwd": mount(&rwd, "rwd")});
    let place = ground.inside("mnt/rw");
    let done = over(
        &ground,
        &mut app,
        mounts.clone(),
        &format!("ls {place}; echo new > {place}/made"),
    );
    assert_eq!(done.ok(), "file\n");
    assert_eq!(read(&rw.join("made")), "new\n");
    let owner = std::fs::metadata(rw.join("made")).unwrap().uid();
    assert_eq!(owner, nix::unistd::getuid().as_raw());

    let done = over(
        &ground,
        &mut app,
        mounts.clone(),
        "cat mnt/ro/file; touch mnt/ro/made",
    );
    assert_eq!(done.code(), 1);
    assert_eq!(done.out, "of the user\n");
    assert!(done.err.contains("Read-only file system"), "{done:?}");
    assert!(!exists(&ro.join("made")));

    over(&ground, &mut app, mounts, "rm mnt/rwd/file").ok();
    assert!(!exists(&rwd.join("file")));
}

#[test]
fn m3_what_the_session_did_not_make_stays() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let folder = ground.folder("w");
    std::fs::create_dir(folder.join("old")).unwrap();
    ground.expects(folder.join("old"));
    let mounts = json!({"w": mount(&folder, "rw")});
    let mut says = |script: &str| {
        over(
            &ground,
            &mut app,
            mounts.clone(),
            &format!("cd mnt/w; {script}"),
        )
    };
    for script in [
        "rm file",
        "rmdir old",
        "unlink file",
        "python3 -c 'import os; os.unlink(\"file\")'",
    ] {
        let done = says(script);
        assert_ne!(done.code(), 0, "{script}");
        assert!(
            done.err.contains("Operation not permitted"),
            "{script}: {done:?}"
        );
    }
    assert_eq!(read(&folder.join("file")), "of the user\n");
    // Changing, renaming, and whatever it made itself is its own affair.
    says("echo changed > file; mv file moved; mv moved file").ok();
    assert_eq!(read(&folder.join("file")), "changed\n");
    says("echo x > own; rm own; mkdir d; rmdir d; mkdir -p e/f; touch e/f/g; rm -r e").ok();
    assert!(!exists(&folder.join("own")) && !exists(&folder.join("e")));
    if crate::support::binary().exists() && Path::new("/usr/bin/git").exists() {
        says("git init -q . && git add file && git -c user.name=a -c user.email=b commit -qm x && rm -rf .git").ok();
        assert!(!exists(&folder.join(".git")));
    }
}

#[test]
fn m3_m5_deleting_is_approved_or_allowed_from_the_start() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let folder = ground.folder("w");
    let before = json!({"w": mount(&folder, "rw")});
    let done = over(&ground, &mut app, before, "rm mnt/w/file");
    assert!(done.err.contains("Operation not permitted"), "{done:?}");
    over(
        &ground,
        &mut app,
        json!({"w": mount(&folder, "rwd")}),
        "rm mnt/w/file",
    )
    .ok();
    assert!(!exists(&folder.join("file")));
    drop((app, ground));

    let mut ground = Ground::bare();
    ground.start(&["--allow-delete"]);
    ground.boots();
    let mut app = ground.app();
    let folder = ground.folder("w");
    over(
        &ground,
        &mut app,
        json!({"w": mount(&folder, "rw")}),
        "mv mnt/w/file mnt/w/f; rm mnt/w/f",
    )
    .ok();
    assert!(!exists(&folder.join("file")));
}

#[test]
fn m5_an_approval_reaches_a_program_that_runs() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let folder = ground.folder("w");
    let script = "cd mnt; rm w/file && echo early; read word; rm w/file && echo removed; ls w";
    let mounts = json!({"additionalMounts": {"w": mount(&folder, "rw")}});
    app.line.spawn(with(ground.sh("p", script), mounts));
    app.events.until("it was refused", |heard| {
        heard.of("p").err.contains("not permitted")
    });
    let approval =
        json!({"processId": "p", "subpath": from_root(&folder), "mountName": "w", "mode": "rwd"});
    app.line.ok("mountPath", approval);
    app.line.ok("writeStdin", json!({"id": "p", "data": "\n"}));
    assert_eq!(app.events.finished("p").ok(), "removed\n");
}

#[test]
fn m6_m7_m8_every_way_to_write_a_path() {
    let mut ground = Ground::bare();
    // Where the home is a link, as on systems whose /home is one.
    symlink(ground.world.path("home"), ground.world.path("linked")).unwrap();
    let mut command = ground.helping();
    command.env("HOME", ground.world.path("linked"));
    ground.start_as(&mut command);
    ground.boots();
    let mut app = ground.app();
    let folder = ground.folder("home/proj");
    let inode = std::fs::metadata(&folder).unwrap().ino();
    let linked = ground.world.path("linked/proj");
    // Another one that a path taken from the home would lead to.
    let doubled = ground.world.path("home").join(from_root(&folder));
    std::fs::create_dir_all(&doubled).unwrap();
    for path in [
        from_root(&folder),
        folder.display().to_string(),
        "proj".to_owned(),
        from_root(&linked),
        linked.display().to_string(),
    ] {
        let mounts = json!({"p": {"path": path, "mode": "ro"}});
        let said = over(&ground, &mut app, mounts, "stat -c %i mnt/p").ok();
        assert_eq!(said, format!("{inode}\n"), "{path}");
    }
    // As an entry that is only a path, which is what some clients have sent.
    let said = over(
        &ground,
        &mut app,
        json!({"p": from_root(&folder)}),
        "stat -c %i mnt/p",
    )
    .ok();
    assert_eq!(said, format!("{inode}\n"));

    let elsewhere = tempfile::Builder::new()
        .prefix("cowork-test-")
        .tempdir_in("/var/tmp")
        .unwrap();
    std::fs::write(elsewhere.path().join("there"), "elsewhere").unwrap();
    let mounts = json!({"p": mount(elsewhere.path(), "ro")});
    assert_eq!(
        over(&ground, &mut app, mounts, "cat mnt/p/there").ok(),
        "elsewhere"
    );
    drop(app);
    drop(ground);
}

#[test]
fn m9_links_lead_where_the_user_may_share() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let folder = ground.folder("w");
    let link = |name: &str, to: &Path| {
        let path = ground.world.path(name);
        symlink(to, &path).unwrap();
        path
    };
    let mounts = json!({
        "good": mount(&link("good", &folder), "ro"),
        "etc": mount(&link("etc", Path::new("/etc")), "ro"),
        "dangling": mount(&link("dangling", Path::new("/no/such/place")), "ro"),
        "itself": mount(&link("itself", &ground.world.path("itself")), "ro"),
        "proc": mount(&link("proc", Path::new("/proc/self/root/etc")), "ro"),
    });
    let (failed, said) = tried(&ground, &mut app, mounts, "cat mnt/good/file; ls mnt");
    assert_eq!(failed, ["dangling", "etc", "itself", "proc"]);
    assert_eq!(said, "of the user\ngood\n");
}

#[test]
fn m10_m11_files_and_folders_that_are_not_there() {
    let ground = Ground::new();
    let data = ground.world.path("home/.config/Claude");
    let whose =
        json!({"userDataName": "Claude", "userDataRoot": ground.world.path("home/.config")});
    let mut app = ground.app();
    app.line.ok("configure", whose.clone());
    app.events = crate::client::Listener::to(&ground.socket(), whose);
    app.line.ok("startVM", json!({}));
    let file = ground.world.write("app.asar", "an archive");
    let session = data.join("local-agent-mode-sessions/a/o/local_1");
    std::fs::create_dir_all(&session).unwrap();
    let mounts = json!({
        "asar": mount(&file, "ro"),
        "gone": mount(&ground.world.path("gone"), "ro"),
        "outputs": mount(&session.join("outputs"), "rw"),
        "deep": mount(&session.join("more/and/more"), "rwd"),
        "nowhere": {"path": "/no-such-top/x", "mode": "rw"},
    });
    let script = "echo made > mnt/outputs/made; echo made > mnt/deep/made; ls mnt";
    let (failed, said) = tried(&ground, &mut app, mounts, script);
    assert_eq!(failed, ["gone", "nowhere"]);
    assert!(said.contains("deep\noutputs\n"), "{said}");
    assert_eq!(read(&session.join("outputs/made")), "made\n");
    assert_eq!(read(&session.join("more/and/more/made")), "made\n");
    let mode = std::fs::metadata(session.join("outputs")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o700);
    assert!(!exists(&ground.world.path("gone")) && !exists(Path::new("/no-such-top")));
}

#[test]
fn every_command_finds_its_folder_as_it_is_now() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let folder = ground.folder("w");
    let elsewhere = ground.folder("elsewhere");
    std::fs::write(elsewhere.join("file"), "elsewhere\n").unwrap();
    let mounts = json!({"w": mount(&folder, "rw")});
    let mut shows = |what: &str| {
        // Twice, because the second finds what the first has left.
        for _ in 0..2 {
            let done = over(&ground, &mut app, mounts.clone(), "cat mnt/w/file");
            assert_eq!(done.ok(), what);
        }
    };
    shows("of the user\n");
    // Another folder of the same name.
    let moved = ground.world.path("moved");
    std::fs::rename(&folder, &moved).unwrap();
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("file"), "new\n").unwrap();
    shows("new\n");
    // A link in its place.
    std::fs::remove_dir_all(&folder).unwrap();
    symlink(&elsewhere, &folder).unwrap();
    shows("elsewhere\n");
    // The first one again.
    std::fs::remove_file(&folder).unwrap();
    std::fs::rename(&moved, &folder).unwrap();
    shows("of the user\n");
    // And none.
    std::fs::rename(&folder, &moved).unwrap();
    let none = json!({"w": mount(&folder, "ro")});
    let (failed, said) = tried(&ground, &mut app, none, "ls mnt");
    assert_eq!((failed, said.as_str()), (vec!["w".to_owned()], ""));
}
