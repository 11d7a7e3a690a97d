/* What a process can tell about itself and its surroundings, in sections that begin with an @. */

static void section(const char *name) {
    printf("@%s\n", name);
}

/* One line, whatever the bytes. */
static void escaped(const char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        unsigned char c = bytes[i];
        if (c < 32 || c > 126 || c == '\\') printf("\\x%02x", c);
        else putchar(c);
    }
}

static void copied(const char *file) {
    char text[4096];
    int fd = openat(HOST_PROC, file, O_RDONLY);
    if (fd < 0) {
        printf("(%s: %s)\n", file, strerror(errno));
        return;
    }
    for (ssize_t got; (got = read(fd, text, sizeof text)) > 0;) fwrite(text, 1, got, stdout);
    close(fd);
}

static void show_identity(void) {
    uid_t uids[3];
    gid_t gids[3], groups[64];
    getresuid(&uids[0], &uids[1], &uids[2]);
    getresgid(&gids[0], &gids[1], &gids[2]);
    section("identity");
    printf("uid %u %u %u\ngid %u %u %u\ngroups", uids[0], uids[1], uids[2], gids[0], gids[1], gids[2]);
    int count = getgroups(64, groups);
    for (int i = 0; i < count; i++) printf(" %u", groups[i]);
    printf("\n");
    section("uid_map");
    copied("self/uid_map");
    section("gid_map");
    copied("self/gid_map");
    section("setgroups");
    copied("self/setgroups");
}

static void show_rights(void) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2] = {{0}};
    uint64_t bounding = 0, ambient = 0;
    syscall(SYS_capget, &head, sets);
    for (int cap = 0; cap < 64; cap++) {
        if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1) bounding |= 1ULL << cap;
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, cap, 0, 0) == 1) ambient |= 1ULL << cap;
    }
    section("rights");
    printf("effective %08x%08x\n", sets[1].effective, sets[0].effective);
    printf("permitted %08x%08x\n", sets[1].permitted, sets[0].permitted);
    printf("inheritable %08x%08x\n", sets[1].inheritable, sets[0].inheritable);
    printf("bounding %016llx\nambient %016llx\n", (unsigned long long)bounding, (unsigned long long)ambient);
    printf("securebits %d\n", prctl(PR_GET_SECUREBITS, 0, 0, 0, 0));
    printf("keepcaps %d\n", prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0));
    printf("no_new_privs %d\n", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    printf("seccomp %d\n", prctl(PR_GET_SECCOMP, 0, 0, 0, 0));
}

static void show_process(void) {
    int death = 0, reaper = 0, tty = 0;
    char stat[1024] = "";
    int fd = openat(HOST_PROC, "self/stat", O_RDONLY);
    if (fd >= 0 && read(fd, stat, sizeof stat - 1) > 0) {
        char *after = strrchr(stat, ')');
        if (after) sscanf(after, ") %*c %*d %*d %*d %d", &tty);
    }
    close(fd);
    prctl(PR_GET_PDEATHSIG, &death);
    prctl(PR_GET_CHILD_SUBREAPER, &reaper);
    mode_t mask = umask(0);
    umask(mask);
    section("process");
    printf("pid %d\nparent %d\n", getpid(), getppid());
    printf("session %s\n", getsid(0) == getpid() ? "leader" : getsid(0) == 0 ? "of another pid namespace" : "member");
    printf("group %s\n", getpgrp() == getpid() ? "leader" : getpgrp() == 0 ? "of another pid namespace" : "member");
    printf("terminal %s\n", tty ? "yes" : "no");
    printf("dies with parent %d\nsubreaper %d\n", death, reaper);
    printf("dumpable %d\n", prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
    printf("umask %03o\n", mask);
    printf("nice %d\n", getpriority(PRIO_PROCESS, 0));
    printf("scheduler %d\n", sched_getscheduler(0));
    printf("personality %x\n", personality(0xffffffff));
    section("limits");
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit limit;
        if (getrlimit(i, &limit) == 0)
            printf("%d %llx %llx\n", i, (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
    }
}

static void show_signals(void) {
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    section("signals");
    for (int i = 1; i <= 64; i++) {
        struct sigaction action;
        if (sigismember(&blocked, i) == 1) printf("blocked %d\n", i);
        if (sigaction(i, NULL, &action) == 0 && action.sa_handler == SIG_IGN) printf("ignored %d\n", i);
    }
}

/* Number, kind, way of opening and name of everything that is open. */
static void show_descriptors(void) {
    section("descriptors");
    for (int fd = 0; fd < 1024; fd++) {
        struct stat about;
        char link[64], name[4096] = "";
        int closes = fcntl(fd, F_GETFD);
        if (closes < 0) continue;
        int opened = fcntl(fd, F_GETFL);
        snprintf(link, sizeof link, "self/fd/%d", fd);
        ssize_t got = readlinkat(HOST_PROC, link, name, sizeof name - 1);
        name[got > 0 ? got : 0] = 0;
        fstat(fd, &about);
        printf("%d type %o mode %d %s%s%s\n", fd, about.st_mode & S_IFMT, opened & O_ACCMODE,
               opened & O_PATH ? "path " : "", closes & FD_CLOEXEC ? "closes " : "", name);
    }
}

static void show_namespaces(void) {
    static const char *const kinds[] = {"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"};
    section("namespaces");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char link[64], name[128] = "";
        snprintf(link, sizeof link, "self/ns/%s", kinds[i]);
        ssize_t got = readlinkat(HOST_PROC, link, name, sizeof name - 1);
        name[got > 0 ? got : 0] = 0;
        printf("%s %s\n", kinds[i], got > 0 ? name : strerror(errno));
    }
}

static void show_network(void) {
    struct ifaddrs *list = NULL;
    section("network");
    if (getifaddrs(&list) != 0) printf("(%s)\n", strerror(errno));
    for (struct ifaddrs *one = list; one; one = one->ifa_next) {
        char address[128] = "-", mask[128] = "-";
        int family = one->ifa_addr ? one->ifa_addr->sa_family : 0;
        if (family == AF_INET || family == AF_INET6) {
            size_t skip = family == AF_INET ? offsetof(struct sockaddr_in, sin_addr) : offsetof(struct sockaddr_in6, sin6_addr);
            inet_ntop(family, (char *)one->ifa_addr + skip, address, sizeof address);
            if (one->ifa_netmask) inet_ntop(family, (char *)one->ifa_netmask + skip, mask, sizeof mask);
        }
        printf("%s flags %x family %d %s %s\n", one->ifa_name, one->ifa_flags, family, address, mask);
    }
}

/* Whom one sees in the /proc of the sandbox. */
static void show_processes(void) {
    struct dirent **entries = NULL;
    int count = scandir("/proc", &entries, NULL, alphasort);
    section("processes");
    for (int i = 0; i < count; i++) {
        char file[300], name[64] = "";
        if (atoi(entries[i]->d_name) == 0) continue;
        snprintf(file, sizeof file, "/proc/%s/comm", entries[i]->d_name);
        int fd = open(file, O_RDONLY);
        if (fd < 0 || read(fd, name, sizeof name - 1) < 0) name[0] = 0;
        close(fd);
        name[strcspn(name, "\n")] = 0;
        printf("%s %s\n", entries[i]->d_name, name);
    }
}

static void show(void) {
    char name[4096];
    struct utsname host;
    show_identity();
    show_rights();
    show_process();
    show_signals();
    section("environment");
    for (char **one = environ; *one; one++) {
        escaped(*one, strlen(*one));
        printf("\n");
    }
    section("directory");
    /* The call itself: libc would refuse a directory that lies outside of the root. */
    if (syscall(SYS_getcwd, name, sizeof name) < 0) printf("(%s)\n", strerror(errno));
    else printf("%s\n", name);
    uname(&host);
    section("hostname");
    printf("%s %s\n", host.nodename, host.domainname);
    show_descriptors();
    show_namespaces();
    show_network();
    show_processes();
    section("cgroup");
    copied("self/cgroup");
    section("mounts");
    copied("self/mountinfo");
}
