/* A descriptor's name below /proc is the file: a link to it, its mode, owner, times, attributes and
 * size are those of the real file, also after it has lost its first name; what it reads as is the
 * file's own path. */
#include "twin.h"
#include <sys/statfs.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <limits.h>

static void show_mode(const char *name)
{
    struct stat st;
    if (stat(name, &st) < 0)
        show(name, -1);
    else
        say("%s: mode %o links %ld size %ld owner %d time %ld", name, st.st_mode, (long)st.st_nlink,
            (long)st.st_size, (int)st.st_uid, st.st_mtime < 9999 ? (long)st.st_mtime : 0);
}

int main(int argc, char **argv)
{
    char proc[64], dev[64], back[PATH_MAX], here[PATH_MAX];
    struct stat st;
    struct statfs fs;
    struct timespec times[2] = {{1000, 0}, {2000, 0}};
    struct timeval old[2] = {{3000, 0}, {4000, 0}};
    start(argc, argv);
    int fd = make_file("real", 1, 5000);
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
    snprintf(dev, sizeof dev, "/dev/fd/%d", fd);
    show("linkat", linkat(AT_FDCWD, proc, AT_FDCWD, "linked", AT_SYMLINK_FOLLOW));
    show_file("linked");
    show("linkat of /dev/fd", linkat(AT_FDCWD, dev, AT_FDCWD, "linked2", AT_SYMLINK_FOLLOW));
    show_file("linked2");
    /* As root without more rights than any: the kernel may refuse an empty path, but never links
     * something else. */
    long empty = linkat(fd, "", AT_FDCWD, "linked3", AT_EMPTY_PATH);
    say("linkat of the descriptor itself: %d", empty == 0 || errno == ENOENT);
    if (empty == 0)
        show_file("linked3");
    unlink("linked3");
    show("linkat onto a name that is there",
         linkat(AT_FDCWD, proc, AT_FDCWD, "linked", AT_SYMLINK_FOLLOW));
    show("without following, to another device", linkat(AT_FDCWD, proc, AT_FDCWD, "never", 0));
    show("chmod", chmod(proc, 0640));
    show("fchmodat", fchmodat(AT_FDCWD, dev, 0604, 0));
    show_mode("real");
    show("chown", chown(proc, geteuid(), getegid()));
    show("fchownat", fchownat(AT_FDCWD, proc, geteuid(), getegid(), 0));
    show("utimensat", utimensat(AT_FDCWD, proc, times, 0));
    show_mode("real");
    show("utimes", utimes(proc, old));
    show_mode("real");
    show("stat", stat(proc, &st));
    say("size %ld regular %d links %ld", (long)st.st_size, S_ISREG(st.st_mode), (long)st.st_nlink);
    show("lstat", lstat(proc, &st));
    say("a link: %d", S_ISLNK(st.st_mode));
    show("statfs", statfs(proc, &fs));
    show("access", access(proc, R_OK | W_OK));
    show("access to run it", access(proc, X_OK));
    long set = setxattr(proc, "user.twin", "value", 5, 0);
    if (set == 0 || errno != ENOTSUP) {
        show("setxattr", set);
        show("getxattr", getxattr("real", "user.twin", back, sizeof back));
        show("getxattr", getxattr(proc, "user.twin", back, sizeof back));
        say("listxattr %d", listxattr(proc, back, sizeof back) > 0);
        show("removexattr", removexattr(proc, "user.twin"));
    }
    show("truncate", truncate(proc, 3333));
    show_mode("real");
    long n = readlink(proc, back, sizeof back - 1);
    back[n < 0 ? 0 : n] = 0;
    if (!getcwd(here, sizeof here - 10))
        return 1;
    strcat(here, "/real");
    say("readlink tells the path: %d", strcmp(back, here) == 0);
    show("unlink", unlink("real") | unlink("linked2"));
    show("linkat after the first name is gone",
         linkat(AT_FDCWD, proc, AT_FDCWD, "kept", AT_SYMLINK_FOLLOW));
    show_file("kept");
    show("unlink", unlink("linked") | unlink("kept"));
    show("linkat of a file without a name",
         linkat(AT_FDCWD, proc, AT_FDCWD, "none", AT_SYMLINK_FOLLOW));
    show("rename of a name below /proc", rename(proc, "renamed"));
    return 0;
}
