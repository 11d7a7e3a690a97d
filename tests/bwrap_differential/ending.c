/* The starter's second half: starts bwrap, plays the part of the caller meanwhile, and reports. */

#define MOMENT 400 /* how long to look for something that ought not to happen */

static FILE *report;

static void execute(char **words) {
    if (new_session || tty_slave >= 0) setsid();
    if (tty_slave >= 0) {
        ioctl(tty_slave, TIOCSCTTY, 0);
        for (int fd = 0; fd < 3; fd++) dup2(tty_slave, fd);
    }
    for (int i = 1; i < 64; i++) {
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, i);
        if (ignored[i]) signal(i, SIG_IGN);
        if (blocked[i]) sigprocmask(SIG_BLOCK, &one, NULL);
    }
    if (mask >= 0) umask(mask);
    char *whole[32];
    int count = 0;
    for (char **one = environ; *one && count < 20; one++) whole[count++] = *one;
    for (int i = 0; i < entry_count; i++) whole[count++] = entries[i];
    whole[count] = NULL;
    execve(words[0], words + 1, whole);
    fail("execute", words[0]);
}

static int is_companion(pid_t pid) {
    for (int i = 0; i < companion_count; i++)
        if (companions[i] == pid) return 1;
    return 0;
}

static int children_of(pid_t pid, pid_t *list, int room) {
    char file[64];
    int count = 0;
    snprintf(file, sizeof file, "/proc/%d/task/%d/children", pid, pid);
    FILE *in = fopen(file, "re");
    if (!in) return 0;
    while (count < room && fscanf(in, "%d", &list[count]) == 1) count++;
    fclose(in);
    return count;
}

/* All whose parent has gone have become our children. Gives the number of those that are still there. */
static int left_behind(pid_t *list, int room) {
    int count = 0;
    pid_t all[64];
    while (waitpid(-1, NULL, WNOHANG) > 0) {}
    int found = children_of(getpid(), all, 64);
    for (int i = 0; i < found && count < room; i++)
        if (!is_companion(all[i])) list[count++] = all[i];
    return count;
}

static int compare_names(const void *left, const void *right) {
    return strcmp(left, right);
}

static void name_all(pid_t pid, char names[][32], int *count) {
    char file[64];
    pid_t below[64];
    snprintf(file, sizeof file, "/proc/%d/comm", pid);
    FILE *in = fopen(file, "re");
    if (in && *count < 64 && fscanf(in, "%31s", names[*count]) == 1) ++*count;
    if (in) fclose(in);
    int found = children_of(pid, below, 64);
    for (int i = 0; i < found; i++) name_all(below[i], names, count);
}

static void report_left(void) {
    pid_t list[64];
    char names[64][32];
    int named = 0, count;
    long end = now() + MOMENT;
    /* Whoever was told to end gets the time for it. */
    while ((count = left_behind(list, 64)) > 0 && now() < end) {
        int process = syscall(SYS_pidfd_open, list[0], 0);
        if (process < 0) continue;
        happens(process, POLLIN, end - now());
        close(process);
    }
    for (int i = 0; i < count; i++) name_all(list[i], names, &named);
    qsort(names, named, sizeof *names, compare_names);
    fprintf(report, "left %d", named);
    for (int i = 0; i < named; i++) fprintf(report, " %s", names[i]);
    fprintf(report, "\n");
    for (int round = 0; round < 1000 && (count = left_behind(list, 64)) > 0; round++) {
        for (int i = 0; i < count; i++) kill(list[i], SIGKILL);
        poll(NULL, 0, 1);
    }
}

static void await_ready(const char *what) {
    char byte;
    int got = happens(ready_end, POLLIN, patience);
    fprintf(report, "%s %s\n", what, got & POLLIN && read(ready_end, &byte, 1) == 1 ? "yes" : "no");
}

/* Reads the JSON that bwrap writes to its --info-fd, and maps the ids of the process named there. */
static void write_maps(void) {
    char text[4096] = "", file[64], line[64];
    size_t length = 0;
    int child = 0;
    while (!strchr(text, '}') && happens(info_end, POLLIN, patience)) {
        ssize_t got = read(info_end, text + length, sizeof text - 1 - length);
        if (got <= 0) break;
        length += got;
    }
    char *at = strstr(text, "\"child-pid\": ");
    if (!at || sscanf(at, "\"child-pid\": %d", &child) != 1) {
        fprintf(report, "no child in %s\n", text);
        return;
    }
    snprintf(file, sizeof file, "/proc/%d/setgroups", child);
    put_all(file, "deny");
    snprintf(file, sizeof file, "/proc/%d/uid_map", child);
    snprintf(line, sizeof line, "%ld %u 1", map_uid, getuid());
    put_all(file, line);
    snprintf(file, sizeof file, "/proc/%d/gid_map", child);
    snprintf(line, sizeof line, "%ld %u 1", map_gid, getgid());
    put_all(file, line);
    fprintf(report, "maps written\n");
}

static void release(void) {
    if (map_uid >= 0) write_maps();
    else {
        int early = happens(ready_end, POLLIN, MOMENT / 2);
        fprintf(report, "waits %s\n", early ? "no" : "yes");
    }
    if (write(held_end, "g", 1) != 1) fprintf(report, "nobody waits\n");
    close(held_end);
}

static void report_end(pid_t pid) {
    int process = syscall(SYS_pidfd_open, pid, 0), status = 0;
    if (process < 0) fail("watch", "bwrap");
    if (!happens(process, POLLIN, patience)) {
        fprintf(report, "ended not\n");
        kill(pid, SIGKILL);
    }
    waitpid(pid, &status, 0);
    close(process);
    if (WIFEXITED(status)) fprintf(report, "ended %d\n", WEXITSTATUS(status));
    else fprintf(report, "ended by signal %d\n", WTERMSIG(status));
}

static int start(char **words) {
    for (int fd = 3; fd < 1024; fd++) close(fd);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (words++; *words && strcmp(*words, "--") != 0;) words += arrange(words);
    if (!*words || !report_path) fail("nothing to", "start");
    words++;
    if (fcntl(HOST_PROC, F_GETFD) < 0) only_descriptor(HOST_PROC, "/proc", O_RDONLY | O_DIRECTORY);
    int fd = open(report_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    report = fdopen(own(fd), "w");
    if (!report) fail("open", report_path);
    pid_t relaying = tty_master >= 0 ? relay() : 0;
    if (relaying) companions[companion_count++] = relaying;
    int dying[2] = {-1, -1};
    if (dies_first) {
        if (pipe(dying) != 0) fail("pipe", "");
        dying[0] = own(dying[0]), dying[1] = own(dying[1]);
    }
    pid_t pid = fork();
    if (pid == 0 && dies_first) {
        char byte;
        close(dying[1]);
        if (fork() == 0) execute(words);
        if (read(dying[0], &byte, 1) >= 0) _exit(0);
    }
    if (pid == 0) execute(words);
    /* What was opened for bwrap is bwrap's alone now. */
    if (tty_slave >= 0) close(tty_slave);
    for (int fd = 3; fd < OWN; fd++) close(fd);
    if (held_end >= 0) release();
    if (ready_end >= 0) await_ready("began");
    if (signal_to_send) kill(pid, signal_to_send);
    close(dying[1]);
    report_end(pid);
    report_left();
    if (relaying) waitpid(relaying, NULL, 0);
    fclose(report);
    return 0;
}

int main(int count, char **words) {
    if (count > 1 && strcmp(words[1], "start") == 0) return start(words + 1);
    return run_verbs(count, words);
}
