//! Processes: cloning with proof of one thread, what dies with whom, what others may look into.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use super::check;

/// Proof that this process has one thread.
///
/// A clone copies the heap as it is at that instant. If another thread held the allocator's
/// lock, the child's first `Box` would wait for ever. With one thread nobody holds it, so the
/// child may use ordinary Rust.
#[derive(Debug)]
pub(crate) struct SingleThreaded(());

impl SingleThreaded {
    pub(crate) fn prove() -> io::Result<Self> {
        // A directory has two links of its own and one per subdirectory: one per thread.
        match fs::metadata("/proc/self/task")?.nlink().saturating_sub(2) {
            1 => Ok(Self(())),
            n => Err(io::Error::other(format!("{n} threads are running, need 1"))),
        }
    }
}

/// Which side of a clone this is.
#[derive(Debug)]
pub(crate) enum Forked {
    Child,
    Parent { pid: libc::pid_t, pidfd: OwnedFd },
}

#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Clones this process into the given new namespaces. Containers often answer the newer call as
/// if the kernel did not have it, because a filter cannot look into its arguments.
pub(crate) fn clone_into(proof: &SingleThreaded, namespaces: i32) -> io::Result<Forked> {
    clone_into_group(proof, namespaces, None)
}

/// As `clone_into`; with a control group the child is born in it. `CLONE_NEWCGROUP` must not be
/// asked for together with one: the kernel would make the caller's own group the top of the new
/// namespace. The child leaves for a namespace of its own once it is born.
pub(crate) fn clone_into_group(
    proof: &SingleThreaded,
    namespaces: i32,
    group: Option<BorrowedFd<'_>>,
) -> io::Result<Forked> {
    match clone_newer(proof, namespaces, group) {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
            let forked = clone_older(proof, namespaces)?;
            if let (Forked::Child, Some(group)) = (&forked, group)
                && join_group(group).is_err()
            {
                // Better no box than one without its limits; the launcher hears of the end.
                exit_now(125)
            }
            Ok(forked)
        }
        other => other,
    }
}

/// Moves this process into a control group.
pub(crate) fn join_group(group: BorrowedFd<'_>) -> io::Result<()> {
    use nix::fcntl::{OFlag, openat};
    let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    let file = openat(group, c"cgroup.procs", flags, nix::sys::stat::Mode::empty())?;
    nix::unistd::write(&file, b"0")?;
    Ok(())
}

fn clone_older(_proof: &SingleThreaded, namespaces: i32) -> io::Result<Forked> {
    let mut pidfd: libc::c_int = -1;
    let flags = namespaces as u32 | (libc::CLONE_PIDFD | libc::SIGCHLD) as u32;
    let none = std::ptr::null_mut::<libc::c_void>();
    let slot = &raw mut pidfd;
    // SAFETY: no stack is given, so the child goes on with a copy of this one; the slot for the
    // descriptor outlives the call, and `_proof` says that no lock is copied in a held state.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::c_ulong::from(flags),
            none,
            slot,
            none,
            none,
        )
    };
    forked(ret, &pidfd)
}

fn forked(ret: libc::c_long, pidfd: &libc::c_int) -> io::Result<Forked> {
    match check(ret)? {
        0 => Ok(Forked::Child),
        pid => {
            // SAFETY: the kernel stored a fresh descriptor that nobody else owns.
            let pidfd = unsafe { OwnedFd::from_raw_fd(*pidfd) };
            Ok(Forked::Parent {
                pid: pid as libc::pid_t,
                pidfd,
            })
        }
    }
}

fn clone_newer(
    _proof: &SingleThreaded,
    namespaces: i32,
    group: Option<BorrowedFd<'_>>,
) -> io::Result<Forked> {
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let mut pidfd: libc::c_int = -1;
    let born_elsewhere = group.map_or(0, |_| CLONE_INTO_CGROUP);
    let args = CloneArgs {
        flags: namespaces as u32 as u64 | libc::CLONE_PIDFD as u64 | born_elsewhere,
        pidfd: (&raw mut pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        cgroup: group.map_or(0, |group| group.as_raw_fd() as u64),
        ..CloneArgs::default()
    };
    // SAFETY: the arguments live across the call, no stack is given so the child goes on with a
    // copy of this one, and `_proof` says that no other thread's lock is copied in a held state.
    let ret = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) };
    forked(ret, &pidfd)
}

/// Forks without new namespaces, also where a filter around this process refuses clone3. `None`
/// is the child's side.
pub(crate) fn fork(_proof: &SingleThreaded) -> io::Result<Option<libc::pid_t>> {
    // SAFETY: one thread, as `_proof` says; the child may use ordinary Rust.
    let ret = unsafe { libc::fork() };
    let pid = check(ret.into())? as libc::pid_t;
    Ok((pid != 0).then_some(pid))
}

/// Waits for a child, or for any with -1: its number and how it ended, as the kernel has it. Some
/// signals have no name, so that nothing that takes them by name is used here.
pub(crate) fn wait(pid: libc::pid_t, flags: libc::c_int) -> Result<(libc::pid_t, i32), nix::Error> {
    let mut status = 0;
    // SAFETY: the status is an integer that outlives the call.
    let ret = unsafe { libc::waitpid(pid, &raw mut status, flags) };
    nix::Error::result(ret).map(|pid| (pid, status))
}

/// Enters the namespace of this kind that a descriptor of the caller's stands for.
pub(crate) fn join_namespace(fd: std::os::fd::RawFd, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: takes integers; a wrong descriptor is an error.
    let ret = unsafe { libc::setns(fd, kind) };
    check(ret.into()).map(drop)
}

/// Leaves a namespace of this kind for a new one.
pub(crate) fn unshare(kind: libc::c_int) -> io::Result<()> {
    // SAFETY: takes an integer.
    let ret = unsafe { libc::unshare(kind) };
    check(ret.into()).map(drop)
}

/// Forks into a new pid namespace; the child is a child of this process's parent, which can wait
/// for it and is whom it can die with. `true` on the child's side.
pub(crate) fn fork_beside(_proof: &SingleThreaded) -> io::Result<bool> {
    let args = CloneArgs {
        flags: (libc::CLONE_NEWPID | libc::CLONE_PARENT) as u64,
        ..CloneArgs::default()
    };
    // SAFETY: the arguments live across the call, no stack is given so the child goes on with a
    // copy of this one, and `_proof` says that no other thread's lock is copied in a held state.
    let ret = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) };
    check(ret).map(|pid| pid == 0)
}

/// Starts a child that shares this process's memory until it becomes another program, while
/// this process waits: nothing is copied. A `child` that returns is ended.
pub(crate) fn spawn(_proof: &SingleThreaded, child: &mut dyn FnMut()) -> io::Result<libc::pid_t> {
    const STACK: usize = 256 << 10;
    extern "C" fn enter(closure: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the pointer given to clone below, to a closure that outlives the child's use
        // of this memory because the parent does not run meanwhile.
        let child = unsafe { &mut *closure.cast::<&mut dyn FnMut()>() };
        child();
        exit_now(125)
    }
    let mut stack: Vec<u128> = Vec::with_capacity(STACK / 16);
    // SAFETY: one past the end of the allocation: stacks grow down from there, aligned as they
    // have to be.
    let top = unsafe { stack.as_mut_ptr().add(STACK / 16) };
    let mut closure: &mut dyn FnMut() = child;
    let argument = (&raw mut closure).cast();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the child has a stack of its own, and with CLONE_VFORK this process stands still
    // until the child has left this memory by exec or exit; `_proof` says nobody else runs.
    let ret = unsafe { libc::clone(enter, top.cast(), flags, argument) };
    check(ret.into()).map(|pid| pid as libc::pid_t)
}

/// Leaves at once, without flushing buffers that belong to the parent.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: takes an integer and does not return.
    unsafe { libc::_exit(code) }
}

/// Asks for a signal when the parent dies.
pub(crate) fn die_with_parent() -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong)
}

/// Makes this process its user's again, after a change of its identity hid it.
pub(crate) fn show_to_others() -> io::Result<()> {
    prctl(libc::PR_SET_DUMPABLE, 1)
}

/// Hides this process's memory, files and image from others of the same user.
pub(crate) fn hide_from_others() -> io::Result<()> {
    prctl(libc::PR_SET_DUMPABLE, 0)
}

/// Orphans below this process become its children.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    prctl(libc::PR_SET_CHILD_SUBREAPER, 1)
}

/// Takes another name in lists of processes, so that a `pkill` meant for the launcher does not
/// hit the process that cleans up after it.
pub(crate) fn call_oneself(name: &std::ffi::CStr) -> io::Result<()> {
    prctl(libc::PR_SET_NAME, name.as_ptr() as libc::c_ulong)
}

pub(crate) fn no_new_privileges() -> io::Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
}

pub(super) fn prctl(option: libc::c_int, value: libc::c_ulong) -> io::Result<()> {
    // SAFETY: takes integers only; unused arguments must be zero.
    let ret = unsafe { libc::prctl(option, value, 0, 0, 0) };
    check(ret.into()).map(drop)
}

/// Joins a fresh session keyring, so that the caller's keys are out of reach.
pub(crate) fn new_session_keyring() -> io::Result<()> {
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    let name = std::ptr::null::<libc::c_char>();
    // SAFETY: a null name asks for an anonymous keyring.
    let ret = unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, name) };
    check(ret).map(drop)
}

/// Sends a signal to exactly the process behind the descriptor, never to a recycled number.
pub(crate) fn signal(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let info = std::ptr::null::<libc::siginfo_t>();
    let fd = pidfd.as_raw_fd();
    // SAFETY: a null siginfo asks for what kill(2) would send.
    let ret = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, info, 0) };
    check(ret).map(drop)
}

/// A list of words as the kernel takes it, made ahead: at the time of use a filter may forbid
/// what more memory takes.
#[derive(Debug)]
pub(crate) struct Words {
    texts: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

impl Words {
    pub(crate) fn new(texts: Vec<CString>) -> Self {
        let pointers = texts.iter().map(|text| text.as_ptr());
        let pointers = pointers.chain([std::ptr::null()]).collect();
        Self { texts, pointers }
    }

    pub(crate) fn texts(&self) -> &[CString] {
        &self.texts
    }
}

/// Replaces this process by a program; returns only on failure.
pub(crate) fn exec(path: &CString, argv: &Words, envp: &Words) -> io::Error {
    let (argv, envp) = (argv.pointers.as_ptr(), envp.pointers.as_ptr());
    // SAFETY: both lists end with a null pointer, and they and the texts they point to outlive
    // the call, which does not return unless it failed.
    unsafe { libc::execve(path.as_ptr(), argv, envp) };
    io::Error::last_os_error()
}

/// Gives a fresh program the signals as the caller had them; only the death of children is always
/// heard of.
pub(crate) fn callers_signals() {
    if !super::start::pipe_signal_was_ignored() {
        // SAFETY: installs the default action, no handler.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    hear_of_children();
    let mut set = nix::sys::signal::SigSet::empty();
    set.add(nix::sys::signal::Signal::SIGCHLD);
    let _ = set.thread_unblock();
}

/// Lets children be waited for, whatever the caller did with their signal.
pub(crate) fn hear_of_children() {
    // SAFETY: installs the default action, no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Gives a fresh program the signals it expects: SIGPIPE, which Rust's start-up ignores, acts
/// again, and nothing is blocked. Handlers do not outlive exec by themselves.
pub(crate) fn default_signals() {
    // SAFETY: installs the default action, no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
}

/// Overwrites this process's command line and start environment with zeros.
///
/// `/proc/1/cmdline` is readable for everybody in the box, and the launcher's arguments may
/// carry host paths and values given with `--env`.
pub(crate) fn forget_arguments() {
    forget(argument_area(0, true));
}

/// Overwrites the words of this process's command line but for its name: everybody on the host can
/// read them, for as long as it runs.
pub(crate) fn forget_words() {
    forget(argument_area(1, false));
}

fn forget(area: Option<(*mut u8, *mut u8)>) {
    let Some((start, end)) = area else {
        return;
    };
    // SAFETY: the kernel put the strings of argv and envp there, one after the other, in this
    // process's own writable stack; nothing reads them after this point.
    unsafe { std::ptr::write_bytes(start, 0, end as usize - start as usize) };
}

/// The memory that holds the strings of argv from one on, and of envp if wanted: they lie back to
/// back, argv first.
fn argument_area(from: usize, with_environment: bool) -> Option<(*mut u8, *mut u8)> {
    let argc = std::env::args_os().len();
    unsafe extern "C" {
        static mut environ: *const *mut libc::c_char;
    }
    // SAFETY: reads a pointer the C library set at start; nobody calls setenv here.
    let envp = unsafe { environ };
    if envp.is_null() || argc <= from {
        return None;
    }
    // The kernel lays out argv pointers, a null, envp pointers, a null.
    // SAFETY: the slot lies in the same block the kernel wrote, before envp.
    let argv = unsafe { envp.sub(argc + 1 - from) };
    // SAFETY: argv has `argc` entries, more than are left out, so this one can be read.
    let start = unsafe { *argv }.cast::<u8>();
    let mut last = start;
    let mut slot = argv;
    // SAFETY: argc entries, the null between, then envp up to its null: all readable.
    while slot < envp || with_environment && unsafe { !(*slot).is_null() } {
        // SAFETY: as above.
        let text = unsafe { *slot };
        if !text.is_null() {
            last = text.cast();
        }
        // SAFETY: stays within the block, which ends with the null checked for.
        slot = unsafe { slot.add(1) };
    }
    // SAFETY: a C string the kernel wrote.
    let length = unsafe { libc::strlen(last.cast()) };
    // SAFETY: its end is part of the same area.
    let end = unsafe { last.add(length) };
    (start <= end).then_some((start, end))
}
