//! The difference between what a session shows and what it is to show.

use super::*;
use crate::plan::Seen;

fn folder(inode: u64) -> Folder {
    let seen = Seen {
        device: 1,
        inode,
        uid: 0,
        gid: 0,
    };
    Folder {
        path: "/x".into(),
        seen,
        mode: Mode::Keep,
    }
}

fn name(text: &str) -> MountName {
    mount_name(text).unwrap()
}

fn shown_now(names: &[(&str, u64)]) -> Mounts {
    let each = names.iter().map(|(text, inode)| {
        let mounted = Mounted {
            folder: folder(*inode),
            place: (*text).to_owned(),
            point: Point::Named,
            is_granted: false,
        };
        (name(text), mounted)
    });
    each.collect()
}

fn desired(names: &[(&str, u64)]) -> Desired {
    let each = names
        .iter()
        .map(|(text, inode)| (name(text), (folder(*inode), false)));
    each.collect()
}

fn texts(names: &[MountName]) -> Vec<&str> {
    names.iter().map(MountName::as_str).collect()
}

#[test]
fn the_same_list_changes_nothing() {
    let list = [("a", 1), ("a/b", 2), ("c", 3)];
    assert!(is_so(&shown_now(&list), &desired(&list)));
    assert!(!is_so(&shown_now(&list), &desired(&list[..2])));
}

#[test]
fn what_holds_others_comes_first_and_goes_last() {
    let difference = Difference::of(
        &shown_now(&[]),
        &desired(&[("a/b/c", 1), ("a", 2), ("a/b", 3)]),
    );
    assert_eq!(texts(&difference.coming), ["a", "a/b", "a/b/c"]);
    let difference = Difference::of(&shown_now(&[("a", 2), ("a/b", 3)]), &desired(&[]));
    assert_eq!(texts(&difference.leaving), ["a", "a/b"]);
}

#[test]
fn whoever_is_exchanged_takes_what_it_holds_along() {
    let before = [("a", 1), ("a/b", 2), ("c", 3)];
    let difference = Difference::of(
        &shown_now(&before),
        &desired(&[("a", 9), ("a/b", 2), ("c", 3)]),
    );
    assert_eq!(texts(&difference.leaving), ["a/b"]);
    assert_eq!(texts(&difference.coming), ["a", "a/b"]);
    let difference = Difference::of(&shown_now(&before), &desired(&[("a/b", 2), ("c", 3)]));
    assert_eq!(texts(&difference.leaving), ["a", "a/b"]);
    assert_eq!(texts(&difference.coming), ["a/b"]);
}

#[test]
fn what_others_use_and_what_was_granted_stays() {
    let mut mounts = shown_now(&[("a", 1), ("b", 2), ("c", 3)]);
    mounts.get_mut(&name("c")).unwrap().is_granted = true;
    let found = BTreeMap::from([(name("d"), folder(4))]);
    let desired = with_list(&mounts, found, |used| used == "a");
    let names: Vec<&str> = desired.keys().map(MountName::as_str).collect();
    assert_eq!(names, ["a", "c", "d"]);
}
