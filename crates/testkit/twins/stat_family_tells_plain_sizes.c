/* Every call that tells a size tells the plain one: by name, descriptor, directory, old glibc's
 * names, 64-bit names and statx; for links the length of the link; other fields agree with each
 * other. */
#include "twin.h"
#include <dlfcn.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

typedef int (*old_stat)(int, const char *, struct stat *);
typedef int (*old_fstat)(int, int, struct stat *);
typedef int (*old_fstatat)(int, int, const char *, struct stat *, int);

static void tell(const char *what, int ret, const struct stat *st)
{
    show(what, ret);
    if (ret == 0)
        say("  size %ld file %d mode %o links %ld", (long)st->st_size, S_ISREG(st->st_mode),
            st->st_mode & 07777, (long)st->st_nlink);
}

int main(int argc, char **argv)
{
    struct stat st;
    struct stat64 wide;
    struct statx x;
    start(argc, argv);
    int here = open(".", O_RDONLY | O_DIRECTORY);
    old_stat xstat = (old_stat)dlsym(RTLD_DEFAULT, "__xstat");
    old_stat lxstat = (old_stat)dlsym(RTLD_DEFAULT, "__lxstat");
    old_fstat fxstat = (old_fstat)dlsym(RTLD_DEFAULT, "__fxstat");
    old_fstatat fxstatat = (old_fstatat)dlsym(RTLD_DEFAULT, "__fxstatat");
    say("old names: %d", xstat && lxstat && fxstat && fxstatat);
    for (int i = 0; i < EDGES; i++) {
        char name[40], link[40];
        snprintf(name, sizeof name, "size-%ld", edges[i]);
        snprintf(link, sizeof link, "link-%ld", edges[i]);
        int fd = make_file(name, i + 1, edges[i]);
        if (symlink(name, link) < 0)
            show("symlink", -1);
        tell("stat", stat(name, &st), &st);
        tell("lstat", lstat(name, &st), &st);
        tell("fstat", fstat(fd, &st), &st);
        tell("fstatat", fstatat(here, name, &st, 0), &st);
        tell("stat of the link", stat(link, &st), &st);
        tell("lstat of the link", lstat(link, &st), &st);
        if (xstat && lxstat && fxstat && fxstatat) {
            tell("__xstat", xstat(1, name, &st), &st);
            tell("__lxstat", lxstat(1, name, &st), &st);
            tell("__fxstat", fxstat(1, fd, &st), &st);
            tell("__fxstatat", fxstatat(1, here, name, &st, 0), &st);
        }
        show("stat64", stat64(name, &wide));
        say("  size %ld", (long)wide.st_size);
        show("fstat64", fstat64(fd, &wide));
        say("  size %ld", (long)wide.st_size);
        show("statx", statx(AT_FDCWD, name, 0, STATX_BASIC_STATS, &x));
        say("  size %ld", (long)x.stx_size);
        show("statx of the link", statx(here, link, AT_SYMLINK_NOFOLLOW, STATX_SIZE, &x));
        say("  size %ld", (long)x.stx_size);
        show("statx of the descriptor", statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &x));
        say("  size %ld", (long)x.stx_size);
        struct stat by_name;
        show("the same file", stat(name, &by_name) | fstat(fd, &st));
        say("  ino %d dev %d mtime %d", by_name.st_ino == st.st_ino, by_name.st_dev == st.st_dev,
            by_name.st_mtim.tv_nsec == st.st_mtim.tv_nsec);
        close(fd);
    }
    tell("missing", stat("none", &st), &st);
    show("directory", stat(".", &st));
    say("  a directory %d", S_ISDIR(st.st_mode));
    show("/dev/null", stat("/dev/null", &st));
    say("  a device %d size %ld", S_ISCHR(st.st_mode), (long)st.st_size);
    show("fstat of a closed one", fstat(321, &st));
    int fd = open("size-17", O_RDONLY);
    struct statfs fs;
    struct statvfs vfs;
    show("fstatfs", fstatfs(fd, &fs));
    show("statfs", statfs("size-17", &fs));
    show("fstatvfs", fstatvfs(fd, &vfs));
    return 0;
}
