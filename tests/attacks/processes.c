static char secret[64] = "the victim's secret";

static void hit(int number) { (void)number; write(1, "hit\n", 4); _exit(42); }
/* A process of the host with something to lose. Lives until it is hit or its input ends. */
static void victim(const char *treasure) {
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    signal(SIGUSR1, hit);
    signal(SIGIO, hit);
    dup2(open(treasure, O_RDONLY), 77);
    printf("%d %p\n", getpid(), (void *)secret);
    fflush(stdout);
    char byte;
    read(0, &byte, 1);
}

static pid_t target;
static void *address;

static long memory_read(void) {
    char text[64];
    struct iovec here = {text, 64}, there = {address, 64};
    return syscall(SYS_process_vm_readv, target, &here, 1, &there, 1, 0);
}
static long memory_write(void) {
    char text[64] = "changed";
    struct iovec here = {text, 64}, there = {address, 64};
    return syscall(SYS_process_vm_writev, target, &here, 1, &there, 1, 0);
}
static long proc_file(const char *name, int flags) {
    char link[64];
    snprintf(link, sizeof link, "/proc/%d/%s", target, name);
    return open(link, flags);
}
static long proc_mem(void) { return proc_file("mem", O_RDONLY); }
static long proc_environ(void) { return proc_file("environ", O_RDONLY); }
static long proc_maps(void) { return proc_file("maps", O_RDONLY); }
static long proc_fd(void) { return proc_file("fd/77", O_RDONLY); }
static long proc_root(void) { return proc_file("root/etc/passwd", O_RDONLY); }
static long proc_cwd(void) { return proc_file("cwd", O_PATH); }
static long attach(void) {
    if (ptrace(PTRACE_ATTACH, target, 0, 0) < 0) return -1;
    waitpid(target, 0, 0);
    return ptrace(PTRACE_DETACH, target, 0, 0);
}
static long seize(void) {
    if (ptrace(PTRACE_SEIZE, target, 0, 0) < 0) return -1;
    return 0;
}
static long steal_descriptor(void) {
    int fd = syscall(434, target, 0);
    if (fd < 0) return -1;
    return syscall(438, fd, 77, 0);
}
static long steal_own_childs(void) {
    /* The call itself, apart from whether the victim can be named. */
    pid_t pid = fork();
    if (pid == 0) { pause(); _exit(0); }
    int fd = syscall(434, pid, 0);
    long r = syscall(438, fd, 0, 0);
    int e = errno;
    kill(pid, SIGKILL);
    waitpid(pid, 0, 0);
    errno = e;
    return r;
}
static long own_by_signal(void) {
    int ends[2];
    pipe(ends);
    return fcntl(ends[0], F_SETOWN, target);
}
static long compare(void) { return syscall(SYS_kcmp, getpid(), target, 0, 0, 0); }
static long limits(void) { struct rlimit old; return syscall(SYS_prlimit64, target, RLIMIT_NOFILE, 0, &old); }
static long nice_it(void) { return setpriority(PRIO_PROCESS, target, 10); }
static long signal_by_pidfd(void) {
    int fd = syscall(434, target, 0);
    if (fd < 0) return -1;
    return syscall(424, fd, 0, 0, 0);
}
static long signal_it(void) { return kill(target, SIGUSR1); }

static void on_process(void) {
    probe("vm-read", memory_read);
    probe("vm-write", memory_write);
    probe("proc-mem", proc_mem);
    probe("proc-environ", proc_environ);
    probe("proc-maps", proc_maps);
    probe("proc-fd", proc_fd);
    probe("proc-root", proc_root);
    probe("proc-cwd", proc_cwd);
    probe("ptrace-attach", attach);
    probe("ptrace-seize", seize);
    probe("pidfd-getfd", steal_descriptor);
    probe("pidfd-getfd-child", steal_own_childs);
    probe("setown", own_by_signal);
    probe("kcmp", compare);
    probe("prlimit", limits);
    probe("renice", nice_it);
    probe("pidfd-signal", signal_by_pidfd);
    probe("signal", signal_it);
}

static const char *queue(key_t key) {
    static char name[64];
    snprintf(name, sizeof name, "/cowork-attack-%d", key);
    return name;
}
/* One object of each kind, under one key. */
static int ipc_make(key_t key) {
    int shm = shmget(key, 4096, IPC_CREAT | 0666), msg = msgget(key, IPC_CREAT | 0666), sem = semget(key, 1, IPC_CREAT | 0666);
    if (shm < 0 || msg < 0 || sem < 0) return perror("ipc"), 1;
    strcpy(shmat(shm, 0, 0), "untouched");
    return mq_open(queue(key), O_CREAT | O_RDWR, 0666, 0) < 0;
}
static void ipc_attack(key_t key, int shm) {
    int id = shmget(key, 0, 0);
    printf("shm: %s\n", id < 0 ? "refused" : "done");
    char *by_number = shmat(shm, 0, 0);
    if (id >= 0 || by_number != (void *)-1) strcpy(id >= 0 ? shmat(id, 0, 0) : by_number, "touched");
    printf("shm-id: %s\n", by_number == (void *)-1 ? "refused" : "done");
    printf("msg: %s\n", msgget(key, 0) < 0 ? "refused" : "done");
    printf("sem: %s\n", semget(key, 0, 0) < 0 ? "refused" : "done");
    printf("queue: %s\n", mq_open(queue(key), O_RDWR) < 0 ? "refused" : "done");
}
static void ipc_show(key_t key) {
    int id = shmget(key, 0, 0);
    printf("id %d %s\n", id, (char *)shmat(id, 0, 0));
}
static void ipc_remove(key_t key) {
    shmctl(shmget(key, 0, 0), IPC_RMID, 0);
    msgctl(msgget(key, 0), IPC_RMID, 0);
    semctl(semget(key, 0, 0), 0, IPC_RMID);
    mq_unlink(queue(key));
}

/* Starts a program whose session and user keyrings hold a key. */
static int with_key(char **argv) {
    syscall(SYS_keyctl, 1, 0);
    syscall(SYS_add_key, "user", argv[0], "payload", 7, -3);
    syscall(SYS_add_key, "user", argv[0], "payload", 7, -4);
    execv(argv[1], argv + 1);
    return perror(argv[1]), 1;
}
static void has_key(const char *name) {
    char line[512];
    int listed = 0;
    printf("session: %s\n", syscall(SYS_keyctl, 10, -3, "user", name, 0) < 0 ? "refused" : "done");
    printf("user: %s\n", syscall(SYS_keyctl, 10, -4, "user", name, 0) < 0 ? "refused" : "done");
    printf("request: %s\n", syscall(SYS_request_key, "user", name, 0, 0) < 0 ? "refused" : "done");
    FILE *keys = fopen("/proc/keys", "r");
    while (keys && fgets(line, sizeof line, keys))
        if (strstr(line, name)) listed = 1;
    printf("listed: %s\n", listed ? "done" : "refused");
}

/* Children in every way that might outlive the box; each tells its number, keeps the output open. */
static void stay(const char *seconds) {
    dprintf(1, "%d\n", getpid());
    execl("/bin/sleep", "sleep", seconds, (char *)0);
    _exit(1);
}
static void outlive(const char *seconds) {
    if (fork() == 0) { setsid(); signal(SIGHUP, SIG_IGN); signal(SIGTERM, SIG_IGN); stay(seconds); }
    if (fork() == 0) { if (fork() == 0) { setsid(); stay(seconds); } _exit(0); }
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    if (fork() == 0) { prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0); if (fork() == 0) stay(seconds); _exit(0); }
    if (syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0) == 0) { setsid(); stay(seconds); }
    if (syscall(SYS_clone, CLONE_UNTRACED | SIGCHLD, 0, 0, 0, 0) == 0) { setpgid(0, 0); stay(seconds); }
}

int main(int argc, char **argv) {
    const char *what = argv[1];
    if (argc < 2) return 2;
    setvbuf(stdout, 0, _IOLBF, 0);
    dir = argc > 2 ? argv[2] : ".";
#define IS(name) (strcmp(what, name) == 0)
    if (IS("namespaces")) namespaces();
    if (IS("global")) global();
    if (IS("plant")) plant();
    if (IS("calls")) calls();
    if (IS("images")) images(atoi(argv[2]), atoi(argv[3]));
    if (IS("descriptors")) descriptors(argv[2]);
    if (IS("victim")) victim(argv[2]);
    if (IS("ipc-make")) return ipc_make(atoi(argv[2]));
    if (IS("ipc-attack")) ipc_attack(atoi(argv[2]), atoi(argv[3]));
    if (IS("ipc-show")) ipc_show(atoi(argv[2]));
    if (IS("ipc-remove")) ipc_remove(atoi(argv[2]));
    if (IS("with-key")) return with_key(argv + 2);
    if (IS("has-key")) has_key(argv[2]);
    if (IS("outlive")) outlive(argv[2]);
    if (IS("crash")) raise(SIGSEGV);
    if (IS("process")) { target = atoi(argv[2]); address = (void *)strtoul(argv[3], 0, 0); on_process(); }
    return 0;
}
