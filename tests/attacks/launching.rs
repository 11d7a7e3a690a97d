//! Tricks on the launcher itself, before there is a box: names, links, races, odd files.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use super::run_after;
use super::support::{Ran, World, exists};

const SECRET: &str = "S3CRET-of-the-user";

/// Runs `cat NAME` in a box over one folder.
fn cat(world: &World, folder: &Path, name: &str) -> Ran {
    let mut command = world.cowork();
    Ran::of(
        command
            .args(["run", "-q", "--mount"])
            .arg(folder)
            .args(["--", "cat", name]),
    )
}

/// FS-50: a link that changes between a harmless folder and the keys, as the whole source and as
/// a part of its path.
#[test]
fn a_source_that_is_swapped_during_launch_never_shows_the_keys() {
    let world = World::new();
    world.write("ok/sub/id", "harmless");
    world.write("ok/id", "harmless");
    world.write("home/.ssh/id", SECRET);
    world.write("home/.ssh/sub/id", SECRET);
    let (link, spare) = (world.path("link"), world.path("spare"));
    symlink(world.path("ok"), &link).unwrap();
    let stop = AtomicBool::new(false);
    let (mut harmless, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for target in ["home/.ssh", "ok"] {
                    let _ = symlink(world.path(target), &spare);
                    let _ = std::fs::rename(&spare, &link);
                }
            }
        });
        // The control: whoever just opens the path gets the keys now and then.
        let mut seen = false;
        for _ in 0..100_000 {
            let text = std::fs::read_to_string(link.join("id")).unwrap_or_default();
            seen = seen || text == SECRET;
        }
        let mut outcomes = Vec::new();
        for round in 0..150 {
            let source = if round % 2 == 0 {
                link.clone()
            } else {
                link.join("sub")
            };
            outcomes.push(cat(&world, &source, "id"));
        }
        stop.store(true, Ordering::Relaxed);
        assert!(seen, "the race was never won outside");
        for ran in outcomes {
            match ran.out.as_str() {
                "harmless" => harmless += 1,
                "" if ran.code == 125 => refused += 1,
                _ => panic!("{ran:?}"),
            }
        }
    });
    assert!(
        harmless > 0 && refused > 0,
        "{harmless} harmless, {refused} refused"
    );
}

/// FS-51: a mount point below a link that the shared folder ships, or that a session's home has.
#[test]
fn no_mount_point_is_made_through_a_link() {
    let world = World::new();
    std::fs::create_dir(world.path("other")).unwrap();
    symlink("../home", world.work().join("sub")).unwrap();
    world.control("mkdir -p sub/control").ok();
    assert!(exists(&world.path("home/control")));

    let (work, other) = (
        world.work().display().to_string(),
        world.path("other").display().to_string(),
    );
    for places in [
        [format!("{work}:w"), format!("{other}:w/sub/x")],
        [format!("{other}:w/sub/x"), format!("{work}:w")],
        [work.clone(), format!("{other}:../x")],
        [work.clone(), format!("{other}:sub/../../x")],
        [work.clone(), format!("{other}:/sessions/x")],
        [work.clone(), format!("{other}:/proc/x")],
        [work.clone(), format!("{other}:/usr/x")],
        [work.clone(), format!("{other}:outputs")],
    ] {
        let mut command = world.cowork();
        command.args([
            "run", "-q", "--mount", &places[0], "--mount", &places[1], "--", "true",
        ]);
        let ran = Ran::of(&mut command);
        assert!(matches!(ran.code, 2 | 125), "{places:?}: {ran:?}");
    }
    // A kept home whose `mnt` became a link.
    world.run(&["--name", "kept"], &["true"]).ok();
    let mnt = world.open_home("kept").join("mnt");
    std::fs::remove_dir(&mnt).unwrap();
    symlink(world.path("home"), &mnt).unwrap();
    world.run(&["--name", "kept"], &["true"]).failed_with(125);
    // And nobody inside can bring that about.
    let script = "rmdir ~/mnt; mv ~/mnt ~/m; ln -sfn / ~/mnt; mv ~ /tmp/h; ls -ld ~/mnt";
    world
        .run(&["--name", "other"], &["sh", "-c", script])
        .ok()
        .says("drwx");

    let made: Vec<_> = std::fs::read_dir(world.path("home"))
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(made, ["control"]);
}

/// FS-52: descriptors and other processes' roots as a source.
#[test]
fn a_source_behind_a_magic_link_is_refused() {
    let world = World::new();
    world.write("home/.ssh/id", SECRET);
    world.write("plain/id", "plain");
    world
        .control("cd ../home; exec 9<.ssh; cat /proc/self/fd/9/id")
        .ok()
        .says(SECRET);
    let here = world.path("plain");
    symlink("/proc/self/cwd", world.path("cwd-link")).unwrap();
    let binary = super::support::binary();
    for source in [
        "/proc/self/fd/9".to_owned(),
        "/dev/fd/9".to_owned(),
        "/proc/self/fd/9/../.ssh".to_owned(),
        "/proc/self/root".to_owned(),
        "/proc/1/root".to_owned(),
        "/proc/self/cwd".to_owned(),
        format!("/proc/self/root{}", here.display()),
        world.path("cwd-link").display().to_string(),
        "/proc/self/task".to_owned(),
        "/dev/shm".to_owned(),
    ] {
        let first = format!(
            "exec 9<.ssh; {} run -q --mount {source} -- sh -c 'cat id; ls'; echo code $? >&2; exit 0",
            binary.display()
        );
        let ran = run_after(&world, &first, &["true"]).says_not("S3CRET");
        ran.complains("code 125");
    }
}

/// FS-57: the same keys in other words.
#[test]
fn the_keys_are_refused_however_they_are_spelled() {
    let world = World::new();
    world.write("home/.ssh/id", SECRET);
    world.write("home/.config/gcloud/id", SECRET);
    world.write("home/plain/id", "plain");
    let home = world.path("home").display().to_string();
    symlink(".ssh", world.path("home/alias")).unwrap();
    // The control: the same spellings of an ordinary folder are fine.
    for spelling in ["plain/", "/plain", "plain/.", "./plain//", "plain/../plain"] {
        cat(&world, Path::new(&format!("{home}/{spelling}")), "id")
            .ok()
            .says("plain");
    }
    for spelling in [
        ".ssh",
        ".ssh/",
        "/.ssh",
        ".ssh/.",
        ".ssh//",
        "plain/../.ssh",
        "./.ssh/../.ssh/",
        "alias",
        "alias/",
        ".config/gcloud/",
        ".",
        "",
        "plain/..",
        "..",
        "../..",
        "../../..",
    ] {
        let ran = cat(&world, Path::new(&format!("{home}/{spelling}")), "id").says_not("S3CRET");
        ran.failed_with(125);
    }
}

/// FS-31 by way of the program: a script decides what is shown to run it, but never a key.
#[test]
fn a_script_cannot_name_a_key_as_its_interpreter() {
    let world = World::new();
    let key = world.write("home/.ssh/id", SECRET);
    let script = world.write("w/evil", &format!("#!{}\n", key.display()));
    for path in [&key, &script] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    symlink(&key, world.work().join("link")).unwrap();
    world
        .control(&format!("cat {}", key.display()))
        .ok()
        .says(SECRET);
    for program in ["evil", "link"] {
        let path = world.work().join(program).display().to_string();
        let ran = world.run(&["--dry-run"], &[&path]).ok();
        ran.says_not("home/.ssh/id at");
        world.run(&[], &[&path]).says_not("S3CRET");
    }
}

/// FS-61: files the launcher looks at that never end, or never begin.
#[test]
fn a_pipe_or_an_endless_file_does_not_hold_the_launcher_up() {
    let world = World::new();
    let names = [".git", ".cowork.toml", "CLAUDE.md", "script"];
    for name in names {
        let made = Ran::of(
            Command::new("mkfifo")
                .args(["-m", "755"])
                .arg(world.work().join(name)),
        );
        made.ok();
    }
    world.control("timeout 0.2 cat .git").failed_with(124);
    let run = |program: &str| {
        let mut command = Command::new("timeout");
        command
            .args(["-k", "1", "20"])
            .arg(super::support::binary());
        command
            .env_clear()
            .envs(world.cowork().get_envs().filter_map(|(k, v)| Some((k, v?))));
        command
            .args(["run", "-q", "--mount"])
            .arg(world.work())
            .args(["--", program]);
        Ran::of(command.current_dir(world.work()))
    };
    assert_ne!(run("true").code, 124);
    assert_ne!(run(world.work().join("script").to_str().unwrap()).code, 124);
    for name in [".git", ".cowork.toml"] {
        std::fs::remove_file(world.work().join(name)).unwrap();
        let file = std::fs::File::create(world.work().join(name)).unwrap();
        file.set_len(1 << 40).unwrap();
    }
    assert_ne!(run("true").code, 124);
}
