//! Links in a shared folder that lead the launcher elsewhere while it makes the places of its
//! mounts, files and folders: through the staging root, through `..`, through links of procfs.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;

use crate::launchers::{Launcher, distribution_has_old_holes, tree};
use crate::scene::{Attack, NEWER_OPTIONS, OPTIONS, Scene, attacks};
use crate::support::{World, exists};

/// Ways to the victim that start in a root where the host lies at `/oldroot`.
fn ways_by_the_staging_root() -> Vec<String> {
    [
        "/oldroot",
        "/../../oldroot",
        "../../../../../../../../../../oldroot",
        "/newroot/../oldroot",
        "/oldroot/proc/self/root/oldroot",
        "/oldroot/proc/self/cwd/oldroot",
        "/newroot/proc/self/root/oldroot",
        "/newroot/proc/thread-self/root/oldroot",
    ]
    .map(|way| format!("{way}VICTIM"))
    .to_vec()
}

/// Ways that start where the launcher itself may be standing.
fn ways_by_the_launcher() -> Vec<String> {
    let mut ways = [
        "/proc/self/root",
        "/proc/thread-self/root",
        "/proc/self/task/../root",
        "/proc/self/cwd",
        "/proc/1/root",
        "/proc/1/cwd",
        "/dev/fd/3",
        "/dev/fd/4",
    ]
    .map(|way| format!("{way}VICTIM"))
    .to_vec();
    ways.extend((3..=8).map(|number| format!("/proc/self/fd/{number}VICTIM")));
    ways.push(format!("/proc/{}/rootVICTIM", std::process::id()));
    ways.push("/proc/self/cwd/victim".to_owned());
    ways.push("/proc/self/fd/3/../victim".to_owned());
    ways.push("/proc/self/exe/../../victim".to_owned());
    ways
}

const READ_ONLY: [&str; 3] = ["--ro-bind", "/", "/"];
const EMPTY: [&str; 9] = [
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--ro-bind",
    "/proc",
    "/proc",
];

#[test]
fn the_distributions_launcher_follows_links_to_the_host() {
    if !distribution_has_old_holes() {
        return;
    }
    let mut scene = Scene::new();
    let mut options: BTreeSet<_> = OPTIONS.into_iter().collect();
    for way in ways_by_the_staging_root() {
        let mut hit = false;
        // Every option by the first way, one option by every way.
        let tried: Vec<_> = match way.as_str() {
            "/oldrootVICTIM" => attacks(&OPTIONS, &[way]),
            _ => attacks(&["--dir @"], &[way]),
        };
        for attack in &tried {
            if scene.struck(Launcher::Distribution, &READ_ONLY, attack) {
                options.remove(attack.option);
                hit = true;
            }
        }
        assert!(hit, "{tried:?}");
    }
    assert!(options.is_empty(), "never reached the host: {options:?}");
}

/// Options that stand for the ways in which a place is made, opened, changed and mounted on.
const SOME_OPTIONS: [&str; 4] = [
    "--dir @",
    "--file 0 @",
    "--ro-bind /dev/null @",
    "--chmod 0777 @",
];

#[track_caller]
fn never_struck(base: &[&str], options: &[&'static str], ways: &[String]) {
    let mut scene = Scene::new();
    for attack in attacks(options, ways) {
        let struck = scene.struck(Launcher::Ours, base, &attack);
        assert!(!struck, "{attack:?}");
    }
}

fn all_options() -> Vec<&'static str> {
    OPTIONS.into_iter().chain(NEWER_OPTIONS).collect()
}

#[test]
fn no_option_is_led_by_a_link_to_a_staging_root() {
    let ways = ["/oldrootVICTIM".to_owned()];
    never_struck(&READ_ONLY, &all_options(), &ways);
    never_struck(&EMPTY, &all_options(), &ways);
}

#[test]
fn no_option_is_led_by_a_link_of_procfs() {
    let ways = ["/proc/self/rootVICTIM".to_owned()];
    never_struck(&READ_ONLY, &all_options(), &ways);
    never_struck(&EMPTY, &all_options(), &ways);
}

#[test]
fn no_way_leads_to_the_host() {
    let mut ways = ways_by_the_staging_root();
    ways.extend(ways_by_the_launcher());
    // In the sandbox these names are read-only, or nothing.
    ways.extend(["VICTIM", "../victim", "inner/../../victim"].map(str::to_owned));
    never_struck(&READ_ONLY, &SOME_OPTIONS, &ways);
}

#[test]
fn no_way_leads_from_an_empty_root_to_the_host() {
    let mut ways = ways_by_the_launcher();
    ways.extend(["VICTIM", "../victim"].map(str::to_owned));
    never_struck(&EMPTY, &SOME_OPTIONS, &ways);
}

/// The same without a link: the caller's own words climb out.
#[test]
fn dots_in_a_destination_do_not_climb_out() {
    let places = [
        "/../oldrootVICTIM",
        "../oldrootVICTIM",
        "/inner/../../../../oldrootVICTIM",
        "PROJECT/../../../../../../oldrootVICTIM",
        "PROJECT/../victim",
        "/..VICTIM",
        "/proc/self/rootVICTIM",
        "/proc/self/cwdVICTIM",
        "/proc/self/fd/3VICTIM",
    ];
    let mut scene = Scene::new();
    let mut control = false;
    for (place, option, end) in places.into_iter().flat_map(|place| {
        let all = SOME_OPTIONS.into_iter();
        all.flat_map(move |option| ["/leaf", "/precious"].map(|end| (place, option, end)))
    }) {
        let attack = Attack {
            option,
            link: None,
            at: format!("{place}{end}"),
        };
        for base in [&READ_ONLY[..], &EMPTY] {
            assert!(!scene.struck(Launcher::Ours, base, &attack), "{attack:?}");
        }
        control |= scene.struck(Launcher::Distribution, &READ_ONLY, &attack);
    }
    assert!(control || !distribution_has_old_holes());
}

/// What agents write to keep a file of the project from being made: the folder it would lie in is
/// a link that came with the project.
#[test]
fn masking_a_file_that_is_missing_makes_none_in_the_home() {
    let world = World::new();
    let home = world.path("home");
    symlink(
        format!("/oldroot{}", home.display()),
        world.work().join(".x"),
    )
    .unwrap();
    let work = world.work().display().to_string();
    let mask = format!("{work}/.x/.bashrc");
    let arguments = [
        "--new-session",
        "--die-with-parent",
        "--ro-bind",
        "/",
        "/",
        "--bind",
        &work,
        &work,
        "--ro-bind",
        "/dev/null",
        &mask,
        "--dev",
        "/dev",
        "--unshare-pid",
        "--proc",
        "/proc",
        "--",
        "true",
    ];
    Launcher::Ours.run(&world, &arguments);
    assert!(!exists(&home.join(".bashrc")));
    if distribution_has_old_holes() {
        Launcher::Distribution.run(&world, &arguments).ok();
        assert!(exists(&home.join(".bashrc")));
    }
}

/// Links that stay in the sandbox are followed by every option: the tests above do not pass because
/// all is refused.
#[test]
fn links_inside_the_sandbox_are_followed() {
    let scene = Scene::new();
    let inner = scene.world.work().join("inner");
    let before = tree(&scene.victim());
    for to in ["inner", "./../w/inner", inner.to_str().unwrap()] {
        scene.link(to);
        let at = format!("{}/x/made/leaf", scene.world.work().display());
        let makes = |option: &&str| !option.contains("chmod") && !option.contains("remount");
        for option in all_options().into_iter().filter(makes) {
            scene.run(Launcher::Ours, &READ_ONLY, option, &at).ok();
            assert!(exists(&inner.join("made/leaf")), "{option} by {to}");
            std::fs::remove_dir_all(inner.join("made")).unwrap();
        }
        let own = format!("{}/x/own", scene.world.work().display());
        let chmod = "--chmod 0604 @";
        scene.run(Launcher::Ours, &READ_ONLY, chmod, &own).ok();
        let mode = inner.join("own").metadata().unwrap().permissions();
        assert_eq!(
            std::os::unix::fs::PermissionsExt::mode(&mode) & 0o7777,
            0o604
        );
        std::fs::write(inner.join("own"), "own\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(inner.join("own"), mode).unwrap();
    }
    assert_eq!(tree(&scene.victim()), before);
}

/// A read-only mount is read-only for the launcher as well, by whatever name it comes.
#[test]
fn a_link_into_a_read_only_mount_changes_nothing_there() {
    let scene = Scene::new();
    let victim = scene.victim().display().to_string();
    let shown = |how: &'static str| ["--tmpfs", "/", how, &victim, "/shown"].map(str::to_owned);
    let at = format!("{}/x/made/leaf", scene.world.work().display());
    scene.link("/shown");
    let before = tree(&scene.victim());
    for option in all_options() {
        let base = shown("--ro-bind");
        let base: Vec<_> = base.iter().map(String::as_str).collect();
        scene.run(Launcher::Ours, &base, option, &at);
        assert_eq!(tree(&scene.victim()), before, "{option}");
    }
    // The control: shared for writing, it is written to.
    let base = shown("--bind");
    let base: Vec<_> = base.iter().map(String::as_str).collect();
    scene.run(Launcher::Ours, &base, "--dir @", &at);
    assert!(scene.victim().join("made/leaf").is_dir());
}
