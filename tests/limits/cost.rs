//! What holding limits costs when nothing happens.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use cowork_linux::limits::{Holder, Verdict, Wanted};

use crate::ground::{Boxed, MIB};

const SESSIONS: usize = 200;

/// Calls every holder when it asks to be called, for a while; the thread sleeps between. Returns
/// how often that was.
fn run(holders: &mut [Holder], time: Duration) -> u32 {
    let end = Instant::now() + time;
    let next = |at: usize, holder: &Holder| Reverse((holder.wake_at().unwrap(), at));
    let mut queue: BinaryHeap<_> = holders
        .iter()
        .enumerate()
        .map(|(at, h)| next(at, h))
        .collect();
    let mut calls = 0;
    while let Some(Reverse((when, at))) = queue.pop()
        && when < end
    {
        std::thread::sleep(when.saturating_duration_since(Instant::now()));
        assert_eq!(holders[at].check(), Verdict::Fine);
        calls += 1;
        queue.push(next(at, &holders[at]));
    }
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    calls
}

#[test]
fn two_hundred_idle_sessions_are_looked_at_once_in_a_while() {
    // An idle session: its first process, a shell, and an agent that waits.
    let program = "
if os.fork() == 0: time.sleep(60)
say('ready'); wait()
";
    let folder = tempfile::tempdir().unwrap();
    let mut boxed = Boxed::start(program, &[]);
    assert_eq!(boxed.hear(), "ready");
    let wanted = Wanted {
        memory: Some(500 * MIB),
        pids: Some(500),
        disk: Some(500 * MIB),
        idle: Some(Duration::from_secs(3600)),
        ..Wanted::default()
    };
    let mut holders: Vec<Holder> = (0..SESSIONS)
        .map(|_| boxed.held_to(wanted, &[folder.path()]))
        .collect();
    run(&mut holders, Duration::from_secs(4));
    let time = Duration::from_secs(2);
    let calls = run(&mut holders, time);
    // What a look costs depends on the machine and on who else uses it; how many there are does not.
    let sessions = SESSIONS as u32;
    assert!(calls >= sessions / 2, "only {calls} looks");
    assert!(
        calls <= sessions * 2,
        "{calls} looks at {sessions} sessions in two seconds"
    );
    boxed.end();
}
