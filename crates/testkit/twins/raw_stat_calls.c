/* The stat family by number: how Node.js (libuv) asks for every size, and other runtimes for some.
 */
#include "twin.h"

#ifndef SYS_statx
#error "no statx"
#endif

static void by_descriptor(int fd)
{
    struct statx x;
    struct stat st;
    memset(&x, 0, sizeof x);
    memset(&st, 0, sizeof st);
    /* libuv: fstat is statx of "" with AT_EMPTY_PATH. */
    show("statx of a descriptor",
         syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &x));
    say("size %ld, regular %d, mode %o", (long)x.stx_size, S_ISREG(x.stx_mode), x.stx_mode & 0777);
    show("fstat", syscall(SYS_fstat, fd, &st));
    say("size %ld, regular %d", (long)st.st_size, S_ISREG(st.st_mode));
    memset(&st, 0, sizeof st);
    show("newfstatat of a descriptor", syscall(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH));
    say("size %ld, regular %d", (long)st.st_size, S_ISREG(st.st_mode));
}

static void by_path(const char *path)
{
    struct statx x;
    struct stat st;
    if (show("statx", syscall(SYS_statx, AT_FDCWD, path, 0, STATX_BASIC_STATS, &x)) == 0)
        say("size %ld, regular %d", (long)x.stx_size, S_ISREG(x.stx_mode));
    if (show("statx of size alone",
             syscall(SYS_statx, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_SIZE, &x)) == 0)
        say("size %ld", (long)x.stx_size);
    if (show("stat", syscall(SYS_stat, path, &st)) == 0)
        say("size %ld", (long)st.st_size);
    if (show("lstat", syscall(SYS_lstat, path, &st)) == 0)
        say("size %ld", (long)st.st_size);
    if (show("newfstatat", syscall(SYS_newfstatat, AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW)) == 0)
        say("size %ld", (long)st.st_size);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    for (int i = 0; i < EDGES; i++) {
        char name[32];
        snprintf(name, sizeof name, "file%ld", edges[i]);
        int fd = make_file(name, 1, edges[i]);
        by_descriptor(fd);
        by_path(name);
        close(fd);
    }
    by_descriptor(-1);
    by_path("missing");
    by_path(".tidelock/keyring");
    mkdir("directory", 0755);
    struct stat st;
    show("stat of a directory", syscall(SYS_stat, "directory", &st));
    say("a directory: %d", S_ISDIR(st.st_mode));

    /* What Node.js does to read a whole file: open, statx for the size, read as much. */
    struct statx x;
    char back[9000];
    int fd = syscall(SYS_openat, AT_FDCWD, "file4097", O_RDONLY | O_CLOEXEC, 0);
    show("statx", syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &x));
    memset(back, 0, sizeof back);
    long n = x.stx_size < sizeof back ? (long)x.stx_size : (long)sizeof back;
    show_read("read", read(fd, back, n), back);
    return 0;
}
