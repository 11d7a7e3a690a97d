/* One program with two roles: called with `start` it is bwrap's caller, else the command that bwrap runs. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/capability.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The host's /proc, open in every sandbox: what a process is can be read there whatever is mounted. */
#define HOST_PROC 100
/* Where the command says that it has begun. */
#define READY 101
/* The starter's own descriptors lie above this, and are closed when it executes something. */
#define OWN 300

static void fail(const char *what, const char *about) {
    fprintf(stderr, "tools: %s %s: %s\n", what, about, strerror(errno));
    exit(125);
}

static long number(const char *text) {
    return strtol(text, NULL, 0);
}

static void put_all(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) fail("write", path);
    close(fd);
}

static long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

/* Whether something happens on the descriptor before the time is over. */
static int happens(int fd, short what, long milliseconds) {
    long end = now() + milliseconds;
    for (;;) {
        long left = end - now();
        struct pollfd one = {.fd = fd, .events = what};
        int got = poll(&one, 1, left > 0 ? (int)left : 0);
        if (got > 0) return one.revents;
        if (got == 0) return 0;
        if (errno != EINTR) fail("poll", "");
    }
}
