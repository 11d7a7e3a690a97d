//! System calls that a box does not need.

use std::process::Command;

use crate::outside::{Answers, probe};
use crate::support::{Ran, World};

const CALLS: &str = r#"
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <sys/uio.h>
#include <sys/ptrace.h>
static long in_child(long (*attempt)(void)) {
    int out[2];
    pipe(out);
    pid_t pid = fork();
    if (pid == 0) {
        long answer[2];
        errno = 0;
        answer[0] = attempt();
        answer[1] = errno;
        write(out[1], answer, sizeof answer);
        _exit(0);
    }
    close(out[1]);
    long answer[2] = { -1, ECHILD };
    if (read(out[0], answer, sizeof answer) <= 0) answer[1] = EINTR; /* killed */
    close(out[0]);
    waitpid(pid, NULL, 0);
    errno = answer[1];
    return answer[0];
}
static long new_user(void) { return unshare(CLONE_NEWUSER); }
static long trace_me(void) { return ptrace(PTRACE_TRACEME, 0, 0, 0); }
#ifdef __x86_64__
static long old_gate(long number, long first) {
    long ret;
    __asm__ volatile("int $0x80" : "=a"(ret) : "a"(number), "b"(first) : "memory", "r8", "r9", "r10", "r11");
    if (ret < 0) { errno = -ret; return -1; }
    return ret;
}
static long old_getpid(void) { return old_gate(20, 0); }
static long old_unshare(void) { return old_gate(310, CLONE_NEWUSER); }
static long x32_getpid(void) { return syscall(0x40000000 | 39); }
#endif
static long stacked(void) {
    struct sock_filter allow[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
    struct sock_fprog program = { 1, allow };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) return -2;
    return unshare(CLONE_NEWUSER);
}
static long layers(void) {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    unsigned long rules[1] = { 1 };
    for (int i = 0; i < 20; i++) {
        int fd = syscall(444, rules, sizeof rules, 0);
        if (fd < 0 || syscall(446, fd, 0) < 0) return -1;
        close(fd);
    }
    return 0;
}
/* Harmless for whoever may do it: the control runs these as root on the host. */
static void safe_calls(char *buffer) {
    struct iovec here = { buffer, 8 }, there = { buffer + 64, 8 };
    struct { unsigned bytes; int type; char handle[128]; } handle = { 128 };
    int mount;
    try("keyctl", syscall(SYS_keyctl, 0, -3, 0));
    try("new-user", in_child(new_user));
    try("ptrace", in_child(trace_me));
    try("process_vm_readv", syscall(SYS_process_vm_readv, getpid(), &here, 1, &there, 1, 0));
    try("handle", syscall(SYS_name_to_handle_at, AT_FDCWD, "/usr", &handle, &mount, 0));
    try("kcmp", syscall(SYS_kcmp, getpid(), getpid(), 0, 0, 0));
    try("stacked", in_child(stacked));
    try("layers", in_child(layers));
#ifdef __x86_64__
    try("modify_ldt", syscall(SYS_modify_ldt, 0, buffer, 16));
#endif
}
/* Never to be run outside a box. All arguments are such that the kernel itself would refuse
   them with another error: what is seen is the filter's answer, and a hole does no damage. */
static void bad_calls(char *buffer) {
    try("bpf", syscall(SYS_bpf, -1, NULL, 0));
    try("perf", syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0));
    try("userfaultfd", syscall(SYS_userfaultfd, 1));
    try("io_uring", syscall(SYS_io_uring_setup, 0, NULL));
    try("add_key", syscall(SYS_add_key, NULL, NULL, NULL, 0, 0));
    try("request_key", syscall(SYS_request_key, NULL, NULL, NULL, 0));
    try("open-handle", syscall(SYS_open_by_handle_at, -1, NULL, 0));
    try("reboot", syscall(SYS_reboot, 0, 0, 0, 0));
    try("acct", syscall(SYS_acct, "/nonexistent"));
    try("swapon", syscall(SYS_swapon, "/nonexistent", 0));
    try("clock_settime", syscall(SYS_clock_settime, 0, NULL));
    try("settimeofday", syscall(SYS_settimeofday, NULL, NULL));
    try("dmesg", syscall(SYS_syslog, 3, buffer, 16));
    try("kexec", syscall(SYS_kexec_load, 0, 1 << 20, NULL, 0));
    try("init_module", syscall(SYS_init_module, NULL, 0, ""));
    try("finit_module", syscall(SYS_finit_module, -1, "", 0));
    try("delete_module", syscall(SYS_delete_module, "", 0));
    try("quotactl", syscall(SYS_quotactl, 0, NULL, 0, NULL));
    try("mount", syscall(SYS_mount, NULL, NULL, NULL, 0, NULL));
    try("umount", syscall(SYS_umount2, NULL, 0));
    try("open_tree", syscall(SYS_open_tree, -1, NULL, 0));
    try("mount_setattr", syscall(SYS_mount_setattr, -1, NULL, 0, NULL, 0));
    try("pivot_root", syscall(SYS_pivot_root, NULL, NULL));
    try("chroot", syscall(SYS_chroot, NULL));
    try("setns", syscall(SYS_setns, -1, 0));
    try("fanotify", syscall(SYS_fanotify_init, -1, 0));
    try("sethostname", syscall(SYS_sethostname, NULL, -1));
    try("clone3", syscall(SYS_clone3, NULL, 0));
#ifdef __x86_64__
    try("ioperm", syscall(SYS_ioperm, 0, 0, 0));
    try("iopl", syscall(SYS_iopl, 0));
    try("old-getpid", in_child(old_getpid));
    try("old-unshare", in_child(old_unshare));
    try("x32-getpid", in_child(x32_getpid));
#endif
    for (int number = 470; number < 600; number++) {
        snprintf(buffer, 64, "unknown-%d", number);
        try(buffer, syscall(number, -1, 0, 0, 0, 0, 0));
    }
    struct { unsigned long flags, mode, resolve; } how = { 0 };
    try("openat2", syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof how));
    try("statx", syscall(SYS_statx, AT_FDCWD, "/", 0, 0, buffer));
    try("faccessat2", syscall(SYS_faccessat2, AT_FDCWD, "/", 4, 0));
    try("nnp", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : -1);
}
int main(int argc, char **argv) {
    static char buffer[4096];
    safe_calls(buffer);
    if (argc > 1 && !strcmp(argv[1], "in-a-box")) bad_calls(buffer);
    return 0;
}"#;

/// SY-01 to SY-08, SY-12, SY-14, SY-50, SY-51, SY-53, SY-54, SY-55
#[test]
fn system_calls_that_lead_deep_into_the_kernel_are_refused() {
    let world = World::new();
    let program = probe(&world, "calls", CALLS);

    // The others need privileges, a setting or a module, or would change the host.
    let control = Answers::of(&Ran::of(&mut Command::new(&program)).ok());
    for name in [
        "keyctl",
        "new-user",
        "ptrace",
        "process_vm_readv",
        "handle",
        "kcmp",
    ] {
        control.worked(name);
    }
    control.worked("stacked");
    control.refused("layers", &["E2BIG", "ENOSYS", "EOPNOTSUPP"]);

    let inside = Answers::of(&world.run(&[], &["./calls", "in-a-box"]).ok());
    let refused = [
        "umount",
        "mount_setattr",
        "chroot",
        "bpf",
        "perf",
        "userfaultfd",
        "keyctl",
        "add_key",
        "request_key",
        "new-user",
        "ptrace",
        "process_vm_readv",
        "handle",
        "open-handle",
        "kcmp",
        "reboot",
        "acct",
        "swapon",
        "clock_settime",
        "settimeofday",
        "dmesg",
        "kexec",
        "init_module",
        "finit_module",
        "delete_module",
        "quotactl",
        "mount",
        "open_tree",
        "pivot_root",
        "setns",
        "fanotify",
        "sethostname",
        "stacked",
    ];
    for name in refused {
        inside.refused(name, &["EPERM"]);
    }
    inside.refused("io_uring", &["ENOSYS"]);
    inside.refused("clone3", &["ENOSYS"]);
    inside.refused("layers", &["E2BIG"]);
    if cfg!(target_arch = "x86_64") {
        for name in ["ioperm", "iopl", "modify_ldt"] {
            inside.refused(name, &["EPERM"]);
        }
        control.worked("modify_ldt");
        for name in ["old-getpid", "old-unshare", "x32-getpid"] {
            inside.refused(name, &["ENOSYS", "EINTR"]);
        }
    }
    for (name, answer) in inside.starting_with("unknown-") {
        assert_eq!(answer, "ENOSYS", "{name}");
    }
    for name in ["openat2", "statx", "faccessat2", "nnp"] {
        inside.worked(name);
    }
}

/// SY-09, SY-10, SY-11: for the program, for what it starts, and for pid 1.
#[test]
fn every_process_of_a_box_is_without_privileges() {
    let world = World::new();
    let look = "for p in 1 self $$; do cat /proc/$p/status; done";
    // How much the tests themselves may do is the host's business: the control is that the
    // numbers are read where they are.
    world
        .control("cat /proc/self/status")
        .ok()
        .says("CapBnd:")
        .says("NoNewPrivs:");

    let out = world.sh(look).ok().out;
    let all = |name: &str| {
        let start = format!("{name}:");
        let lines = out.lines().filter_map(|line| line.strip_prefix(&start));
        lines
            .map(|value| value.trim().to_owned())
            .collect::<Vec<_>>()
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(all(set), ["0000000000000000"; 3], "{set}");
    }
    assert_eq!(all("NoNewPrivs"), ["1"; 3]);
    assert_eq!(all("Seccomp"), ["2"; 3]);
    let expected = if crate::support::is_root() {
        1000
    } else {
        nix::unistd::getuid().as_raw()
    };
    let ids = format!("{expected}\t{expected}\t{expected}\t{expected}");
    assert_eq!(all("Uid"), [ids.as_str(); 3]);
}

/// SY-54: a program that used up the layers for itself is no freer than before.
#[test]
fn a_program_cannot_wear_the_walls_down_by_adding_to_them() {
    const PILE: &str = r#"
    int main(int argc, char **argv) {
        unsigned long rules[1] = { 1 << 2 };
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        for (int i = 0; i < 32; i++) {
            int fd = syscall(444, rules, sizeof rules, 0);
            if (fd >= 0) syscall(446, fd, 0);
        }
        try("secret", open(argv[1], O_RDONLY));
        try("new-user", unshare(CLONE_NEWUSER));
        return 0;
    }"#;
    let world = World::new();
    let program = probe(&world, "pile", PILE);
    let secret = world.write("home/.ssh/id_ed25519", "secret\n");
    let control = Answers::of(&Ran::of(Command::new(&program).arg(&secret)).ok());
    control.worked("new-user");
    let inside = Answers::of(&world.run(&[], &["./pile", secret.to_str().unwrap()]).ok());
    inside.refused("secret", &["ENOENT", "EACCES"]);
    inside.refused("new-user", &["EPERM"]);
}
