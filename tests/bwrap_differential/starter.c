/* bwrap's caller: arranges what a caller can arrange, starts it, and says how it ended and what it left. */

static int ready_end = -1;      /* our end of what the command writes to when it has begun */
static int held_end = -1;       /* keeps bwrap waiting until it is written to */
static int info_end = -1;       /* where bwrap writes --info-fd, when we have to read it */
static int tty_master = -1;
static int tty_slave = -1;
static int signal_to_send = 0;
static int dies_first = 0;      /* the process that starts bwrap ends before it */
static int new_session = 0;
static int ignored[64], blocked[64]; /* by signal */
static long patience = 20000;   /* much longer than anything takes; reached only when something hangs */
static char *entries[8];        /* more of bwrap's environment, well-formed or not */
static int entry_count = 0;
static int mask = -1;           /* bwrap's umask */
static long map_uid = -1, map_gid = -1;
static pid_t companions[8];     /* our own: not left behind by anybody */
static int companion_count = 0;
static char *report_path = NULL;

/* A copy above all numbers that a case uses. */
static int own(int fd) {
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, OWN);
    if (copy < 0) fail("copy", "a descriptor");
    close(fd);
    return copy;
}

static void place(int fd, int wanted) {
    if (fd < 0) fail("open for", "a descriptor");
    if (fd == wanted) return;
    if (dup2(fd, wanted) < 0) fail("dup2", "");
    close(fd);
}

/* The read end goes where bwrap is told to look; the other one is ours. */
static int line_to(int wanted, int outward) {
    int line[2];
    if (pipe(line) != 0) fail("pipe", "");
    int kept = own(line[outward ? 0 : 1]);
    place(line[outward ? 1 : 0], wanted);
    return kept;
}

static pid_t companion(void) {
    pid_t pid = fork();
    if (pid < 0) fail("fork", "");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(0), close(1), close(2);
    } else companions[companion_count++] = pid;
    return pid;
}

static void map_self(long inside_uid, long inside_gid, uid_t uid, gid_t gid) {
    char text[64];
    put_all("/proc/self/setgroups", "deny");
    snprintf(text, sizeof text, "%ld %u 1", inside_uid, uid);
    put_all("/proc/self/uid_map", text);
    snprintf(text, sizeof text, "%ld %u 1", inside_gid, gid);
    put_all("/proc/self/gid_map", text);
}

/* Somebody in a user namespace, and in further ones below it; waits there until we end. */
static void holder(long inside, int user_fd, int second_fd, int pid_fd) {
    int line[2];
    char file[64];
    pid_t inner = 0;
    uid_t uid = getuid();
    gid_t gid = getgid();
    if (pipe2(line, O_CLOEXEC) != 0) fail("pipe", "");
    line[0] = own(line[0]), line[1] = own(line[1]);
    pid_t pid = companion();
    if (pid == 0) {
        pid_t child = 0;
        if (unshare(CLONE_NEWUSER | (pid_fd >= 0 ? CLONE_NEWPID : 0)) != 0) _exit(1);
        map_self(inside, inside, uid, gid);
        if (second_fd >= 0 || pid_fd >= 0) {
            int done[2];
            if (pipe2(done, O_CLOEXEC) != 0) _exit(1);
            child = fork();
            if (child == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (second_fd >= 0) {
                    if (unshare(CLONE_NEWUSER) != 0) _exit(1);
                    map_self(inside, inside, inside, inside);
                }
                if (write(done[1], "d", 1) != 1) _exit(1);
                close(line[1]);
                for (;;) pause();
            }
            char byte;
            if (read(done[0], &byte, 1) != 1) _exit(1);
        }
        if (write(line[1], &child, sizeof child) < 0) _exit(1);
        for (;;) pause();
    }
    close(line[1]);
    if (read(line[0], &inner, sizeof inner) != sizeof inner) fail("make", "namespaces");
    close(line[0]);
    snprintf(file, sizeof file, "/proc/%d/ns/user", pid);
    place(open(file, O_RDONLY), user_fd);
    if (second_fd >= 0) {
        snprintf(file, sizeof file, "/proc/%d/ns/user", inner);
        place(open(file, O_RDONLY), second_fd);
    }
    if (pid_fd >= 0) {
        snprintf(file, sizeof file, "/proc/%d/ns/pid_for_children", pid);
        place(open(file, O_RDONLY), pid_fd);
    }
}

/* From here on mounts can be made that nobody else sees. */
static void own_mounts(void) {
    uid_t uid = getuid();
    gid_t gid = getgid();
    if (unshare(CLONE_NEWNS | (uid ? CLONE_NEWUSER : 0)) != 0) fail("unshare", "mounts");
    if (uid) map_self(uid, gid, uid, gid);
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) fail("make private", "/");
}

static void mount_tmpfs(const char *path, const char *flags) {
    static const struct { const char *name; unsigned long bit; } known[] = {
        {"ro", MS_RDONLY}, {"nosuid", MS_NOSUID}, {"nodev", MS_NODEV}, {"noexec", MS_NOEXEC},
        {"noatime", MS_NOATIME}, {"nosymfollow", 256},
    };
    unsigned long bits = 0;
    char file[4096];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(flags, known[i].name)) bits |= known[i].bit;
    if (mount("tmpfs", path, "tmpfs", bits & ~MS_RDONLY, "mode=755") != 0) fail("mount on", path);
    snprintf(file, sizeof file, "%s/mounted", path);
    int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, "mounted\n", 8) != 8) fail("write", file);
    close(fd);
    if (bits & MS_RDONLY && mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | bits, NULL) != 0) fail("remount", path);
}

static void open_tty(void) {
    char name[64];
    tty_master = own(posix_openpt(O_RDWR | O_NOCTTY));
    if (grantpt(tty_master) != 0 || unlockpt(tty_master) != 0) fail("unlock", "a terminal");
    if (ptsname_r(tty_master, name, sizeof name) != 0) fail("name", "a terminal");
    tty_slave = own(open(name, O_RDWR | O_NOCTTY));
}

/* Copies what is said on the terminal to our output, until nobody can say anything any more. */
static pid_t relay(void) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    char text[4096];
    close(tty_slave);
    for (ssize_t got; (got = read(tty_master, text, sizeof text)) > 0 || (got < 0 && errno == EINTR);)
        if (got > 0 && write(1, text, got) != got) break;
    _exit(0);
}

static void only_descriptor(int fd, const char *path, int flags) {
    place(open(path, flags, 0600), fd);
}

/* One arrangement; says how many words it took. */
static int arrange(char **words) {
    const char *what = words[0];
    if (strcmp(what, "report") == 0) report_path = words[1];
    else if (strcmp(what, "umask") == 0) mask = strtol(words[1], NULL, 8);
    else if (strcmp(what, "chdir") == 0) {
        if (chdir(words[1]) != 0) fail("chdir", words[1]);
    } else if (strcmp(what, "rmdir") == 0) {
        if (rmdir(words[1]) != 0) fail("rmdir", words[1]);
    } else if (strcmp(what, "close") == 0) close(number(words[1]));
    else if (strcmp(what, "ignore") == 0) ignored[number(words[1])] = 1;
    else if (strcmp(what, "block") == 0) blocked[number(words[1])] = 1;
    else if (strcmp(what, "entry") == 0) entries[entry_count++] = words[1];
    else if (strcmp(what, "patience") == 0) patience = number(words[1]);
    else if (strcmp(what, "signal") == 0) signal_to_send = number(words[1]);
    else if (strcmp(what, "ready-on") == 0) ready_end = line_to(number(words[1]), 1);
    else if (strcmp(what, "held") == 0) held_end = line_to(number(words[1]), 0);
    else if (strcmp(what, "info-to") == 0) info_end = line_to(number(words[1]), 1);
    else if (strcmp(what, "open-files") == 0) {
        struct rlimit limit = {number(words[1]), number(words[1])};
        setrlimit(RLIMIT_NOFILE, &limit);
    } else if (strcmp(what, "dies-first") == 0) return dies_first = 1;
    else if (strcmp(what, "session") == 0) return new_session = 1;
    else if (strcmp(what, "own-mounts") == 0) return own_mounts(), 1;
    else if (strcmp(what, "shared") == 0) {
        if (mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL) != 0) fail("share", "/");
        return 1;
    } else if (strcmp(what, "tty") == 0) return open_tty(), 1;
    else if (strcmp(what, "read") == 0) return only_descriptor(number(words[1]), words[2], O_RDONLY), 3;
    else if (strcmp(what, "append") == 0)
        return only_descriptor(number(words[1]), words[2], O_WRONLY | O_CREAT | O_APPEND), 3;
    else if (strcmp(what, "path") == 0) return only_descriptor(number(words[1]), words[2], O_PATH), 3;
    else if (strcmp(what, "tmpfs") == 0) return mount_tmpfs(words[1], words[2]), 3;
    else if (strcmp(what, "maps") == 0) return map_uid = number(words[1]), map_gid = number(words[2]), 3;
    else if (strcmp(what, "pipe") == 0) {
        int line[2];
        if (pipe(line) != 0) fail("pipe", "");
        line[0] = own(line[0]), line[1] = own(line[1]);
        place(line[0], number(words[1])), place(line[1], number(words[2]));
        return 3;
    } else if (strcmp(what, "text") == 0) {
        int kept = line_to(number(words[1]), 0);
        if (write(kept, words[2], strlen(words[2])) < 0) fail("write", words[2]);
        close(kept);
        return 3;
    } else if (strcmp(what, "userns") == 0) return holder(number(words[2]), number(words[1]), -1, -1), 3;
    else if (strcmp(what, "two-userns") == 0)
        return holder(number(words[3]), number(words[1]), number(words[2]), -1), 4;
    else if (strcmp(what, "userns-and-pidns") == 0)
        return holder(number(words[3]), number(words[1]), -1, number(words[2])), 4;
    else fail("no such arrangement", what);
    return 2;
}
