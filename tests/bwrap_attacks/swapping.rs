//! Names that change while the launcher looks: a link that leads to a harmless place at one moment
//! and to the host at the next, a folder that becomes another one.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::launchers::{Launcher, distribution_has_old_holes, probe, tree};
use crate::support::{Ran, World};

/// Two names that change places until the test is over.
struct Swapping(Child);

impl Swapping {
    fn start(world: &World, one: &Path, other: &Path) -> Self {
        let mut command = Command::new(probe(world));
        command.arg("swap").args([one, other]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "up=0\n");
        Self(child)
    }
}

impl Drop for Swapping {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// How often a launcher is started while names change.
const STARTS: usize = 50;
const STARTS_OF_THE_CONTROL: usize = 600;

/// In which start, if in any, something was made where nothing was shared.
fn first_hit(launcher: Launcher, world: &World, option: &[&str], starts: usize) -> Option<usize> {
    let victim = world.path("victim");
    let work = world.work().display().to_string();
    let before = tree(&victim);
    (0..starts).find(|_| {
        let mut command = launcher.command(world);
        command.args(["--ro-bind", "/", "/", "--bind", &work, &work]);
        Ran::of(command.args(option).arg("true"));
        let _ = std::fs::remove_dir_all(world.work().join("inner/made"));
        tree(&victim) != before
    })
}

fn world_with_a_victim() -> World {
    let world = World::new();
    world.write("victim/precious", "precious\n");
    world.write("w/inner/own", "own\n");
    world
}

/// `x` in the project is harmless now and hostile then.
fn swapped(launcher: Launcher, to: &str, harmless_is_a_link: bool, starts: usize) -> Option<usize> {
    let world = world_with_a_victim();
    let (x, y) = (world.work().join("x"), world.work().join("y"));
    if harmless_is_a_link {
        symlink("inner", &x).unwrap();
    } else {
        std::fs::create_dir(&x).unwrap();
    }
    let victim = world.path("victim").display().to_string();
    symlink(to.replace("VICTIM", &victim), &y).unwrap();
    let _swapping = Swapping::start(&world, &x, &y);
    let at = format!("{}/made/leaf", x.display());
    first_hit(launcher, &world, &["--dir", &at], starts)
}

#[test]
fn a_link_that_changes_during_the_start_leads_nowhere() {
    if distribution_has_old_holes() {
        let hit = swapped(
            Launcher::Distribution,
            "/oldrootVICTIM",
            true,
            STARTS_OF_THE_CONTROL,
        );
        assert!(hit.is_some());
    }
    for to in [
        "/oldrootVICTIM",
        "/proc/self/rootVICTIM",
        "/proc/self/cwd/victim",
        "/proc/self/fd/3VICTIM",
    ] {
        for link in [true, false] {
            assert_eq!(swapped(Launcher::Ours, to, link, STARTS), None, "{to}");
        }
    }
}

/// In which start, if in any, a file lost its content because a link that led nowhere when the
/// launcher looked led there when it made a place to mount on.
fn first_emptied(launcher: Launcher, starts: usize) -> Option<usize> {
    let world = World::new();
    let kept = world.write("kept/file", "precious\n");
    let (x, y) = (world.work().join("x"), world.work().join("y"));
    symlink("missing", &x).unwrap();
    symlink("../kept/file", &y).unwrap();
    let _swapping = Swapping::start(&world, &x, &y);
    let shared = ["w", "kept"].map(|name| world.path(name).display().to_string());
    let [work, kept_folder] = &shared;
    (0..starts).find(|_| {
        let mut command = launcher.command(&world);
        command.args(["--ro-bind", "/", "/", "--bind", work, work]);
        command.args(["--bind", kept_folder, kept_folder]);
        command.args(["--ro-bind", "/dev/null", x.to_str().unwrap(), "true"]);
        Ran::of(&mut command);
        let _ = std::fs::remove_file(world.work().join("missing"));
        std::fs::read(&kept).unwrap().is_empty()
    })
}

#[test]
fn making_a_place_to_mount_on_empties_no_file() {
    if distribution_has_old_holes() {
        assert!(first_emptied(Launcher::Distribution, STARTS_OF_THE_CONTROL).is_some());
    }
    assert_eq!(first_emptied(Launcher::Ours, STARTS), None);
}

/// A descriptor names one folder for good. What stands at its old name is never shown instead:
/// the original is mounted, or nothing is.
#[test]
fn a_folder_given_by_descriptor_is_not_exchanged() {
    let world = World::new();
    world.write("w/given/mark", "given\n");
    world.write("w/other/mark", "other\n");
    let (given, other) = (world.work().join("given"), world.work().join("other"));
    let folder = std::fs::File::open(&given).unwrap();
    let mut control = false;
    let mut mounted = 0;
    let _swapping = Swapping::start(&world, &given, &other);
    for _ in 0..STARTS {
        for option in ["--bind-fd", "--ro-bind-fd"] {
            let mut command = Launcher::Ours.command(&world);
            command.args([
                "--ro-bind",
                "/",
                "/",
                option,
                "0",
                "/mnt",
                "cat",
                "/mnt/mark",
            ]);
            let ran = Ran::of(command.stdin(folder.try_clone().unwrap()));
            assert!(!ran.out.contains("other"), "{ran:?}");
            mounted += usize::from(ran.out == "given\n");
        }
        // The control: by its name it is exchanged.
        control |= std::fs::read(given.join("mark")).is_ok_and(|mark| mark == b"other\n");
    }
    assert!(control);
    assert!(mounted > 0, "never the one that was given");
}
