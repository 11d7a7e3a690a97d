//! Kills a process at a chosen system call: before the call is made, so that every state between
//! two calls can be met. Works for an ordinary user, on what that user has started.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::Once;

use libc::{c_int, c_long, c_uint, c_void, pid_t};

/// More stops than anything here makes; reached only when something goes in circles.
const MOST_STOPS: u64 = 200_000;

/// Whom to kill: counted from the process that is traced first, in the order of birth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Victim(pub usize);

/// When.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// At this system call, counted from 1.
    Call(u64),
    /// When it has just started another process, which has not done anything yet.
    Birth,
    Never,
}

/// What came of it.
#[derive(Debug)]
pub struct Struck {
    pub was_killed: bool,
    /// How many system calls the victim had begun.
    pub calls: u64,
    /// The exit code of the command, if it had one.
    pub code: Option<i32>,
    /// What the command complained of.
    pub said: String,
}

/// Runs the command and kills it, or one that it starts.
#[allow(clippy::zombie_processes)] // whoever traces it waits for it
pub fn strike_command(command: &Command, victim: Victim, moment: Moment) -> Struck {
    on_a_thread(|| {
        // It waits until it is being traced, and counts from its own first call on.
        let mut waiting = Command::new("sh");
        waiting.args(["-c", "read go && exec \"$@\" </dev/null", "sh"]);
        waiting.arg(command.get_program()).args(command.get_args());
        copy_surroundings(command, &mut waiting);
        let said = tempfile::NamedTempFile::new().unwrap();
        waiting.stdin(Stdio::piped()).stdout(Stdio::null());
        waiting.stderr(said.reopen().unwrap());
        let mut child = waiting.spawn().unwrap();
        let pid = child.id() as pid_t;
        let mut trace = Trace::seize(pid, victim, moment);
        trace.counts = false;
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let status = trace.follow(pid);
        trace.told(status, &said)
    })
}

/// Runs the command, and kills a process that was there before, or one that it starts meanwhile.
pub fn strike_while(first: i32, command: &Command, victim: Victim, moment: Moment) -> Struck {
    on_a_thread(|| {
        let mut trace = Trace::seize(first, victim, moment);
        let mut asking = Command::new(command.get_program());
        asking.args(command.get_args());
        copy_surroundings(command, &mut asking);
        let said = tempfile::NamedTempFile::new().unwrap();
        asking.stdin(Stdio::null()).stdout(Stdio::null());
        asking.stderr(said.reopen().unwrap());
        let pid = asking.spawn().unwrap().id() as pid_t;
        let status = trace.follow(pid);
        trace.told(status, &said)
    })
}

/// Runs the command until a process that is started meanwhile is about to make this system call,
/// and keeps it from making it: what is done then is done while it hangs. The command goes on.
pub fn hold_while<T: Send>(
    first: i32,
    command: &mut Command,
    victim: Victim,
    call: c_long,
    meanwhile: impl FnOnce(i32, Child) -> T + Send,
) -> T {
    on_a_thread(|| {
        let mut trace = Trace::seize(first, victim, Moment::Never);
        let asking = command.stdin(Stdio::null()).stdout(Stdio::null());
        let asking = asking.stderr(Stdio::piped()).spawn().unwrap();
        let held = trace.until_it_is_about_to(call);
        for (pid, _) in &trace.tracees {
            if *pid != held && ptrace(libc::PTRACE_INTERRUPT, *pid, 0, 0) == 0 {
                wait(*pid);
                ptrace(libc::PTRACE_DETACH, *pid, 0, 0);
            }
        }
        meanwhile(held, asking)
    })
}

/// The kernel lets go of everybody who is traced when the thread that traces them ends.
fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    become_an_ancestor();
    std::thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// Where a kernel lets only ancestors trace a process, this one becomes one: those who lose their
/// parent become its children.
fn become_an_ancestor() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: takes integers.
        let ret = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
        assert_eq!(ret, 0);
    });
}

fn copy_surroundings(from: &Command, to: &mut Command) {
    to.env_clear();
    to.envs(
        from.get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    from.get_current_dir().into_iter().for_each(|folder| {
        to.current_dir(folder);
    });
}

#[derive(Debug)]
struct Trace {
    /// In the order of birth, with how many calls each has begun.
    tracees: Vec<(pid_t, u64)>,
    victim: Victim,
    moment: Moment,
    was_killed: bool,
    counts: bool,
    /// Those who wait until the victim is dead.
    held: Vec<pid_t>,
}

fn ptrace(request: c_uint, pid: pid_t, address: usize, data: usize) -> c_long {
    // SAFETY: each request used here takes integers, or the address of a buffer of the caller's
    // whose length is the other argument.
    unsafe { libc::ptrace(request, pid, address as *mut c_void, data as *mut c_void) }
}

impl Trace {
    fn seize(first: pid_t, victim: Victim, moment: Moment) -> Self {
        let options = libc::PTRACE_O_TRACESYSGOOD
            | libc::PTRACE_O_TRACEFORK
            | libc::PTRACE_O_TRACEVFORK
            | libc::PTRACE_O_TRACECLONE
            | libc::PTRACE_O_TRACEEXEC;
        let seized = ptrace(libc::PTRACE_SEIZE, first, 0, options as usize);
        assert_eq!(seized, 0, "{}", std::io::Error::last_os_error());
        ptrace(libc::PTRACE_INTERRUPT, first, 0, 0);
        wait(first);
        ptrace(libc::PTRACE_SYSCALL, first, 0, 0);
        Self {
            tracees: vec![(first, 0)],
            victim,
            moment,
            was_killed: false,
            counts: true,
            held: Vec::new(),
        }
    }

    /// Goes on until this one has ended.
    fn follow(&mut self, until: pid_t) -> c_int {
        for _ in 0..MOST_STOPS {
            let (pid, status) = wait(-1);
            if libc::WIFSTOPPED(status) {
                self.stopped(pid, status);
            } else if pid == until {
                for pid in self.held.drain(..) {
                    ptrace(libc::PTRACE_DETACH, pid, 0, 0);
                }
                return status;
            }
        }
        panic!("no end to it");
    }

    /// Goes on until the victim begins this call; its number.
    fn until_it_is_about_to(&mut self, call: c_long) -> pid_t {
        for _ in 0..MOST_STOPS {
            let (pid, status) = wait(-1);
            assert!(libc::WIFSTOPPED(status), "{pid} has ended before that");
            let is_victim = self
                .tracees
                .get(self.victim.0)
                .is_some_and(|it| it.0 == pid);
            let is_call = libc::WSTOPSIG(status) == libc::SIGTRAP | 0x80;
            if is_victim && is_call && entered(pid) == Some(call as u64) {
                return pid;
            }
            self.stopped(pid, status);
        }
        panic!("no end to it");
    }

    fn stopped(&mut self, pid: pid_t, status: c_int) {
        let known = self.tracees.iter().position(|it| it.0 == pid);
        let place = known.unwrap_or(self.tracees.len());
        if known.is_none() {
            self.tracees.push((pid, 0));
        }
        if place > self.victim.0 {
            // Born after the victim: left alone, once that has met its fate.
            match self.moment == Moment::Birth && !self.was_killed {
                true => self.held.push(pid),
                false => drop(ptrace(libc::PTRACE_DETACH, pid, 0, 0)),
            }
            return;
        }
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        let is_call = signal == libc::SIGTRAP | 0x80;
        self.counts |= event == libc::PTRACE_EVENT_EXEC;
        if is_call && self.counts && entered(pid).is_some() {
            self.tracees[place].1 += 1;
        }
        let is_now = match self.moment {
            Moment::Call(number) => is_call && self.tracees[place].1 == number,
            Moment::Birth => event == libc::PTRACE_EVENT_FORK,
            Moment::Never => false,
        };
        if is_now && self.counts && place == self.victim.0 {
            self.was_killed = true;
            // SAFETY: takes integers; it is stopped, so the number is still its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            return;
        }
        let is_ours = is_call || event != 0;
        let passed_on = if is_ours { 0 } else { signal };
        ptrace(libc::PTRACE_SYSCALL, pid, 0, passed_on as usize);
    }

    fn told(&self, status: c_int, said: &tempfile::NamedTempFile) -> Struck {
        Struck {
            was_killed: self.was_killed,
            calls: self.tracees.get(self.victim.0).map_or(0, |it| it.1),
            code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
            said: std::fs::read_to_string(said.path()).unwrap(),
        }
    }
}

/// Waits for a child or tracee of this thread's, never for another test's.
#[track_caller]
fn wait(pid: pid_t) -> (pid_t, c_int) {
    let mut status = 0;
    loop {
        let flags = libc::__WALL | libc::__WNOTHREAD;
        // SAFETY: the status is an integer that outlives the call.
        let ret = unsafe { libc::waitpid(pid, &raw mut status, flags) };
        if ret > 0 {
            return (ret, status);
        }
        let error = std::io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::EINTR), "{error}");
    }
}

/// The number of the call that is about to be made, if it was not just done.
fn entered(pid: pid_t) -> Option<u64> {
    const GET_SYSCALL_INFO: c_uint = 0x420e;
    const ENTRY: u8 = 1;
    const NUMBER: std::ops::Range<usize> = 24..32;
    let mut info = [0u8; 128];
    let length = info.len();
    let told = ptrace(GET_SYSCALL_INFO, pid, length, info.as_mut_ptr() as usize);
    let is_entry = told > 0 && info[0] == ENTRY;
    is_entry.then(|| u64::from_ne_bytes(info[NUMBER].try_into().unwrap()))
}
