use super::*;
use std::fs::{self, File};

const ALL: Total = Total {
    bytes: u64::MAX,
    files: u64::MAX,
    hidden: 0,
};

fn opened(path: &Path) -> OwnedFd {
    File::open(path).unwrap().into()
}

fn counted(path: &Path) -> Total {
    let roots = [opened(path)];
    let mut walk = Walk::new(&roots, Free::default(), 0);
    assert!(walk.step(&roots, ALL, Instant::now() + Duration::from_secs(10)));
    walk.total
}

fn fill(path: &Path, bytes: usize) {
    let file = File::create(path).unwrap();
    std::io::Write::write_all(&mut &file, &vec![1u8; bytes]).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn files_folders_and_second_names_are_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path();
    fs::create_dir(top.join("a")).unwrap();
    fill(&top.join("a/one"), 1 << 20);
    fs::hard_link(top.join("a/one"), top.join("two")).unwrap();
    std::os::unix::fs::symlink("/usr", top.join("link")).unwrap();
    let total = counted(top);
    assert_eq!(total.files, 3, "{total:?}");
    assert!((1 << 20..2 << 20).contains(&total.bytes), "{total:?}");
    assert_eq!(total.hidden, 0);
}

#[test]
fn a_deep_tree_hides_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut at = opened(folder.path());
    let name = "d".repeat(200);
    for _ in 0..60 {
        let mode = nix::sys::stat::Mode::S_IRWXU;
        nix::sys::stat::mkdirat(&at, name.as_str(), mode).unwrap();
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY;
        at = nix::fcntl::openat(&at, name.as_str(), flags, nix::sys::stat::Mode::empty()).unwrap();
    }
    let flags = OFlag::O_CREAT | OFlag::O_WRONLY;
    let mode = nix::sys::stat::Mode::S_IRWXU;
    let file: File = nix::fcntl::openat(&at, "end", flags, mode).unwrap().into();
    std::io::Write::write_all(&mut &file, &vec![1u8; 1 << 20]).unwrap();
    file.sync_all().unwrap();
    let total = counted(folder.path());
    assert_eq!(total.files, 61, "{total:?}");
    assert!(total.bytes >= 1 << 20);
}

#[test]
fn a_walk_goes_on_where_it_was_and_stops_when_it_has_seen_enough() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..300 {
        fill_empty(&folder.path().join(number.to_string()));
    }
    let roots = [opened(folder.path())];
    let mut walk = Walk::new(&roots, Free::default(), 0);
    let past = Instant::now();
    let mut steps = 1;
    while !walk.step(&roots, ALL, past) {
        steps += 1;
    }
    assert_eq!(walk.total.files, 300);
    assert!(steps > 3, "{steps}");
    let few = Total { files: 10, ..ALL };
    let mut walk = Walk::new(&roots, Free::default(), 0);
    assert!(walk.step(&roots, few, past));
    assert_eq!(walk.total.files, 11);
}

fn fill_empty(path: &Path) {
    File::create(path).unwrap();
}

#[test]
fn a_folder_that_cannot_be_opened_is_counted_as_such() {
    use std::os::unix::fs::PermissionsExt;
    if nix::unistd::getuid().is_root() {
        // Root opens everything, so nothing hides from it.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    let total = counted(folder.path());
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(total.hidden, 1);
}

#[test]
fn it_is_time_to_walk_when_the_disk_has_lost_what_the_box_may_take() {
    let now = Instant::now();
    let before = Free {
        bytes: 1000,
        files: 1000,
    };
    let last = Walked {
        total: Total::default(),
        free: before,
        written: 50,
        at: now.checked_sub(Duration::from_secs(10)).unwrap(),
        spent: Duration::from_millis(10),
    };
    let enough = Total {
        bytes: 400,
        files: 400,
        hidden: 0,
    };
    let mut folders = Folders {
        most_free: before,
        is_stale: false,
        walk: None,
        last: Some(last),
    };
    let busy = Signs {
        is_quiet: false,
        written: 50,
    };
    let quiet = Signs {
        is_quiet: true,
        ..busy
    };
    let free = |bytes, files| Free { bytes, files };
    assert!(!folders.is_due(now, before, enough, busy));
    assert!(folders.is_due(now, free(850, 1000), enough, busy));
    assert!(folders.is_due(now, free(1000, 850), enough, quiet));
    // Others give back what the box takes, but they cannot unwrite it.
    let writing = Signs {
        written: 200,
        ..busy
    };
    assert!(folders.is_due(now, free(2000, 1000), enough, writing));
    assert!(folders.is_due(now + SELDOM, before, enough, busy));
    assert!(!folders.is_due(now + SELDOM, before, enough, quiet));
    folders.is_stale = true;
    assert!(folders.is_due(now, before, enough, quiet), "once at rest");
    folders.last = Some(Walked {
        spent: Duration::from_secs(1),
        ..last
    });
    assert!(!folders.is_due(now, free(0, 0), enough, busy), "not again");
}
