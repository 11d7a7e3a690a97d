#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
/* From linux/mount.h above; sys/mount.h cannot be included beside it everywhere. */
int mount(const char *, const char *, const char *, unsigned long, const void *);
int umount2(const char *, int);
#define BIND 4096
#define REMOUNT 32
#define REC 16384
#define PRIVATE (1 << 18)

static char *dir; /* a folder of the attacker's own */
static char path[4096];

static const char *in(const char *name) {
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static int put(const char *file, const char *text) {
    int fd = open(file, O_WRONLY);
    if (fd < 0) return -1;
    int r = write(fd, text, strlen(text)) < 0 ? -1 : 0;
    close(fd);
    return r;
}

/* Runs one attack in a process of its own and says how it went. */
static void probe(const char *name, long (*attack)(void)) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        errno = 0;
        long r = attack();
        if (r >= 0) printf("%s: done\n", name);
        else printf("%s: refused %s\n", name, strerrorname_np(errno));
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) printf("%s: killed %d\n", name, WTERMSIG(status));
}
