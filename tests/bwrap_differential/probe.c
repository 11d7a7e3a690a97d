/* The command: a list of verbs, carried out in order. */

/* Filesystems whose content is the kernel's and changes by itself. */
static int is_kernels(const char *path) {
    struct statfs about;
    if (statfs(path, &about) != 0) return 0;
    return about.f_type == 0x9fa0 || about.f_type == 0x62656572 || about.f_type == 0x63677270 ||
           about.f_type == 0x27e0eb;
}

static void list_entry(const char *path, int depth) {
    struct stat about;
    char text[4096];
    if (lstat(path, &about) != 0) {
        printf("%s (%s)\n", path, strerror(errno));
        return;
    }
    printf("%s %o %u %u", path, about.st_mode, about.st_uid, about.st_gid);
    if (S_ISLNK(about.st_mode)) {
        ssize_t got = readlink(path, text, sizeof text);
        printf(" -> ");
        escaped(text, got > 0 ? got : 0);
    } else if (S_ISCHR(about.st_mode) || S_ISBLK(about.st_mode)) {
        printf(" device %llx", (unsigned long long)about.st_rdev);
    } else if (S_ISREG(about.st_mode)) {
        printf(" size %lld", (long long)about.st_size);
        int fd = about.st_size > 300 ? -2 : open(path, O_RDONLY | O_NONBLOCK);
        if (fd == -1) printf(" (%s)", strerror(errno));
        if (fd >= 0) {
            ssize_t got = read(fd, text, sizeof text);
            printf(" ");
            escaped(text, got > 0 ? got : 0);
            close(fd);
        }
    }
    printf("\n");
    if (!S_ISDIR(about.st_mode) || depth == 0 || is_kernels(path)) return;
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, NULL, alphasort);
    if (count < 0) printf("%s/ (%s)\n", path, strerror(errno));
    for (int i = 0; i < count; i++) {
        char inner[4096];
        const char *name = entries[i]->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
        snprintf(inner, sizeof inner, "%s/%s", strcmp(path, "/") == 0 ? "" : path, name);
        list_entry(inner, depth - 1);
    }
}

static void said(const char *verb, const char *about, long result) {
    printf("%s %s: %s\n", verb, about, result < 0 ? strerror(errno) : "done");
}

static long write_file(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return -1;
    long result = write(fd, "written\n", 8);
    close(fd);
    return result;
}

/* The lock is taken by another process, at its own pace. */
static const char *locked(const char *path) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return strerror(errno);
    const char *verdict = "free";
    for (int i = 0; i < 200 && strcmp(verdict, "free") == 0; i++) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        if (fcntl(fd, F_GETLK, &lock) != 0) verdict = strerror(errno);
        else if (lock.l_type == F_RDLCK) verdict = "locked for reading";
        else if (lock.l_type == F_WRLCK) verdict = "locked for writing";
        else poll(NULL, 0, 5);
    }
    close(fd);
    return verdict;
}

/* A process that outlives the command. It has begun when this returns. */
static void leave_behind(void) {
    int line[2];
    char byte;
    fflush(stdout);
    if (pipe2(line, O_CLOEXEC) != 0) fail("pipe", "");
    if (fork() == 0) {
        close(line[0]);
        close(line[1]);
        for (;;) pause();
    }
    close(line[1]);
    if (read(line[0], &byte, 1) != 0) fail("read", "");
}

/* Waits until the parent sleeps: pid 1 is then done with what it does beside us when we begin. */
static void settle(void) {
    char text[4096] = "";
    int parent = 0, fd = openat(HOST_PROC, "self/status", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof text - 1) < 0) fail("read", "status");
    close(fd);
    char *at = strstr(text, "PPid:");
    if (!at || sscanf(at, "PPid: %d", &parent) != 1) fail("no parent in", text);
    for (int i = 0; i < 2000; i++) {
        char file[64], state = 0;
        snprintf(file, sizeof file, "%d/stat", parent);
        fd = openat(HOST_PROC, file, O_RDONLY | O_CLOEXEC);
        ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        close(fd);
        text[got > 0 ? got : 0] = 0;
        at = strrchr(text, ')');
        if (got <= 0 || (at && sscanf(at, ") %c", &state) == 1 && state == 'S')) return;
        poll(NULL, 0, 1);
    }
}

static void end_by(int signal) {
    fflush(stdout);
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    kill(getpid(), signal);
    for (;;) pause();
}

static void one_verb(char **words, int *at) {
    const char *verb = words[(*at)++];
    const char *first = words[*at];
    if (strcmp(verb, "show") == 0) {
        show();
        return;
    }
    if (strcmp(verb, "settled") == 0) {
        settle();
        return;
    }
    if (strcmp(verb, "behind") == 0) {
        leave_behind();
        return;
    }
    if (strcmp(verb, "pause") == 0)
        for (;;) pause();
    if (strcmp(verb, "ready") == 0) {
        printf("ready\n");
        fflush(stdout);
        if (write(READY, "r", 1) != 1) fail("write", "that it is ready");
        return;
    }
    if (strcmp(verb, "more-userns") == 0) {
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            said(verb, "", unshare(CLONE_NEWUSER));
            exit(0);
        }
        waitpid(pid, NULL, 0);
        return;
    }
    if (strcmp(verb, "chroot") == 0) {
        said(verb, "", chroot("/"));
        return;
    }
    if (!first) fail("no value for", verb);
    ++*at;
    if (strcmp(verb, "list") == 0) {
        section("list");
        list_entry(first, 6);
        section("did");
    } else if (strcmp(verb, "exit") == 0) {
        fflush(stdout);
        _exit(number(first));
    } else if (strcmp(verb, "end-by") == 0) end_by(number(first));
    else if (strcmp(verb, "output") == 0) dup2(number(first), 1);
    else if (strcmp(verb, "close") == 0) close(number(first));
    else if (strcmp(verb, "hangs-up") == 0) {
        int got = happens(number(first), POLLHUP, 400);
        printf("hangs-up %s: %s\n", first, got & POLLHUP ? "yes" : "no");
    } else if (strcmp(verb, "write") == 0) said(verb, first, write_file(first));
    else if (strcmp(verb, "mkdir") == 0) said(verb, first, mkdir(first, 0777));
    else if (strcmp(verb, "unlink") == 0) said(verb, first, unlink(first));
    else if (strcmp(verb, "chmod") == 0) said(verb, first, chmod(first, 0700));
    else if (strcmp(verb, "open") == 0) said(verb, first, open(first, O_RDONLY | O_CLOEXEC));
    else if (strcmp(verb, "fill") == 0) {
        static char block[65536];
        int fd = open(first, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        long total = 0;
        for (ssize_t got; total < (1 << 24) && (got = write(fd, block, sizeof block)) > 0;) total += got;
        printf("fill %s: %ld\n", first, total);
        close(fd);
    } else if (strcmp(verb, "locked") == 0) printf("locked %s: %s\n", first, locked(first));
    else fail("no such verb", verb);
}

static int run_verbs(int count, char **words) {
    const char *called = words[0];
    const char *base = strrchr(called, '/') ? strrchr(called, '/') + 1 : called;
    /* As a shell, or under any other name than its own, it says how it was called. */
    if (strcmp(base, "probe") != 0) {
        section("called");
        for (int i = 0; i < count; i++) printf("%s\n", words[i]);
        return 0;
    }
    section("did");
    for (int at = 1; at < count;) one_verb(words, &at);
    fflush(stdout);
    return 0;
}
