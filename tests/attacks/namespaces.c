/* The rights to mount: root's own, or those over namespaces of one's own. */
static void enter(void) {
    char map[64];
    int uid = getuid(), gid = getgid();
    int kinds = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWCGROUP | CLONE_NEWNET;
    if (uid != 0) {
        kinds |= CLONE_NEWUSER;
    }
    int made = unshare(kinds) == 0;
    if (!made && uid == 0) _exit(9); /* or root would mount on the host itself */
    if (made && uid != 0) {
        put("/proc/self/setgroups", "deny");
        snprintf(map, sizeof map, "0 %d 1", uid);
        put("/proc/self/uid_map", map);
        snprintf(map, sizeof map, "0 %d 1", gid);
        put("/proc/self/gid_map", map);
    }
    mount("none", "/", 0, REC | PRIVATE, 0);
}

static long remount(void) { enter(); return mount("none", "/", 0, REMOUNT | BIND, 0); }
static long set_attributes(void) {
    enter();
    struct mount_attr attr = {.attr_clr = MOUNT_ATTR_RDONLY};
    return syscall(442, AT_FDCWD, "/", 0, &attr, sizeof attr);
}
static long unmount(void) {
    enter();
    mount("t", dir, "tmpfs", 0, 0);
    const char *covers[] = {dir, "/tmp", "/dev/shm", "/dev/null", "/proc/cmdline", "/proc/keys", "/proc", "/etc/ssl", "/usr"};
    for (int i = 0; i < 9; i++)
        if (umount2(covers[i], 2) == 0) return 0;
    return -1;
}
static long bind_root(void) { enter(); return mount("/", dir, 0, BIND | REC, 0); }
static long clone_root(void) { enter(); return syscall(428, AT_FDCWD, "/", 1 | 0x8000); }
static long tmpfs(void) { enter(); return mount("t", dir, "tmpfs", 0, 0); }
static long new_api(void) { enter(); return syscall(430, "tmpfs", 0); }
static long move(void) {
    enter();
    int fd = syscall(428, AT_FDCWD, "/proc", 1 | 0x8000);
    return syscall(429, fd, "", AT_FDCWD, dir, 4);
}
static long leave_by_chroot(void) {
    enter();
    int fd = open("/", O_RDONLY);
    if (chroot(dir) < 0) return -1;
    fchdir(fd);
    for (int i = 0; i < 64; i++) chdir("..");
    return chroot(".");
}
static long pivot(void) {
    enter();
    mount("t", dir, "tmpfs", 0, 0);
    chdir(dir);
    return syscall(SYS_pivot_root, ".", ".");
}
static long overlay(void) {
    enter();
    if (mount("t", dir, "tmpfs", 0, 0) < 0) return -1;
    char options[512];
    mkdir(in("l"), 0755), mkdir(in("u"), 0755), mkdir(in("k"), 0755), mkdir(in("m"), 0755);
    snprintf(options, sizeof options, "lowerdir=%s/l,upperdir=%s/u,workdir=%s/k,userxattr", dir, dir, dir);
    return mount("o", in("m"), "overlay", 0, options);
}
static long binfmt(void) { enter(); return mount("b", dir, "binfmt_misc", 0, 0); }
static long tracefs(void) { enter(); return mount("t", dir, "tracefs", 0, 0); }
static long debugfs(void) { enter(); return mount("t", dir, "debugfs", 0, 0); }
static long sysfs(void) { enter(); return mount("t", dir, "sysfs", 0, 0); }
static long cgroups(void) { enter(); return mount("c", dir, "cgroup2", 0, 0); }
static long old_cgroups(void) { enter(); return mount("c", dir, "cgroup", 0, "none,name=cowork-attack"); }
static long user_namespace(void) { return unshare(CLONE_NEWUSER); }
static long every_namespace(void) {
    int kinds[] = {CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP, 0x80};
    for (int i = 0; i < 8; i++)
        if (unshare(kinds[i]) == 0) return 0;
    return -1;
}
static long by_clone(void) {
    long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) _exit(0);
    return pid;
}
static long by_clone3(void) {
    uint64_t args[8] = {CLONE_NEWUSER, 0, 0, 0, SIGCHLD};
    long pid = syscall(435, args, sizeof args);
    if (pid == 0) _exit(0);
    return pid;
}
static long join(void) {
    enter();
    const char *ways[] = {"/proc/1/ns/mnt", "/proc/self/ns/mnt"};
    for (int i = 0; i < 2; i++) {
        int fd = open(ways[i], O_RDONLY);
        if (fd >= 0 && setns(fd, CLONE_NEWNS) == 0) return 0;
    }
    return -1;
}
static long join_by_pidfd(void) {
    enter();
    int fd = syscall(434, getpid(), 0);
    return setns(fd, CLONE_NEWNS);
}
static long owner_of(void) { return ioctl(open("/proc/self/ns/mnt", O_RDONLY), 0xb701); }
static long parent_of(void) {
    char link[64];
    long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) { pause(); _exit(0); }
    snprintf(link, sizeof link, "/proc/%ld/ns/user", pid > 0 ? pid : (long)getpid());
    long r = ioctl(open(link, O_RDONLY), 0xb702);
    int e = errno;
    if (pid > 0) kill(pid, SIGKILL);
    errno = e;
    return r;
}
static long packet_rules(void) { enter(); return socket(AF_NETLINK, SOCK_RAW, 12); }
static long name_host(void) { enter(); return sethostname("pwned", 5); }
static long drop_groups(void) { return syscall(SYS_setgroups, 0, 0); }
static long become_root(void) { return setresuid(0, 0, 0); }
static long set_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return clock_settime(CLOCK_REALTIME, &now);
}
static long time_offsets(void) { return put("/proc/self/timens_offsets", "monotonic 1 0"); }
static long more_namespaces(void) { return put("/proc/sys/user/max_user_namespaces", "100"); }

static void namespaces(void) {
    probe("remount", remount);
    probe("set-attributes", set_attributes);
    probe("unmount", unmount);
    probe("bind", bind_root);
    probe("open-tree", clone_root);
    probe("tmpfs", tmpfs);
    probe("fsopen", new_api);
    probe("move-mount", move);
    probe("chroot", leave_by_chroot);
    probe("pivot", pivot);
    probe("overlay", overlay);
    probe("binfmt", binfmt);
    probe("tracefs", tracefs);
    probe("debugfs", debugfs);
    probe("sysfs", sysfs);
    probe("cgroup2", cgroups);
    probe("unshare-user", user_namespace);
    probe("unshare-any", every_namespace);
    probe("clone-user", by_clone);
    probe("clone3-user", by_clone3);
    probe("setns", join);
    probe("setns-pidfd", join_by_pidfd);
    probe("namespace-owner", owner_of);
    probe("namespace-parent", parent_of);
    probe("netfilter", packet_rules);
    probe("hostname", name_host);
    probe("setgroups", drop_groups);
    probe("setuid-0", become_root);
}

/* Not for the control: on a host without walls these would change it. */
static void global(void) {
    probe("more-namespaces", more_namespaces);
    probe("clock", set_clock);
    probe("time-offsets", time_offsets);
    probe("cgroup1", old_cgroups);
}
