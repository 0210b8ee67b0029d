/* fchmod, fchown, futimens, extended attributes and ioctl reach the file, although the descriptor
 * that the program sees is not the one that is open for it. */
#include "twin.h"
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/xattr.h>

int main(int argc, char **argv)
{
    struct stat st;
    char value[20];
    start(argc, argv);
    int fd = make_file("file", 1, 1000);
    show("fchmod", fchmod(fd, 0640));
    show("fchown", fchown(fd, geteuid(), getegid()));
    show("futimens", futimens(fd, (struct timespec[2]){{11, 12}, {13, 14}}));
    show("fstat", fstat(fd, &st));
    say("mode %o owner %d times %ld.%ld %ld.%ld size %ld", st.st_mode & 0777,
        st.st_uid == geteuid() && st.st_gid == getegid(), (long)st.st_atim.tv_sec,
        st.st_atim.tv_nsec, (long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (long)st.st_size);
    show("futimes", futimes(fd, (struct timeval[2]){{21, 22}, {23, 24}}));
    show("stat", stat("file", &st));
    say("times %ld %ld", (long)st.st_atim.tv_sec, (long)st.st_mtim.tv_sec);
    show("chmod", chmod("file", 0600));
    show("utimes", utimes("file", (struct timeval[2]){{31, 32}, {33, 34}}));
    show("stat", stat("file", &st));
    say("mode %o times %ld %ld", st.st_mode & 0777, (long)st.st_atim.tv_sec,
        (long)st.st_mtim.tv_sec);
    long set = fsetxattr(fd, "user.twin", "value", 5, 0);
    if (set == 0 || errno != ENOTSUP) {
        show("fsetxattr", set);
        show("fgetxattr", fgetxattr(fd, "user.twin", value, sizeof value));
        show("flistxattr", flistxattr(fd, value, sizeof value));
        show("getxattr", getxattr("file", "user.twin", value, sizeof value));
        show("fremovexattr", fremovexattr(fd, "user.twin"));
        show("fgetxattr", fgetxattr(fd, "user.twin", value, sizeof value));
    } else {
        say("no extended attributes here");
    }
    show("isatty", isatty(fd));
    say("because %s", errno_name(errno));
    show("FIOCLEX", ioctl(fd, FIOCLEX));
    show("F_GETFD", fcntl(fd, F_GETFD));
    show("FIONCLEX", ioctl(fd, FIONCLEX));
    show("F_GETFD", fcntl(fd, F_GETFD));
    int n = -1;
    show("lseek", lseek(fd, 300, SEEK_SET));
    show("FIONREAD", ioctl(fd, FIONREAD, &n));
    say("left to read: %d", n);
    show("fpathconf", fpathconf(fd, _PC_NAME_MAX));
    show("fpathconf", fpathconf(fd, _PC_FILESIZEBITS));
    show("fpathconf", fpathconf(fd, _PC_LINK_MAX));
    show("fpathconf", fpathconf(fd, _PC_ASYNC_IO));
    show("fdatasync", fdatasync(fd));
    show("access to read", access("file", R_OK));
    show("access to run", access("file", X_OK));
    show("euidaccess", euidaccess("file", W_OK));
    show("access to nothing", access("none", F_OK));
    show("chmod", chmod("file", 0755));
    show("access to run", access("file", X_OK));
    /* By the descriptor alone. What libc does of it differs by its version, not by the file. */
    show("faccessat to run", faccessat(fd, "", X_OK, AT_EMPTY_PATH));
    show("faccessat to write", faccessat(fd, "", W_OK, AT_EMPTY_PATH | AT_EACCESS));
    show("fchmodat", fchmodat(fd, "", 0710, AT_EMPTY_PATH));
    show("fchmodat2", syscall(452, fd, "", 0610, AT_EMPTY_PATH));
    show("stat", stat("file", &st));
    say("mode %o", st.st_mode & 0777);
    show_file("file");
    return 0;
}
