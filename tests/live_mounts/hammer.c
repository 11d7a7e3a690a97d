// A hundred threads that do what they can to a folder in which mounts come and go, to the folder
// "outputs" in it, and to the folder that comes and goes. Ends when its input does, and tells what
// it could change.

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { THREADS = 100 };

static const char *folder;
static volatile int done;
static unsigned long in_parent, in_outputs;

static void path(char *out, const char *name)
{
    snprintf(out, 512, "%s/%s", folder, name);
}

// One round of changes below a folder; how many of them were made.
static unsigned long change(const char *below, long thread)
{
    char one[512], other[512], name[256];
    unsigned long made = 0;
    snprintf(name, sizeof name, "%s%sone%ld", below, *below ? "/" : "", thread % 7);
    path(one, name);
    snprintf(name, sizeof name, "%s%sother%ld", below, *below ? "/" : "", thread % 7);
    path(other, name);
    int fd = open(one, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd >= 0) {
        made++;
        close(fd);
    }
    made += rename(one, other) == 0;
    made += unlink(other) == 0;
    made += mkdir(one, 0700) == 0;
    made += rename(one, other) == 0;
    made += rmdir(other) == 0;
    made += symlink("/", one) == 0;
    made += symlink("/etc", other) == 0;
    made += rename(other, one) == 0;
    made += unlink(one) == 0;
    return made;
}

// What would put something else in the place of the mount.
static unsigned long swap(void)
{
    char mount[512], aside[512];
    unsigned long made = 0;
    path(mount, "more");
    path(aside, "aside");
    made += mkdir(mount, 0700) == 0;
    made += symlink("/etc", mount) == 0;
    made += rename(mount, aside) == 0;
    made += symlink("/etc", mount) == 0;
    made += unlink(mount) == 0;
    made += rmdir(mount) == 0;
    made += rename(aside, mount) == 0;
    return made;
}

static void *hammer(void *arg)
{
    long thread = (long)arg;
    char file[512];
    struct stat found;
    path(file, "more/file");
    while (!done) {
        unsigned long parent = swap() + change("", thread);
        __atomic_add_fetch(&in_parent, parent, __ATOMIC_RELAXED);
        __atomic_add_fetch(&in_outputs, change("outputs", thread), __ATOMIC_RELAXED);
        (void)change("more", thread);
        (void)stat(file, &found);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    char byte;
    if (argc != 2)
        return 2;
    folder = argv[1];
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, hammer, (void *)i))
            return 3;
    puts("trying");
    fflush(stdout);
    (void)!read(0, &byte, 1);
    done = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("parent %lu outputs %lu\n", in_parent, in_outputs);
    return 0;
}
