/* POSIX record locks: another process meets them at plain offsets, also counted from the end;
 * closing any descriptor of the file drops them, closing one of another file does not. */
#include "twin.h"
#include <sys/file.h>

static struct flock range(short type, short whence, long from, long n)
{
    return (struct flock){.l_type = type, .l_whence = whence, .l_start = from, .l_len = n};
}

static const char *name = "locked";

/* What another process sees of the byte range. */
static void probe(const char *what, long from, long n)
{
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        int fd = open(name, O_RDWR);
        struct flock lock = range(F_WRLCK, SEEK_SET, from, n);
        show(what, fcntl(fd, F_GETLK, &lock));
        if (lock.l_type == F_UNLCK)
            say("  free");
        else
            say("  held: type %d from %ld length %ld by the parent %d", lock.l_type,
                (long)lock.l_start, (long)lock.l_len, lock.l_pid == parent);
        lock = range(F_WRLCK, SEEK_SET, from, n);
        show("  F_SETLK", fcntl(fd, F_SETLK, &lock));
        lock = range(F_RDLCK, SEEK_SET, from, n);
        show("  F_SETLK to read", fcntl(fd, F_SETLK, &lock));
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    int fd = make_file("locked", 1, 5003);
    struct flock lock = range(F_WRLCK, SEEK_SET, 100, 50);
    show("write lock", fcntl(fd, F_SETLK, &lock));
    lock = range(F_RDLCK, SEEK_END, -10, 5);
    show("read lock from the end", fcntl(fd, F_SETLK, &lock));
    show("lseek", lseek(fd, 1000, SEEK_SET));
    lock = range(F_WRLCK, SEEK_CUR, 24, 1);
    show("write lock from here", fcntl(fd, F_SETLK, &lock));
    lock = range(F_WRLCK, SEEK_SET, 1L << 30, 512);
    show("write lock far behind", fcntl(fd, F_SETLKW, &lock));
    probe("before", 0, 100);
    probe("inside", 120, 1);
    probe("near the end", 4990, 10);
    probe("here", 1024, 1);
    probe("beside", 1025, 1);
    probe("far", (1L << 30) + 511, 1);
    probe("far beside", (1L << 30) + 512, 1);
    lock = range(F_UNLCK, SEEK_SET, 110, 10);
    show("unlock the middle", fcntl(fd, F_SETLK, &lock));
    probe("unlocked", 110, 10);
    probe("still locked", 109, 1);

    /* I/O on the file, slow paths too, must not drop them. */
    char text[100];
    fill(text, sizeof text, 2, 0);
    show("pwrite", pwrite(fd, text, 33, 5));
    show("pwrite", pwrite(fd, text, 77, 5000));
    show("ftruncate", ftruncate(fd, 6001));
    show("ftruncate", ftruncate(fd, 5900));
    show("fstat", lseek(fd, 0, SEEK_END));
    struct stat st;
    show("stat", stat("locked", &st));
    show("rename", rename("locked", "moved") | rename("moved", "locked"));
    probe("kept", 120, 1);
    close(make_file("other", 3, 100));
    probe("kept", 120, 1);

    /* Any close of this file drops them all. */
    show("close of a duplicate", close(dup(fd)));
    probe("dropped", 120, 1);
    lock = range(F_WRLCK, SEEK_SET, 0, 0);
    show("lock it all", fcntl(fd, F_SETLK, &lock));
    probe("whole", 1L << 40, 1);
    int lowest = dup(fd);
    lock = range(F_WRLCK, SEEK_SET, 0, 0);
    show("again", close(lowest) | fcntl(fd, F_SETLK, &lock));
    int again = open("locked", O_RDONLY);
    probe("kept by open", 0, 1);
    say("the lowest number: %d", again == lowest);
    show("truncate", truncate("locked", 5000));
    probe("kept by truncate", 0, 1);
    show("close", close(again));
    probe("dropped", 0, 1);
    show("lockf", lockf(fd, F_LOCK, 0));
    probe("by lockf", 7000, 1);
    show("lockf", lockf(fd, F_ULOCK, 0));
    probe("free", 7000, 1);
    again = open("locked", O_RDONLY);
    lock = range(F_WRLCK, SEEK_SET, 0, 1);
    show("write lock on a read descriptor", fcntl(again, F_SETLK, &lock));
    lock = range(99, SEEK_SET, 0, 1);
    show("bad type", fcntl(fd, F_SETLK, &lock));
    show_file("locked");
    close(fd);

    /* Nor is a plain file opened and closed behind the program's back. */
    char outside[] = "/tmp/twin-XXXXXX", path[100];
    show("mkdtemp", mkdtemp(outside) ? 0 : -1);
    snprintf(path, sizeof path, "%s/plain", outside);
    name = path;
    fd = make_file(path, 4, 500);
    lock = range(F_WRLCK, SEEK_SET, 0, 10);
    show("lock outside", fcntl(fd, F_SETLK, &lock));
    show("truncate outside", truncate(path, 300));
    show_size("cut", fd);
    probe("kept by truncate", 0, 1);
    show("negative", truncate(path, -1));
    show("directory outside", truncate(outside, 1));
    show("unlink", unlink(path) | rmdir(outside));
    return 0;
}
