struct handle { unsigned bytes; int type; unsigned char data[128]; };

static long handle_of(void) {
    struct handle h = {.bytes = 128};
    int id;
    return syscall(SYS_name_to_handle_at, AT_FDCWD, "/etc", &h, &id, 0);
}
static long open_by_handle(void) {
    /* The classic guess: inode 2 is the root of an ext4 disk. */
    struct handle h = {.bytes = 8, .type = 1, .data = {2}};
    int id, mount = open(dir, O_RDONLY);
    struct handle real = {.bytes = 128};
    if (syscall(SYS_name_to_handle_at, AT_FDCWD, dir, &real, &id, 0) == 0) h = real;
    return syscall(SYS_open_by_handle_at, mount, &h, O_RDONLY);
}
static long block_device(void) { return mknod(in("b"), S_IFBLK | 0666, (254 << 8)); }
static long char_device(void) { return mknod(in("c"), S_IFCHR | 0666, (1 << 8) | 11); }
static long whiteout(void) { return mknod(in("n"), S_IFCHR | 0666, 0); }
static long file_capability(void) {
    uint32_t v2[5] = {0x02000001, 1 << 13, 0, 0, 0};
    close(open(in("cap"), O_CREAT | O_WRONLY, 0755));
    return setxattr(in("cap"), "security.capability", v2, sizeof v2, 0);
}
static long trusted_xattr(void) {
    close(open(in("tx"), O_CREAT | O_WRONLY, 0755));
    return setxattr(in("tx"), "trusted.overlay.opaque", "y", 1, 0);
}

/* Done only if the bit is really there afterwards. */
static long bits_on(const char *name) {
    struct stat s;
    if (stat(in(name), &s) < 0) return -1;
    if (s.st_mode & 06000) return 0;
    errno = EPERM;
    return -1;
}
static long suid_chmod(void) { close(open(in("s1"), O_CREAT | O_WRONLY, 0755)); chmod(in("s1"), 06755); return bits_on("s1"); }
static long suid_fchmod(void) { fchmod(open(in("s2"), O_CREAT | O_RDWR, 0755), 04755); return bits_on("s2"); }
static long sgid_fchmod(void) { fchmod(open(in("s3"), O_CREAT | O_RDWR, 0755), 02755); return bits_on("s3"); }
static long suid_open(void) { open(in("s4"), O_CREAT | O_WRONLY, 04755); return bits_on("s4"); }
static long suid_mknod(void) { mknod(in("s5"), S_IFREG | 04755, 0); return bits_on("s5"); }
static long suid_openat2(void) {
    uint64_t how[3] = {O_CREAT | O_WRONLY, 04755, 0};
    syscall(437, AT_FDCWD, in("s6"), how, sizeof how);
    return bits_on("s6");
}
static long suid_by_link(void) {
    char link[64];
    int fd = open(in("s7"), O_CREAT | O_RDWR, 0755);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    chmod(link, 04755);
    return bits_on("s7");
}
static long suid_fchmodat2(void) {
    close(open(in("s8"), O_CREAT | O_WRONLY, 0755));
    syscall(452, AT_FDCWD, in("s8"), 04755, 0);
    return bits_on("s8");
}
static long suid_hidden(void) {
    int fd = open(in("s9"), O_CREAT | O_RDWR, 0755);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    fchmod(fd, 06755);
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    return bits_on("s9");
}
static long suid_tmpfile(void) {
    char link[64];
    int fd = open(dir, O_TMPFILE | O_RDWR, 04755);
    if (fd < 0) return -1;
    fchmod(fd, 04755);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (linkat(AT_FDCWD, link, AT_FDCWD, in("s10"), AT_SYMLINK_FOLLOW) < 0) return -1;
    return bits_on("s10");
}
static void plant(void) {
    umask(0);
    probe("suid-chmod", suid_chmod);
    probe("suid-fchmod", suid_fchmod);
    probe("sgid-fchmod", sgid_fchmod);
    probe("suid-open", suid_open);
    probe("suid-mknod", suid_mknod);
    probe("suid-openat2", suid_openat2);
    probe("suid-by-link", suid_by_link);
    probe("suid-fchmodat2", suid_fchmodat2);
    probe("suid-hidden", suid_hidden);
    probe("suid-tmpfile", suid_tmpfile);
    probe("block-device", block_device);
    probe("char-device", char_device);
    probe("whiteout", whiteout);
    probe("file-capability", file_capability);
    probe("trusted-xattr", trusted_xattr);
}

static long list_mounts(void) {
    uint64_t request[3] = {24, (uint64_t)-1, 0}, found[64];
    return syscall(458, request, found, 64, 0);
}
static long stat_mount(void) {
    struct { uint32_t size, spare; uint64_t id, param; } request = {24, 0, 0, 1};
    uint64_t found[64], all[3] = {24, (uint64_t)-1, 0};
    if (syscall(458, all, found, 64, 0) > 0) request.id = found[0];
    char answer[4096];
    return syscall(457, &request, answer, sizeof answer, 0);
}
static long watch_everything(void) { return syscall(SYS_fanotify_init, 0x200, O_RDONLY); }
static long set_flags(void) {
    int flags = 0, fd = open(in("fl"), O_CREAT | O_RDWR, 0644);
    if (ioctl(fd, 0x80086601, &flags) < 0) flags = 0;
    flags |= 0x40;
    return ioctl(fd, 0x40086602, &flags);
}
static long set_flags_wide(void) {
    /* The kernel looks at the low half of the number only. */
    int flags = 0x40, fd = open(in("fl"), O_CREAT | O_RDWR, 0644);
    return syscall(SYS_ioctl, (long)fd, 0x140086602ul, &flags);
}
static long immutable(void) {
    int flags = 0x10, fd = open(in("im"), O_CREAT | O_RDWR, 0644);
    long r = ioctl(fd, 0x40086602, &flags);
    int e = errno;
    flags = 0; /* or the control could not be cleaned up */
    ioctl(fd, 0x40086602, &flags);
    errno = e;
    return r;
}
static long immutable_by_call(void) {
    uint64_t attr[3] = {8, 0, 0};
    close(open(in("im"), O_CREAT | O_RDWR, 0644));
    long r = syscall(469, AT_FDCWD, in("im"), attr, sizeof attr, 0);
    int e = errno;
    attr[0] = 0;
    syscall(469, AT_FDCWD, in("im"), attr, sizeof attr, 0);
    errno = e;
    return r;
}
static long kernel_crypto(void) { return socket(38, SOCK_SEQPACKET, 0); }
static long no_randomize(void) { return personality(ADDR_NO_RANDOMIZE); }
static long read_implies_exec(void) { return personality(READ_IMPLIES_EXEC); }

static void calls(void) {
    probe("name-to-handle", handle_of);
    probe("open-by-handle", open_by_handle);
    probe("listmount", list_mounts);
    probe("statmount", stat_mount);
    probe("fanotify", watch_everything);
    probe("file-flags", set_flags);
    probe("file-flags-wide", set_flags_wide);
    probe("immutable", immutable);
    probe("file-setattr", immutable_by_call);
    probe("kernel-crypto", kernel_crypto);
    probe("personality-aslr", no_randomize);
    probe("personality-exec", read_implies_exec);
}

/* Every process's program file: never to be opened for writing, nor busy (that means later). */
static void images(int from, int to) {
    char link[64];
    for (int pid = from; pid <= to; pid++) {
        snprintf(link, sizeof link, "/proc/%d/exe", pid);
        int fd = open(link, O_PATH);
        if (fd < 0) { if (errno != ENOENT) printf("exe %d: refused %s\n", pid, strerrorname_np(errno)); continue; }
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        char name[256] = {0};
        readlink(link, name, 255);
        int w = open(link, O_WRONLY);
        printf("exe %d: %s %s\n", pid, w >= 0 || errno == ETXTBSY ? "reached" : "refused", name);
    }
}

/* Descriptors above the standard three, and what can be read through them. */
static void descriptors(const char *name) {
    int found = 0;
    for (int fd = 3; fd < 1024; fd++) {
        if (fcntl(fd, F_GETFD) < 0) continue;
        found++;
        char text[64] = {0};
        int file = openat(fd, name, O_RDONLY);
        if (file >= 0) read(file, text, 63);
        printf("fd %d: %s\n", fd, text);
    }
    printf("descriptors: %d\n", found);
}
