/* Tries things in a sandbox, and disturbs launchers from outside. Prints `what=0` when it worked
   and `what=ERROR` when it was refused. Nothing here outlives a minute. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void say(const char *what, long ret) {
    printf("%s=%s\n", what, ret >= 0 ? "0" : errno ? strerrorname_np(errno) : "(no errno)");
    fflush(stdout);
}

static int opened(const char *path, int flags) {
    int fd = open(path, flags | O_CLOEXEC | O_NOCTTY, 0600);
    int error = errno;
    if (fd >= 0) close(fd);
    errno = error;
    return fd;
}

/* Which descriptors are open, and what they are. */
static void descriptors(void) {
    for (int fd = 0; fd < 4096; fd++) {
        char name[64], link[4096] = "?";
        if (fcntl(fd, F_GETFD) < 0) continue;
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(name, link, sizeof link - 1);
        if (length >= 0) link[length] = 0;
        printf("%d=%s\n", fd, link);
    }
}

/* Two names change places, as fast as they can. */
static void swap(const char *one, const char *other) {
    say("up", 0);
    for (;;)
        if (renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE)) exit(1);
}

/* Mounts come and go. */
static void mounts(const char *place) {
    if (mount("t", place, "tmpfs", 0, NULL)) { say("mount", -1); exit(1); }
    umount2(place, MNT_DETACH);
    say("up", 0);
    for (;;) {
        if (mount("t", place, "tmpfs", 0, NULL)) exit(1);
        umount2(place, MNT_DETACH);
    }
}

/* Starts a launcher, and dies `delay` microseconds after that one has begun to read its
   arguments; when it is negative, before they are complete: they end when this process does. */
static void parent(long delay, char **launcher) {
    static const char option[] = "--die-with-parent";
    int arguments[2], left = 1;
    if (pipe2(arguments, O_CLOEXEC)) exit(1);
    /* The parent goes on when the child has called exec, so it never dies before. */
    pid_t pid = vfork();
    if (pid == 0) {
        dup2(arguments[0], 9);
        execvp(launcher[0], launcher);
        _exit(1);
    }
    if (write(arguments[1], option, sizeof option) < 0) exit(1);
    while (left > 0) ioctl(arguments[0], FIONREAD, &left);
    if (delay >= 0) {
        close(arguments[1]);
        usleep(delay);
    }
    raise(SIGKILL);
}

/* Looks for processes whose program file is called `name`, keeps the file by what procfs calls
   it, and stays behind until the file is not busy any more: then adds a byte to it. */
static void infect(const char *name) {
    char path[64], link[4096];
    int kept = -1;
    for (int pid = 1; pid < 1 << 22; pid++) {
        if (kill(pid, 0) && errno == ESRCH) continue;
        snprintf(path, sizeof path, "/proc/%d/exe", pid);
        ssize_t length = readlink(path, link, sizeof link - 1);
        if (length < 0) continue;
        link[length] = 0;
        if (strcmp(link, name)) continue;
        kept = open(path, O_PATH | O_CLOEXEC);
        if (kept < 0) continue;
        if (fork()) return say("reached", 0);
        /* Whoever keeps it busy in here may be ended. */
        if (getppid() != pid) kill(pid, SIGKILL);
        snprintf(path, sizeof path, "/proc/self/fd/%d", kept);
        for (int tries = 0; tries < 500; tries++) {
            int fd = open(path, O_WRONLY | O_APPEND);
            if (fd >= 0) { _exit(write(fd, "!", 1) != 1); }
            if (errno != ETXTBSY) { say("infected", -1); _exit(1); }
            usleep(10000);
        }
        say("infected", -1);
        _exit(1);
    }
    errno = ENOENT;
    say("reached", -1);
}

/* Takes the root away, in the hope that another one lies below it. */
static void unroot(const char *secret) {
    int top = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    say("umount", umount2("/", MNT_DETACH));
    say("after-umount", opened(secret, O_RDONLY));
    say("pivot", syscall(SYS_pivot_root, ".", "."));
    say("after-pivot", opened(secret, O_RDONLY));
    say("umount-again", umount2(".", MNT_DETACH));
    say("after-umount-again", opened(secret, O_RDONLY));
    mkdir("/work/jail", 0700);
    say("chroot", chroot("/work/jail"));
    for (int i = 0; i < 64; i++) if (chdir("..")) break;
    say("after-chroot", opened(secret + 1, O_RDONLY));
    say("chdir-to-the-top", fchdir(top));
    for (int i = 0; i < 64; i++) if (chdir("..")) break;
    say("after-chdir", opened(secret + 1, O_RDONLY));
    if (!chroot(".")) say("after-chroot-again", opened(secret, O_RDONLY));
}

/* Another user namespace, by every call that makes one. */
static int in_child(int (*attempt)(void)) {
    int status;
    pid_t pid = fork();
    if (pid == 0) _exit(attempt() ? errno : 0);
    waitpid(pid, &status, 0);
    errno = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
    return errno ? -1 : 0;
}
static int by_unshare(void) { return unshare(CLONE_NEWUSER); }
static int by_clone(void) {
    long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) _exit(0);
    return pid < 0 ? -1 : 0;
}
static int by_clone3(void) {
    unsigned long how[8] = { CLONE_NEWUSER, 0, 0, 0, SIGCHLD };
    long pid = syscall(SYS_clone3, how, sizeof how);
    if (pid == 0) _exit(0);
    return pid < 0 ? -1 : 0;
}
static int after_raising(void) {
    int fd = open("/proc/sys/user/max_user_namespaces", O_WRONLY);
    if (fd < 0 || write(fd, "1000\n", 5) != 5) return -1;
    return unshare(CLONE_NEWUSER);
}
static void user_namespaces(void) {
    say("unshare", in_child(by_unshare));
    say("clone", in_child(by_clone));
    say("clone3", in_child(by_clone3));
    say("raise", in_child(after_raising));
}

/* Calls that a filter stops before the kernel looks at their arguments. Those are such that the
   kernel itself has another answer, and nothing is harmed. */
static void calls(void) {
    int fd = open("/", O_RDONLY | O_CLOEXEC);
    struct { void *base; size_t length; } here = { &fd, sizeof fd };
    say("sti", syscall(SYS_ioctl, fd, 0x5412UL, "x"));
    say("sti-wide", syscall(SYS_ioctl, fd, 0xdeadbeef00005412UL, "x"));
    say("linux", syscall(SYS_ioctl, fd, 0x541cUL, "\3"));
    say("linux-wide", syscall(SYS_ioctl, fd, 0x10000541cUL, "\3"));
    say("setd", syscall(SYS_ioctl, fd, 0x5423UL, &fd));
    say("setd-wide", syscall(SYS_ioctl, fd, 0x8000000000005423UL, &fd));
    say("keyctl", syscall(SYS_keyctl, 0, -3, 0));
    say("vm-readv", syscall(SYS_process_vm_readv, getpid(), &here, 1UL, &here, 1UL, 0UL));
    say("unshare", in_child(by_unshare));
    say("clone", in_child(by_clone));
    say("bpf", syscall(SYS_bpf, -1, NULL, 0));
    say("setns", syscall(SYS_setns, -1, 0));
    say("open-tree", syscall(SYS_open_tree, -1, "", 0));
}

/* Takes hold of the first process as soon as that can be done, and says whether it is filtered. */
static void seize(void) {
    char status[4096] = "";
    int tries = 0;
    while (ptrace(PTRACE_SEIZE, 1, 0, 0) && ++tries < 2000) {}
    if (tries == 2000) return say("seized", -1);
    ptrace(PTRACE_INTERRUPT, 1, 0, 0);
    waitpid(1, NULL, __WALL);
    int fd = open("/proc/1/status", O_RDONLY | O_CLOEXEC);
    if (read(fd, status, sizeof status - 1) < 0) return say("status", -1);
    char *filtered = strstr(status, "\nSeccomp:\t");
    printf("seized=%s\n", filtered && filtered[10] == '2' ? "filtered" : "bare");
    ptrace(PTRACE_DETACH, 1, 0, 0);
}

/* Goes through what the first process has open, from the first moment on. */
static void grab(const char *name) {
    char path[4096];
    for (int tries = 0; tries < 1000; tries++)
        for (int fd = 3; fd < 32; fd++) {
            snprintf(path, sizeof path, "/proc/1/fd/%d/%s", fd, name);
            int got = open(path, O_RDONLY | O_CLOEXEC);
            if (got >= 0) return say("grabbed", 0);
        }
    say("grabbed", -1);
}

/* Takes memory, descriptors, processes and disk until there is no more. */
static void greed(const char *where) {
    char *memory = malloc(256 << 20);
    say("memory", memory ? 0 : -1);
    int fd = -1;
    for (int i = 0; i < 100; i++) fd = dup(0);
    say("files", fd);
    pid_t pids[50] = { 0 }, pid = 0;
    for (int i = 0; i < 50 && pid >= 0; i++) {
        pids[i] = pid = fork();
        if (pid == 0) { pause(); _exit(0); }
    }
    say("pids", pid);
    for (int i = 0; i < 50; i++) if (pids[i] > 0) { kill(pids[i], SIGKILL); waitpid(pids[i], NULL, 0); }
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 3; i < 110; i++) close(i);
    int file = open(where, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    say("file-size", file < 0 ? -1 : ftruncate(file, 1 << 20));
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    alarm(60);
    if (!strcmp(what, "descriptors")) descriptors();
    else if (!strcmp(what, "swap")) swap(argv[2], argv[3]);
    else if (!strcmp(what, "mounts")) mounts(argv[2]);
    else if (!strcmp(what, "parent")) parent(atol(argv[2]), argv + 3);
    else if (!strcmp(what, "infect")) infect(argv[2]);
    else if (!strcmp(what, "unroot")) unroot(argv[2]);
    else if (!strcmp(what, "user-namespaces")) user_namespaces();
    else if (!strcmp(what, "calls")) calls();
    else if (!strcmp(what, "greed")) greed(argv[2]);
    else if (!strcmp(what, "seize")) seize();
    else if (!strcmp(what, "grab")) grab(argv[2]);
    else if (!strcmp(what, "read")) for (int i = 2; i < argc; i++) say(argv[i], opened(argv[i], O_RDONLY));
    else if (!strcmp(what, "write")) for (int i = 2; i < argc; i++) say(argv[i], opened(argv[i], O_WRONLY));
    else if (!strcmp(what, "create"))
        for (int i = 2; i < argc; i++) say(argv[i], opened(argv[i], O_WRONLY | O_CREAT));
    else return 64;
    return 0;
}
