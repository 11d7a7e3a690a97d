/* Tries to get past a filter that asks somebody before it refuses: to be asked oneself, to be gone
   when the answer comes, to be interrupted, to be many. */
#include <pthread.h>
#include <sys/ptrace.h>
#include <sys/mman.h>
#include <sys/time.h>

#define ADDR_NO_RANDOMIZE 0x40000
/* Harmless, and allowed to everybody who is in no box. */
static long call(void) { return syscall(SYS_kcmp, getpid(), getpid(), 0, 0, 0); }

/* A filter that has one answer to this call, and allows all others. */
static long stack(unsigned flags, unsigned answer) {
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_kcmp, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog whole = { 4, program };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &whole);
}

/* A filter from a file. */
static long load(const char *name, unsigned flags) {
    static char bytes[65536];
    int fd = open(name, O_RDONLY);
    long length = fd < 0 ? 0 : read(fd, bytes, sizeof bytes);
    if (length <= 0) { perror(name); exit(9); }
    close(fd);
    struct sock_fprog whole = { length / 8, (void *)bytes };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &whole);
}

/* Lets every call go on that it is asked about. */
static pid_t let_all_go_on(int listener) {
    pid_t pid = fork();
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        struct seccomp_notif asked = { 0 };
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked)) _exit(1);
        struct seccomp_notif_resp go_on = { asked.id, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE };
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &go_on);
    }
}

static void with_own_listener(const char *listener_name, const char *call_name) {
    errno = 0;
    long fd = stack(SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_RET_USER_NOTIF);
    say(listener_name, fd);
    pid_t helper = fd < 0 ? 0 : let_all_go_on(fd);
    try(call_name, call());
    if (helper) kill(helper, SIGKILL), waitpid(helper, NULL, 0);
}

static void each_alone(void (*attempt)(void)) {
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) { attempt(); fflush(stdout); _exit(0); }
    waitpid(pid, NULL, 0);
}

static void plain(void) { try("call", call()); }
static void own_listener(void) { with_own_listener("own-listener", "own-listener-call"); }
static void nobody_listens(void) {
    try("deaf", stack(0, SECCOMP_RET_USER_NOTIF));
    try("deaf-call", call());
}
static void allows(void) { stack(0, SECCOMP_RET_ALLOW); try("allow-call", call()); }
static void logs(void) { stack(0, SECCOMP_RET_LOG); try("log-call", call()); }
static void traces(void) { stack(0, SECCOMP_RET_TRACE); try("trace-call", call()); }
/* All other flags beside it. */
static void every_flag(void) {
    int got = 0;
    for (unsigned flags = 0; flags < 128; flags++)
        if (flags & SECCOMP_FILTER_FLAG_NEW_LISTENER && stack(flags, SECCOMP_RET_USER_NOTIF) >= 0) got++;
    errno = EBUSY;
    say("any-listener", got ? 0 : -1);
}

static void vforked(void) {
    volatile long ret = 0;
    volatile int why = 0;
    pid_t pid = vfork();
    if (!pid) { ret = call(); why = errno; _exit(0); }
    waitpid(pid, NULL, 0);
    errno = why;
    say("vfork-call", ret);
}

static volatile long beats;
static void beat(int signal) { (void)signal; beats++; }

/* Calls while a timer interrupts; how often it went well, was refused, was interrupted. */
static void interrupted(const char *name, int flags) {
    struct sigaction action = { .sa_handler = beat, .sa_flags = flags };
    struct itimerval often = { { 0, 50 }, { 0, 50 } }, never = { { 0, 0 }, { 0, 0 } };
    long done = 0, refused = 0, broken_off = 0, other = 0;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (long i = 0; i < 4000 || (beats < 20 && i < 4000000); i++) {
        if (call() >= 0) done++;
        else if (errno == EPERM) refused++;
        else if (errno == EINTR) broken_off++;
        else other++;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    printf("%s-done=%ld\n%s-broken-off=%ld\n%s-other=%ld\n", name, done, name, broken_off, name, other);
    printf("%s-refused=%s\n%s-beats=%s\n", name, refused ? "some" : "none", name, beats >= 20 ? "some" : "few");
}
static void restarted(void) { interrupted("restarted", SA_RESTART); }
static void broken(void) { interrupted("broken", 0); }

static void *call_for_ever(void *done) {
    for (;;) if (call() >= 0) *(volatile long *)done = 1;
}
/* Threads that are killed in the middle of it, again and again. */
static void killed(void) {
    long *done = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < 50; round++) {
        pid_t pid = fork();
        if (!pid) {
            pthread_t thread;
            for (int i = 0; i < 4; i++) pthread_create(&thread, NULL, call_for_ever, done);
            for (;;) pause();
        }
        usleep(1000 + 100 * round);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    errno = EPERM;
    say("killed-call", *done ? 0 : -1);
}

/* Stays with what a call left behind, had it been made. */
static void leave(void) {
    int up[2];
    pipe(up);
    pid_t pid = fork();
    if (!pid) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        syscall(SYS_personality, ADDR_NO_RANDOMIZE);
        write(up[1], "x", 1);
        for (;;) pause();
    }
    char byte;
    read(up[0], &byte, 1);
    puts("up");
    fflush(stdout);
    getchar();
    kill(pid, SIGKILL);
}

static const char *every, *program;
static void every_alone(void) {
    try("every", load(every, 0));
    try("every-call", call());
}
static void every_without_program(void) {
    load(every, 0);
    with_own_listener("hole-listener", "hole-call");
}
static void and_program(void) {
    load(every, 0);
    try("ours", load(program, SECCOMP_FILTER_FLAG_NEW_LISTENER));
    try("beside-listener", stack(SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_RET_USER_NOTIF));
}
static void and_program_deaf(void) {
    load(every, 0);
    close(load(program, SECCOMP_FILTER_FLAG_NEW_LISTENER));
    with_own_listener("after-listener", "after-call");
}
static void and_another_deaf(void) {
    load(every, 0);
    close(stack(SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_RET_USER_NOTIF));
    with_own_listener("unruled-listener", "unruled-call");
}

/* Wants a listener until the end, and tells if it gets one. */
static void wait_for_a_chance(void) {
    puts("up");
    fflush(stdout);
    for (;;) {
        long fd = stack(SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_RET_USER_NOTIF);
        if (fd < 0) continue;
        puts("chance");
        fflush(stdout);
        let_all_go_on(fd);
        if (call() >= 0) puts("through");
        fflush(stdout);
        return;
    }
}

static void flood(long times) {
    long refused = 0;
    puts("up");
    fflush(stdout);
    for (long i = 0; i < times; i++) if (call() < 0 && errno == EPERM) refused++;
    printf("refused=%ld\n", refused);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "leave")) leave();
    else if (!strcmp(what, "wait")) wait_for_a_chance();
    else if (!strcmp(what, "flood")) flood(atol(argv[2]));
    else if (!strcmp(what, "emulate")) {
        every = argv[2], program = argv[3];
        each_alone(every_alone);
        each_alone(every_without_program);
        each_alone(and_program);
        each_alone(and_program_deaf);
        each_alone(and_another_deaf);
    } else {
        void (*all[])(void) = { plain, own_listener, nobody_listens, allows, logs, traces, every_flag,
            vforked, restarted, broken, killed };
        for (unsigned i = 0; i < sizeof all / sizeof *all; i++) each_alone(all[i]);
    }
    return 0;
}
