/* The *at calls, relative to directory descriptors, to the working directory and with absolute
 * names. */
#include "twin.h"
#include <sys/syscall.h>

int main(int argc, char **argv)
{
    struct stat st;
    char back[64], path[5000];
    start(argc, argv);
    show("mkdirat", mkdirat(AT_FDCWD, "a", 0755));
    int a = open("a", O_RDONLY | O_DIRECTORY);
    show("mkdirat", mkdirat(a, "b", 0755));
    int b = openat(a, "b", O_PATH | O_DIRECTORY);
    int fd = openat(b, "file", O_RDWR | O_CREAT | O_EXCL, 0644);
    show_ok("openat", fd);
    show("write", write(fd, MARKER " in a/b", 20));
    show("O_EXCL", openat(a, "b/file", O_RDWR | O_CREAT | O_EXCL, 0644));
    show_file("a/b/file");
    show("through dots", openat(b, "../b/./file", O_RDONLY) >= 0);
    show("fstatat", fstatat(b, "file", &st, 0));
    say("size %ld", (long)st.st_size);
    show("AT_EMPTY_PATH", fstatat(fd, "", &st, AT_EMPTY_PATH));
    say("size %ld", (long)st.st_size);
    show("without", fstatat(fd, "", &st, 0));
    show("faccessat", faccessat(a, "b/file", R_OK | W_OK, 0));
    show("faccessat", faccessat(a, "b/none", R_OK, 0));
    show("renameat", renameat(b, "file", a, "moved"));
    show_file("a/moved");
    show("linkat", linkat(a, "moved", b, "linked", 0));
    show("symlinkat", symlinkat("../moved", b, "soft"));
    show("readlinkat", readlinkat(b, "soft", back, sizeof back));
    show_read("through it", read(openat(b, "soft", O_RDONLY), back, 64), back);
    show("O_NOFOLLOW", openat(b, "soft", O_RDONLY | O_NOFOLLOW));
    show("fchmodat", fchmodat(a, "moved", 0600, 0));
    show("fstatat", fstatat(b, "soft", &st, 0));
    say("mode %o size %ld links %ld", st.st_mode & 0777, (long)st.st_size, (long)st.st_nlink);
    show("AT_SYMLINK_NOFOLLOW", fstatat(b, "soft", &st, AT_SYMLINK_NOFOLLOW));
    say("a link %d size %ld", S_ISLNK(st.st_mode), (long)st.st_size);
    show("unlinkat", unlinkat(b, "linked", 0));
    show("bad descriptor", openat(333, "file", O_RDONLY));
    show("of a file", openat(fd, "file", O_RDONLY));
    show_pointer("getcwd", getcwd(path, sizeof path - 100));
    strcat(path, "/a/moved");
    show("absolute with a bad descriptor", openat(333, path, O_RDONLY) >= 0);
    show("absolute fstatat", fstatat(333, path, &st, 0));
    say("size %ld", (long)st.st_size);
    show_file(path);
    show("openat64", openat64(a, "moved", O_RDWR | O_TRUNC) >= 0);
    show_file("a/moved");
    show("utimensat", utimensat(a, "moved", (struct timespec[2]){{1, 2}, {3, 4}}, 0));
    show("fstatat", fstatat(a, "moved", &st, 0));
    say("times %ld.%ld %ld.%ld", (long)st.st_atim.tv_sec, st.st_atim.tv_nsec,
        (long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    show("write", write(openat(AT_FDCWD, "a/last", O_WRONLY | O_CREAT, 0600), MARKER, 13));
    show_file("a/last");
    return 0;
}
