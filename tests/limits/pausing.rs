//! Stopping, continuing and ending everything in a box without a control group.

use std::time::Duration;

use cowork_linux::limits::{Ground, Wanted, supervise};

use crate::ground::{Boxed, children, supervise_for};

/// Grows without end, each process in a file of its own, and breeds slowly.
const GROW: &str = "
paths = []
def grow(path):
    with open(path, 'w') as out:
        while True: out.write('x'); out.flush(); time.sleep(0.001)
for number in range(5):
    paths.append(f'/tmp/{number}')
    open(paths[-1], 'w').close()
    if os.fork() == 0: grow(paths[-1])
if os.fork() == 0:
    while True:
        if os.fork() == 0: os._exit(0)
        os.wait(); time.sleep(0.001)
say('ready')
while wait(): say(sum(os.path.getsize(path) for path in paths))
";

fn state(pid: i32) -> char {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after = text.rsplit(')').next().unwrap();
    after.trim().chars().next().unwrap()
}

/// All in a box, without the one process that stands for it.
fn everybody(pid: i32) -> Vec<i32> {
    let mut found = children(pid);
    let mut next = 0;
    while next < found.len() {
        found.extend(children(found[next]));
        next += 1;
    }
    found
}

#[test]
fn a_paused_box_does_nothing_at_all_and_then_goes_on() {
    let mut boxed = Boxed::start(GROW, &[]);
    assert_eq!(boxed.hear(), "ready");
    let mut holder = boxed.held_to(Wanted::default(), &[]);
    let grown = |boxed: &mut Boxed| -> u64 {
        boxed.tell("how much");
        boxed.hear().parse().unwrap()
    };
    let before = grown(&mut boxed);
    holder.freeze().unwrap();
    let all = everybody(boxed.first);
    assert!(all.len() >= 7, "{all:?}");
    for pid in &all {
        let state = state(*pid);
        assert!(matches!(state, 'T' | 'Z'), "{pid} is {state}");
    }
    let stopped = holder.usage().cpu_time;
    supervise_for(&mut holder, Duration::from_millis(300));
    assert_eq!(holder.usage().cpu_time, stopped);
    assert_eq!(everybody(boxed.first), all, "nobody is born meanwhile");
    holder.thaw().unwrap();
    let after = grown(&mut boxed);
    assert!(after > before, "{after} > {before}");
    boxed.end();
}

#[test]
fn who_was_stopped_before_stays_stopped() {
    let program = "
import signal
pid = os.fork()
if pid == 0:
    while True: time.sleep(1)
os.kill(pid, signal.SIGSTOP)
os.waitid(os.P_PID, pid, os.WSTOPPED)
say('ready')
while wait(): say('here')
";
    let mut boxed = Boxed::start(program, &[]);
    boxed.hear();
    let mut holder = boxed.held_to(Wanted::default(), &[]);
    holder.freeze().unwrap();
    holder.thaw().unwrap();
    boxed.tell("are you");
    assert_eq!(boxed.hear(), "here");
    let all = everybody(boxed.first);
    let last = *all.last().unwrap();
    assert_eq!(state(last), 'T', "{all:?}");
    boxed.end();
}

#[test]
fn everybody_is_ended_even_where_they_do_not_end_together() {
    let program = "
for _ in range(10):
    if os.fork() == 0:
        os.setsid(); time.sleep(60)
say('ready')
wait()
";
    let mut boxed = Boxed::plain(program);
    boxed.hear();
    let mut holder = supervise(&Wanted::default(), "this is a test").unwrap();
    let first = nix::unistd::Pid::from_raw(boxed.first);
    holder.begin(first, false, Ground::default()).unwrap();
    assert_eq!(everybody(boxed.first).len(), 10);
    holder.kill_all().unwrap();
    assert!(boxed.vanishes());
}
