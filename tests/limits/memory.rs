//! Memory without a control group: of one process, of many, shared, and in files.

use cowork_linux::limits::{Action, Limit, LimitError, Verdict, Wanted, rlimits};
use std::time::Duration;

use crate::ground::{Boxed, MIB, PATIENCE, over, supervise_for};

fn at_most(bytes: u64) -> Wanted {
    Wanted {
        memory: Some(bytes),
        ..Wanted::default()
    }
}

/// Five processes that fill 30 MiB each, when told to.
const MANY: &str = "
say('ready'); wait()
for _ in range(5):
    if os.fork() == 0:
        held = b'x' * (30 * M); say('full'); time.sleep(60)
time.sleep(60)
";

#[test]
fn many_small_processes_are_one_large_box() {
    let mut boxed = Boxed::start(MANY, &[]);
    assert_eq!(boxed.hear(), "ready");
    let mut holder = boxed.held_to(at_most(100 * MIB), &[]);
    assert_eq!(
        supervise_for(&mut holder, Duration::from_millis(100)),
        Verdict::Fine
    );
    boxed.tell("go");
    let verdict = supervise_for(&mut holder, PATIENCE);
    let what = over(&verdict);
    assert!(
        what.starts_with("memory limit of 100 MiB reached: 1"),
        "{what}"
    );
    assert!(what.ends_with("processes"), "{what}");
    let Verdict::Over { limit, action, .. } = &verdict else {
        panic!()
    };
    assert_eq!((*limit, *action), (Limit::Memory, Action::Kill));
    holder.kill_all().unwrap();
    assert!(boxed.vanishes());
}

#[test]
fn the_same_box_lives_where_the_limit_is_larger() {
    let mut boxed = Boxed::start(MANY, &[]);
    boxed.hear();
    let mut holder = boxed.held_to(at_most(280 * MIB), &[]);
    boxed.tell("go");
    for _ in 0..5 {
        assert_eq!(boxed.hear(), "full");
    }
    assert_eq!(
        supervise_for(&mut holder, Duration::from_secs(1)),
        Verdict::Fine
    );
    let used = holder.usage().memory / MIB;
    assert!((150..200).contains(&used), "{used} MiB");
    boxed.end();
}

#[test]
fn what_processes_share_counts_once() {
    let program = "
held = b'x' * (60 * M)
shared = mmap.mmap(-1, 20 * M); shared.write(b'x' * (20 * M))
for _ in range(8):
    if os.fork() == 0:
        shared[:10] = b'0123456789'; sum(shared[at] for at in range(0, 20 * M, 4096)); say('born'); time.sleep(60)
time.sleep(60)
";
    let mut boxed = Boxed::start(program, &[]);
    let mut holder = boxed.held_to(at_most(150 * MIB), &[]);
    for _ in 0..8 {
        assert_eq!(boxed.hear(), "born");
    }
    assert_eq!(
        supervise_for(&mut holder, Duration::from_secs(1)),
        Verdict::Fine
    );
    let used = holder.usage().memory / MIB;
    assert!((80..145).contains(&used), "{used} MiB");
    boxed.end();
}

/// Fills a file in memory and stays alive; `OPEN` is how.
fn filler(open: &str) -> String {
    format!(
        "
say('ready'); wait()
out = {open}
for _ in range(120): out.write(b'x' * M)
out.flush(); say('full'); time.sleep(60)
"
    )
}

#[track_caller]
fn is_ended(program: &str) {
    let mut boxed = Boxed::start(program, &[]);
    assert_eq!(boxed.hear(), "ready");
    let mut holder = boxed.held_to(at_most(80 * MIB), &[]);
    supervise_for(&mut holder, Duration::from_millis(50));
    boxed.tell("go");
    let verdict = supervise_for(&mut holder, PATIENCE);
    assert!(
        over(&verdict).starts_with("memory limit of 80 MiB"),
        "{verdict:?}"
    );
    boxed.end();
}

#[track_caller]
fn is_left_alone(program: &str) {
    let mut boxed = Boxed::start(program, &[]);
    boxed.hear();
    let mut holder = boxed.held_to(at_most(250 * MIB), &[]);
    boxed.tell("go");
    assert_eq!(boxed.hear(), "full");
    assert_eq!(
        supervise_for(&mut holder, Duration::from_millis(700)),
        Verdict::Fine
    );
    let used = holder.usage().memory / MIB;
    assert!((120..200).contains(&used), "{used} MiB");
    boxed.end();
}

#[test]
fn files_in_a_folder_in_memory_are_memory() {
    let program = filler("open('/tmp/file', 'wb')");
    is_ended(&program);
    is_left_alone(&program);
}

#[test]
fn files_in_memory_without_a_folder_are_memory() {
    let program = filler("os.fdopen(os.memfd_create('x'), 'wb')");
    is_ended(&program);
    is_left_alone(&program);
}

#[test]
fn shared_pages_without_a_file_are_memory() {
    let program = filler("mmap.mmap(-1, 120 * M)");
    is_ended(&program);
    is_left_alone(&program);
}

#[test]
fn one_process_alone_meets_an_error_and_not_an_end() {
    let program = "
try: held = mmap.mmap(-1, 1200 * M, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); say('had it')
except OSError: say('refused')
wait()
";
    let wanted = at_most(1 << 30);
    let [limit] = rlimits(&wanted, true)[..] else {
        panic!()
    };
    let words = format!("--data={}:{}", limit.soft, limit.hard);
    for (limits, said) in [(&[words.as_str()][..], "refused"), (&[][..], "had it")] {
        let mut boxed = Boxed::start(program, limits);
        let mut holder = boxed.held_to(wanted, &[]);
        assert_eq!(boxed.hear(), said);
        // Pages that are not touched are not used.
        assert_eq!(
            supervise_for(&mut holder, Duration::from_millis(100)),
            Verdict::Fine
        );
        boxed.end();
    }
}

#[test]
fn a_limit_can_be_raised_while_the_box_runs_but_not_put_below_its_use() {
    let program = "
held = []
say('ready')
while wait(): held.append(b'x' * (60 * M)); say('more')
";
    let mut boxed = Boxed::start(program, &["--data=1073741824:4294967296"]);
    boxed.hear();
    let mut holder = boxed.held_to(at_most(100 * MIB), &[]);
    boxed.tell("go");
    assert_eq!(boxed.hear(), "more");
    assert_eq!(
        supervise_for(&mut holder, Duration::from_millis(200)),
        Verdict::Fine
    );

    let error = holder.change(&at_most(50 * MIB)).unwrap_err();
    assert!(matches!(error, LimitError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("the box uses 6"), "{error}");
    assert_eq!(holder.wanted().memory, Some(100 * MIB));

    assert_eq!(holder.change(&at_most(200 * MIB)).unwrap(), None);
    boxed.tell("go");
    assert_eq!(boxed.hear(), "more");
    assert_eq!(
        supervise_for(&mut holder, Duration::from_millis(500)),
        Verdict::Fine
    );
    boxed.tell("go");
    assert_eq!(boxed.hear(), "more");
    let verdict = supervise_for(&mut holder, Duration::from_millis(700));
    assert_eq!(verdict, Verdict::Fine, "60 * 3 < 200");
    boxed.tell("go");
    assert!(over(&supervise_for(&mut holder, PATIENCE)).contains("200 MiB"));

    // Each process's own limit follows as far as the kernel lets it.
    let told = holder.change(&at_most(8 << 30)).unwrap().unwrap();
    assert!(told.contains("cannot be given that much"), "{told}");
    boxed.end();
}
