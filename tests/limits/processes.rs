//! Processes and processors without a control group.

use cowork_linux::limits::{Action, Limit, LimitError, Verdict, Wanted, rlimits};
use std::time::Duration;

use crate::ground::{Boxed, PATIENCE, children, over, supervise_for};

fn at_most(pids: u64) -> Wanted {
    Wanted {
        pids: Some(pids),
        ..Wanted::default()
    }
}

/// Starts up to 120 processes and tells how many the kernel gave it.
const BOMB: &str = "
say('ready'); wait()
born = 0
try:
    for _ in range(120):
        if os.fork() == 0:
            time.sleep(60); os._exit(0)
        born += 1
except OSError as error:
    say('refused after', born)
else:
    say('all', born)
wait()
";

fn words(wanted: &Wanted) -> String {
    let [limit] = rlimits(wanted, true)[..] else {
        panic!()
    };
    format!("--nproc={}:{}", limit.soft, limit.hard)
}

#[test]
fn a_fork_bomb_meets_a_wall_that_is_named() {
    let wanted = at_most(50);
    let mut boxed = Boxed::start(BOMB, &[&words(&wanted)]);
    assert_eq!(boxed.hear(), "ready");
    let mut holder = boxed.held_to(wanted, &[]);
    boxed.tell("go");
    let said = boxed.hear();
    let born: u64 = said
        .strip_prefix("refused after ")
        .expect(&said)
        .parse()
        .unwrap();
    assert!((40..50).contains(&born), "{born}");
    let Verdict::Held { limit, what } = supervise_for(&mut holder, PATIENCE) else {
        panic!("the wall was not noticed")
    };
    assert_eq!(limit, Limit::Pids);
    assert_eq!(
        what,
        "process limit of 50 reached: 50 processes and threads"
    );
    assert_eq!(holder.usage().pids, 50);
    // Said once, not at every look.
    assert_eq!(
        supervise_for(&mut holder, Duration::from_secs(1)),
        Verdict::Fine
    );
    boxed.end();
}

#[test]
fn the_same_bomb_goes_off_where_nothing_stops_it() {
    let mut boxed = Boxed::start(BOMB, &[]);
    boxed.hear();
    boxed.tell("go");
    assert_eq!(boxed.hear(), "all 120");
    boxed.end();
}

#[test]
fn a_box_that_goes_around_the_wall_is_ended() {
    let around = format!(
        "
soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))
{BOMB}"
    );
    let wanted = at_most(70);
    let mut boxed = Boxed::start(&around, &[&words(&wanted)]);
    boxed.hear();
    let mut holder = boxed.held_to(wanted, &[]);
    boxed.tell("go");
    assert_eq!(boxed.hear(), "all 120");
    let verdict = supervise_for(&mut holder, PATIENCE);
    assert!(
        over(&verdict).starts_with("process limit of 70 reached"),
        "{verdict:?}"
    );
    let Verdict::Over { action, .. } = verdict else {
        panic!()
    };
    assert_eq!(action, Action::Kill);
    holder.kill_all().unwrap();
    assert!(boxed.vanishes());
}

#[test]
fn more_processes_can_be_had_while_the_box_runs() {
    let program = "
def bear(count):
    born = 0
    try:
        for _ in range(count):
            if os.fork() == 0:
                time.sleep(60); os._exit(0)
            born += 1
    except OSError: pass
    say(born)
say('ready')
while wait(): bear(60)
";
    let wanted = at_most(30);
    let mut boxed = Boxed::start(program, &[&words(&wanted)]);
    boxed.hear();
    let mut holder = boxed.held_to(wanted, &[]);
    boxed.tell("go");
    let first: u64 = boxed.hear().parse().unwrap();
    assert!(first < 30, "{first}");
    let error = holder.change(&at_most(10)).unwrap_err();
    assert!(matches!(error, LimitError::InUse { .. }), "{error}");
    assert_eq!(holder.change(&at_most(55)).unwrap(), None);
    boxed.tell("go");
    let more: u64 = boxed.hear().parse().unwrap();
    assert_eq!(
        first + more,
        55 - (30 - first),
        "as many as the limit leaves"
    );
    boxed.end();
}

/// A box that keeps two processors busy, and then tries to get more than it was given.
const SPIN: &str = "
for _ in range(2):
    if os.fork() == 0:
        while True: pass
say('ready'); wait()
os.sched_setaffinity(0, range(os.cpu_count()))
for pid in os.listdir('/proc'):
    if pid.isdigit(): os.sched_setaffinity(int(pid), range(os.cpu_count()))
say(len(os.sched_getaffinity(0))); wait()
";

fn processors(holder: &mut cowork_linux::limits::Holder) -> f64 {
    let before = holder.usage().cpu_time;
    supervise_for(holder, Duration::from_secs(1));
    (holder.usage().cpu_time - before).as_secs_f64()
}

#[test]
fn a_box_stays_on_the_processors_it_was_given() {
    let there = std::thread::available_parallelism().unwrap().get();
    if there < 2 {
        return;
    }
    let wanted = Wanted {
        milli_cpus: Some(700),
        ..Wanted::default()
    };
    let mut boxed = Boxed::start(SPIN, &[]);
    assert_eq!(boxed.hear(), "ready");
    let mut holder = boxed.held_to(wanted, &[]);
    assert!(
        holder
            .weaker()
            .iter()
            .any(|said| said.contains("whole processors"))
    );
    let used = processors(&mut holder);
    assert!(used < 1.15, "{used} of one processor");
    assert_eq!(most_processors(&boxed), 1);
    boxed.tell("go");
    boxed.hear();
    // It is seen at the next look.
    supervise_for(&mut holder, Duration::from_millis(1200));
    assert_eq!(most_processors(&boxed), 1);
    let used = processors(&mut holder);
    assert!(
        used < 1.15,
        "{used} of one processor after it bound itself to all"
    );
    boxed.end();
}

/// On how many processors somebody in the box may run.
fn most_processors(boxed: &Boxed) -> usize {
    let mut all = vec![boxed.first];
    let mut next = 0;
    while next < all.len() {
        all.extend(children(all[next]));
        next += 1;
    }
    let count = |pid: &i32| {
        let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(*pid)).unwrap();
        let all = 0..nix::sched::CpuSet::count();
        all.filter(|cpu| set.is_set(*cpu).unwrap()).count()
    };
    all.iter().map(count).max().unwrap()
}

#[test]
fn processor_time_is_counted_with_those_who_have_ended() {
    let program = "
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
pid = os.fork()
if pid == 0: burn(0.3); os._exit(0)
os.waitpid(pid, 0); burn(0.2)
say('done'); wait()
";
    let mut boxed = Boxed::start(program, &[]);
    let holder = boxed.held_to(at_most(100), &[]);
    assert_eq!(boxed.hear(), "done");
    let used = holder.usage().cpu_time.as_secs_f64();
    assert!((0.48..1.5).contains(&used), "{used} s");
    boxed.end();
}

#[test]
fn a_box_in_which_nothing_happens_is_ended_and_a_busy_one_is_not() {
    let idle = Wanted {
        idle: Some(Duration::from_millis(400)),
        ..Wanted::default()
    };
    let mut boxed = Boxed::start("say('ready')\nwait()\nwhile True: pass", &[]);
    boxed.hear();
    let mut holder = boxed.held_to(idle, &[]);
    let verdict = supervise_for(&mut holder, PATIENCE);
    assert_eq!(
        over(&verdict),
        "idle limit of 400ms reached: nothing has happened since"
    );
    holder.touch();
    boxed.tell("go");
    assert_eq!(
        supervise_for(&mut holder, Duration::from_millis(1500)),
        Verdict::Fine
    );
    boxed.end();
}
