//! Folders on a disk, which are counted in both ways.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use cowork_linux::limits::{Action, Limit, Verdict, Wanted};

use crate::ground::{Boxed, MIB, PATIENCE, over, supervise_for};

fn at_most(bytes: u64) -> Wanted {
    Wanted {
        disk: Some(bytes),
        ..Wanted::default()
    }
}

/// Not in /tmp, which may be in memory, and which the box covers.
fn folder() -> tempfile::TempDir {
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("cowork-limits-");
    let folder = builder.tempdir_in("/var/tmp").unwrap();
    let mode = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder.path(), mode).unwrap();
    folder
}

fn program(what: &str) -> String {
    format!("say('ready'); wait()\n{what}\nsay('done'); wait()\n")
}

/// Runs what fills the folder against a limit and returns the verdict after at most this time.
fn filled(what: &str, limit: u64, time: Duration) -> Verdict {
    let folder = folder();
    let mut boxed = Boxed::over(&program(what), &[], Some(folder.path()));
    assert_eq!(boxed.hear(), "ready");
    let mut holder = boxed.held_to(at_most(limit), &[folder.path()]);
    assert_eq!(
        supervise_for(&mut holder, Duration::from_millis(100)),
        Verdict::Fine
    );
    assert!(holder.usage().disk.is_some());
    boxed.tell("go");
    let verdict = supervise_for(&mut holder, time);
    if verdict == Verdict::Fine {
        assert_eq!(boxed.hear(), "done");
    }
    holder.kill_all().unwrap();
    assert!(boxed.vanishes());
    // Or it could not be removed.
    let closed = folder.path().join("closed");
    if closed.exists() {
        std::fs::set_permissions(closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
    folder.close().unwrap();
    verdict
}

const FILL: &str = "
for number in range(10):
    with open(f'file{number}', 'wb') as out:
        for _ in range(4): out.write(os.urandom(M))
        out.flush(); os.fsync(out.fileno())
";

#[test]
fn a_folder_that_fills_up_stops_the_box() {
    let verdict = filled(FILL, 20 * MIB, PATIENCE);
    assert!(
        over(&verdict).starts_with("disk limit of 20 MiB reached"),
        "{verdict:?}"
    );
    let Verdict::Over { limit, action, .. } = verdict else {
        panic!()
    };
    assert_eq!((limit, action), (Limit::Disk, Action::Freeze));
}

#[test]
fn the_same_is_nothing_to_a_larger_limit() {
    let verdict = filled(FILL, 150 * MIB, Duration::from_secs(3));
    assert_eq!(verdict, Verdict::Fine);
}

#[test]
fn a_file_without_a_name_fills_the_disk_too() {
    let verdict = filled(
        "
out = open('gone', 'wb'); os.unlink('gone')
for _ in range(60): out.write(os.urandom(M))
out.flush(); os.fsync(out.fileno())
",
        20 * MIB,
        PATIENCE,
    );
    assert!(
        over(&verdict).contains("files without a name"),
        "{verdict:?}"
    );
}

#[test]
fn many_small_files_are_a_limit_of_their_own() {
    let verdict = filled(
        "
for number in range(10100): os.close(os.open(f'{number}', os.O_CREAT | os.O_WRONLY))
",
        30 * MIB,
        PATIENCE,
    );
    assert_eq!(over(&verdict), "limit of 10000 files on disk reached");
}

#[test]
fn what_is_hidden_from_the_count_is_not_hidden_from_the_disk() {
    if nix::unistd::getuid().is_root() {
        // Root looks into every folder.
        return;
    }
    let verdict = filled(
        "
os.mkdir('closed')
out = open('closed/file', 'wb')
os.chmod('closed', 0)
for _ in range(60): out.write(os.urandom(M))
out.flush(); os.fsync(out.fileno())
",
        20 * MIB,
        PATIENCE,
    );
    let said = over(&verdict);
    assert!(
        said.starts_with("disk limit of 20 MiB cannot be held"),
        "{said}"
    );
    assert!(said.contains("1 folder cannot be looked into"), "{said}");
}

#[test]
fn a_stopped_box_goes_on_when_it_may_have_more() {
    let folder = folder();
    let mut boxed = Boxed::over(&program(FILL), &[], Some(folder.path()));
    boxed.hear();
    let mut holder = boxed.held_to(at_most(10 * MIB), &[folder.path()]);
    boxed.tell("go");
    over(&supervise_for(&mut holder, PATIENCE));
    holder.freeze().unwrap();
    // It is not told again as long as the box is stopped.
    assert_eq!(
        supervise_for(&mut holder, Duration::from_millis(300)),
        Verdict::Fine
    );
    holder.change(&at_most(150 * MIB)).unwrap();
    holder.thaw().unwrap();
    assert_eq!(
        supervise_for(&mut holder, Duration::from_millis(700)),
        Verdict::Fine
    );
    assert_eq!(boxed.hear(), "done");
    holder.kill_all().unwrap();
    assert!(boxed.vanishes());
    folder.close().unwrap();
}
