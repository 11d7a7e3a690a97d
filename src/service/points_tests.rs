use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::folders::{Folder, Mode};
use super::folders_tests::{Ground, while_exchanged};
use super::names::{MountName, mount_name};
use super::points::Point;
use crate::policy::{InsidePath, SessionId};

const APPS: &str = "h/u/.config/Claude/s";

fn point(
    ground: &Ground,
    mounted: &[(MountName, Folder)],
    name: &str,
    wanted: &Folder,
) -> Result<Point, String> {
    let session = SessionId::parse("t-sess-one").unwrap();
    let name = mount_name(name).unwrap();
    let mounted = mounted.iter().map(|(name, folder)| (name, folder));
    ground
        .sources
        .nested_point(&session, mounted, &name, wanted)
}

/// `.claude` of the app and `proj` of the user, and a folder for one of them.
fn ground(mode: Mode) -> (Ground, Vec<(MountName, Folder)>, Folder) {
    let ground = Ground::new();
    for name in ["s/.claude", "skills"] {
        fs::create_dir_all(ground.path("h/u/.config/Claude").join(name)).unwrap();
    }
    let mounted = vec![
        (
            mount_name(".claude").unwrap(),
            ground.folder(&format!("{APPS}/.claude"), mode),
        ),
        (mount_name("proj").unwrap(), ground.folder("h/u/proj", mode)),
    ];
    let wanted = ground.folder("h/u/.config/Claude/skills", Mode::Read);
    (ground, mounted, wanted)
}

#[test]
fn m12_a_place_in_the_apps_folder_is_made_and_one_in_the_users_is_not() {
    let (ground, mounted, wanted) = ground(Mode::Write);
    assert_eq!(
        point(&ground, &[], ".claude/skills", &wanted),
        Ok(Point::Named)
    );
    assert_eq!(
        point(&ground, &mounted, "alone/x", &wanted),
        Ok(Point::Named)
    );
    let census = ground.census();
    for name in ["proj/x", "proj/x/y"] {
        assert!(point(&ground, &mounted, name, &wanted).is_err(), "{name}");
    }
    assert_eq!(ground.census(), census);
    for name in ["skills", "a/b"] {
        let place = ground.path(APPS).join(".claude").join(name);
        let name = format!(".claude/{name}");
        assert!(!place.exists());
        assert_eq!(point(&ground, &mounted, &name, &wanted), Ok(Point::Named));
        assert!(place.is_dir());
        assert_eq!(point(&ground, &mounted, &name, &wanted), Ok(Point::Named));
    }
    fs::create_dir(ground.path("h/u/proj/there")).unwrap();
    assert_eq!(
        point(&ground, &mounted, "proj/there", &wanted),
        Ok(Point::Named)
    );
}

#[test]
fn nothing_is_made_in_what_is_shared_to_be_read() {
    let (ground, mounted, wanted) = ground(Mode::Read);
    let census = ground.census();
    assert!(point(&ground, &mounted, ".claude/skills", &wanted).is_err());
    assert_eq!(ground.census(), census);
}

#[test]
fn m13_a_link_of_the_apps_to_the_same_folder_stays_and_is_served() {
    let (ground, mounted, wanted) = ground(Mode::Write);
    let claude = ground.path(APPS).join(".claude");
    let literal = ground.path("h/u/.config/Claude/skills");
    symlink(&literal, claude.join("skills")).unwrap();
    symlink("../.skills", claude.join("relative")).unwrap();
    symlink(&literal, ground.path(APPS).join(".skills")).unwrap();
    let at = |path: &Path| Ok(Point::At(InsidePath::new(path).unwrap()));
    assert_eq!(
        point(&ground, &mounted, ".claude/skills", &wanted),
        at(&literal)
    );
    let beside = Path::new("/sessions/t-sess-one/mnt/.skills");
    assert_eq!(
        point(&ground, &mounted, ".claude/relative", &wanted),
        at(beside)
    );
    assert!(claude.join("skills").is_symlink());
}

#[test]
fn a_link_that_leads_anywhere_else_is_refused_and_stays() {
    let (ground, mounted, wanted) = ground(Mode::Write);
    let claude = ground.path(APPS).join(".claude");
    let same = ground.path("else/same");
    symlink(ground.path("h/u/.config/Claude/skills"), &same).unwrap();
    for (name, target) in [
        ("other", ground.path("else/where")),
        ("etc", "/etc".into()),
        ("nowhere", "/nonexistent".into()),
        ("itself", "itself".into()),
        ("magic", "/proc/self/cwd".into()),
        // The same folder, by a name that no session could be given.
        ("outside", same.clone()),
    ] {
        symlink(&target, claude.join(name)).unwrap();
        let name = format!(".claude/{name}");
        assert!(point(&ground, &mounted, &name, &wanted).is_err(), "{name}");
        // Nor is anything made behind it.
        let below = format!("{name}/x");
        assert!(
            point(&ground, &mounted, &below, &wanted).is_err(),
            "{below}"
        );
    }
    symlink(
        ground.path("h/u/.config/Claude/skills"),
        ground.path("h/u/proj/link"),
    )
    .unwrap();
    assert!(point(&ground, &mounted, "proj/link", &wanted).is_err());
    assert!(ground.path("h/u/proj/link").is_symlink());
    fs::write(claude.join("file"), "x").unwrap();
    assert!(point(&ground, &mounted, ".claude/file", &wanted).is_err());
    assert_eq!(fs::read_dir(ground.path("else/where")).unwrap().count(), 0);
}

#[test]
fn an_app_that_claims_the_home_does_not_get_places_made_in_it() {
    let (mut ground, mounted, wanted) = ground(Mode::Write);
    for data in ["h/u", "h", ""] {
        ground.sources.app_data = Some(ground.path(data));
        let census = ground.census();
        assert!(
            point(&ground, &mounted, "proj/x", &wanted).is_err(),
            "{data}"
        );
        assert_eq!(ground.census(), census);
    }
}

#[test]
fn a_folder_that_was_exchanged_gets_no_place_made_in_it() {
    let (ground, mounted, wanted) = ground(Mode::Write);
    let claude = ground.path(APPS).join(".claude");
    fs::rename(&claude, ground.path("old")).unwrap();
    symlink(ground.path("else/where"), &claude).unwrap();
    assert!(point(&ground, &mounted, ".claude/skills", &wanted).is_err());
    assert_eq!(fs::read_dir(ground.path("else/where")).unwrap().count(), 0);
}

#[test]
fn no_place_is_made_behind_a_link_that_appears_on_the_way() {
    let (ground, mounted, wanted) = ground(Mode::Write);
    let claude = ground.path(APPS).join(".claude");
    fs::create_dir(claude.join("a")).unwrap();
    symlink(ground.path("else/where"), claude.join("b")).unwrap();
    let (mut made, mut refused) = (0, 0);
    while_exchanged(&claude.join("a"), &claude.join("b"), || {
        match point(&ground, &mounted, ".claude/a/new", &wanted) {
            Ok(_) => made += 1,
            Err(_) => refused += 1,
        }
    });
    assert!(made > 0 && refused > 0, "{made} made, {refused} refused");
    assert_eq!(fs::read_dir(ground.path("else/where")).unwrap().count(), 0);
}
