/* Memory that the program may not touch is an error of the call, EFAULT, or a short count where it
 * begins well: never a signal, and nothing but what was counted reaches the file. */
#include "twin.h"
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/statfs.h>
#include <sys/uio.h>

static char *good, *bad, *readonly;
static int fd;

/* A short count is as good as EFAULT where a part of the memory is there: kernels differ. */
static void either(const char *call, long ret, long most)
{
    if (ret < 0)
        say("%s: %s", call, errno == EFAULT ? "as it may be" : errno_name(errno));
    else
        say("%s: %s", call, ret <= most ? "as it may be" : "too many");
}

static void each(const char *where, void *at)
{
    struct iovec one = {at, 100}, second[2] = {{good, 10}, {at, 100}},
                 empty[2] = {{at, 0}, {good, 10}};
    say("-- %s", where);
    show("read", read(fd, at, 100));
    show("read of none", read(fd, at, 0));
    show("pread", pread(fd, at, 100, 10));
    show("pread of a page", pread(fd, at, 4096, 4096));
    show("pread of pages", pread(fd, at, 8192, 0));
    show("pread at the end", pread(fd, at, 100, 1 << 20));
    show("readv", readv(fd, &one, 1));
    show("preadv", preadv(fd, &one, 1, 0));
    show("preadv of none and more", preadv(fd, empty, 2, 0));
    show("lseek", lseek(fd, 0, SEEK_CUR));
    show("preadv into the second", preadv(fd, second, 2, 0));
    show("fstat", fstat(fd, at));
    show("stat", stat("file", at));
    show("lstat", lstat("file", at));
    show("statx", statx(AT_FDCWD, "file", 0, STATX_SIZE, at));
    show("fstatfs", fstatfs(fd, at));
    show("FIONREAD", ioctl(fd, FIONREAD, at));
    show("readlink", readlink("link", at, 100));
}

static void each_read_only(const char *where, void *at)
{
    struct iovec one = {at, 100}, second[2] = {{good, 10}, {at, 100}},
                 empty[2] = {{at, 0}, {good, 10}};
    struct pollfd *fds = at;
    struct timeval now = {0, 0};
    say("-- %s", where);
    show("write", write(fd, at, 100));
    show("write of none", write(fd, at, 0));
    show("pwrite", pwrite(fd, at, 100, 10));
    show("pwrite of a page", pwrite(fd, at, 4096, 4096));
    show("pwrite of pages", pwrite(fd, at, 8192, 0));
    show("writev", writev(fd, &one, 1));
    show("pwritev", pwritev(fd, &one, 1, 0));
    show("pwritev of none and more", pwritev(fd, empty, 2, 0));
    show("pwritev from the second", pwritev(fd, second, 2, 0));
    show("a bad vector to read", readv(fd, at, 2));
    show("a bad vector to write", writev(fd, at, 2));
    show("a bad vector to write at", pwritev(fd, at, 2, 0));
    show("open", open(at, O_RDONLY));
    show("creat", creat(at, 0600));
    show("openat", openat(AT_FDCWD, at, O_RDWR | O_CREAT, 0600));
    show("stat", stat(at, (struct stat *)good));
    show("truncate", truncate(at, 5));
    show("rename", rename(at, "x"));
    show("rename to", rename("file", at));
    show("link", link(at, "x"));
    show("link to", link("file", at));
    show("symlink", symlink(at, "x"));
    show("symlink to", symlink("x", at));
    show("unlink", unlink(at));
    show("rmdir", rmdir(at));
    show("chdir", chdir(at));
    show("readlink", readlink(at, good, 100));
    show("record lock", fcntl(fd, F_SETLK, at));
    show("record lock asked", fcntl(fd, F_GETLK, at));
    show("poll", poll(fds, 1, 0));
    show("select", select(8, at, NULL, NULL, &now));
}

int main(int argc, char **argv)
{
    start(argc, argv);
    fd = make_file("file", 1, 20000);
    show("symlink", symlink("file", "link"));
    good = mmap(NULL, 6 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(good, 4 * 4096, 7, 0);
    bad = good + 4 * 4096;
    mprotect(bad, 4096, PROT_NONE);
    munmap(bad + 4096, 4096);
    readonly = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    each("null", NULL);
    each("a small number", (void *)24);
    each("pages without rights", bad);
    each("the kernel's half", (void *)0xffff800000000000);
    each("no address at all", (void *)0x7fff000000000000);
    each("the last ones", (void *)-200);
    each("read-only", readonly);
    each_read_only("null", NULL);
    each_read_only("a small number", (void *)24);
    each_read_only("pages without rights", bad);
    each_read_only("the kernel's half", (void *)0xffff800000000000);
    each_read_only("no address at all", (void *)0x7fff000000000000);
    show_file("file");

    say("-- across the end of what is there");
    for (int before = 0; before < 9000; before += 499) {
        char *at = bad - before;
        long ret = pread(fd, at, 9500, 3);
        either("pread", ret, before);
        if (ret > 0) {
            char want[9500];
            fill(want, ret, 1, 3);
            if (memcmp(want, at, ret))
                say("wrong bytes");
        }
        either("pread at 0", pread(fd, at, 12288, 0), before);
    }
    fill(good, 4 * 4096, 7, 0);
    char *shadow = calloc(1, 30000);
    show("pread", pread(fd, shadow, 20000, 0));
    long size = 20000;
    for (int before = 0; before < 9000; before += 499) {
        for (int at = 0; at < 20000; at += 4099) {
            long ret = pwrite(fd, bad - before, 9500, at);
            either("pwrite", ret, before);
            if (ret > 0)
                memcpy(shadow + at, bad - before, ret);
            if (ret > 0 && at + ret > size)
                size = at + ret;
        }
        long ret = pwrite(fd, bad - before, 12288, 4096);
        either("pwrite of pages", ret, before);
        if (ret > 0)
            memcpy(shadow + 4096, bad - before, ret);
    }
    char *now = malloc(40000);
    say("the size is what was counted: %d", pread(fd, now, 40000, 0) == size);
    say("the bytes are what was counted: %d", memcmp(now, shadow, size) == 0);

    say("-- memory that goes away");
    char *brief = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(brief, 8192, 9, 0);
    show("pwrite", pwrite(fd, brief, 8192, 0));
    show("pread", pread(fd, brief, 100, 3));
    mprotect(brief, 8192, PROT_READ);
    show("pread into read-only", pread(fd, brief, 100, 3));
    show("pwrite", pwrite(fd, brief, 8192, 0));
    mprotect(brief, 8192, PROT_NONE);
    show("pwrite without rights", pwrite(fd, brief, 8192, 0));
    munmap(brief, 8192);
    show("pwrite of what is gone", pwrite(fd, brief, 8192, 0));
    show("pread into what is gone", pread(fd, brief, 77, 3));
    /* A length that nobody has, as careless programs pass it: the end of the file comes first. */
    show("a large length", pread(fd, good, 1 << 30, size - 50));
    /* One that went below zero would overrun the memory behind. */
    const size_t below[] = {-1, -4096, (size_t)1 << 63, SIZE_MAX / 4};
    for (unsigned i = 0; i < sizeof below / sizeof below[0]; i++) {
        struct iovec piece = {good, below[i]};
        show("read", read(fd, good, below[i]));
        show("pread", pread(fd, good, below[i], 3));
        show("pread behind the end", pread(fd, good, below[i], size));
        show("write", write(fd, good, below[i]));
        show("pwrite", pwrite(fd, good, below[i], 3));
        if ((ssize_t)below[i] < 0) {
            show("readv", readv(fd, &piece, 1));
            show("pwritev", pwritev(fd, &piece, 1, 3));
        }
    }
    show("lseek", lseek(fd, 0, SEEK_CUR));
    show("ftruncate", ftruncate(fd, 5000));
    show_file("file");
    char path[PATH_MAX + 10];
    memset(path, 'p', sizeof path - 1);
    path[sizeof path - 1] = 0;
    show("a path that is too long", open(path, O_RDONLY));
    strcpy(bad - 5, "file");
    show_ok("a path that ends at the last byte", open(bad - 5, O_RDONLY));
    memcpy(bad - 4, "file", 4);
    show("a path without an end", open(bad - 4, O_RDONLY));
    return 0;
}
