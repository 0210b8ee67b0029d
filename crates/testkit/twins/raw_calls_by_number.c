/* Every file call by number: each goes the way of the function of that name. */
#include "twin.h"
#include <poll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

static char back[9000];

static void bytes(int fd)
{
    char text[] = MARKER " by number", more[] = " and more";
    struct iovec out[2] = {{text, sizeof text - 1}, {more, sizeof more - 1}};
    struct iovec in[2] = {{back, 7}, {back + 7, 20}};
    show("write", syscall(SYS_write, fd, text, sizeof text));
    show("pwrite64", syscall(SYS_pwrite64, fd, text, sizeof text, 4090L));
    show("writev", syscall(SYS_writev, fd, out, 2L));
    show("pwritev", syscall(SYS_pwritev, fd, out, 2L, 8189L, 0L));
    show("pwritev2", syscall(SYS_pwritev2, fd, out, 2L, 100L, 0L, 0L));
    show("pwritev2 here", syscall(SYS_pwritev2, fd, out, 2L, -1L, -1L, 0L));
    show("lseek", syscall(SYS_lseek, fd, 3L, SEEK_SET));
    show_read("read", syscall(SYS_read, fd, back, 30L), back);
    show_read("pread64", syscall(SYS_pread64, fd, back, 30L, 4085L), back);
    show_read("readv", syscall(SYS_readv, fd, in, 2L), back);
    show_read("preadv", syscall(SYS_preadv, fd, in, 2L, 8185L, 0L), back);
    show_read("preadv2", syscall(SYS_preadv2, fd, in, 2L, 95L, 0L, 0L), back);
    show_read("preadv2 here", syscall(SYS_preadv2, fd, in, 2L, -1L, -1L, 0L), back);
    show("lseek to the end", syscall(SYS_lseek, fd, 0L, SEEK_END));
    show("pread64 behind the end", syscall(SYS_pread64, fd, back, 30L, 100000L));
    show("pread64 before the beginning", syscall(SYS_pread64, fd, back, 30L, -1L));
    show("read of nothing open", syscall(SYS_read, -1, back, 30L));
    void *map = (void *)syscall(SYS_mmap, NULL, 4096L, PROT_READ, MAP_PRIVATE, fd, 4096L);
    if (map != MAP_FAILED)
        show_bytes("mmap", map, 4096);
    else
        show("mmap", -1);
}

static void sizes(int fd)
{
    show("ftruncate", syscall(SYS_ftruncate, fd, 8100L));
    show_size("then", fd);
    show("truncate", syscall(SYS_truncate, "file", 8000L));
    show_size("then", fd);
    show("fallocate", syscall(SYS_fallocate, fd, 0L, 0L, 9000L));
    show_size("then", fd);
    show("fadvise64", syscall(SYS_fadvise64, fd, 0L, 4096L, POSIX_FADV_WILLNEED));
    show("fadvise64 of no kind", syscall(SYS_fadvise64, fd, 0L, 4096L, 99L));
    show("fadvise64 of nothing open", syscall(SYS_fadvise64, -1, 0L, 4096L, 0L));
    show("readahead", syscall(SYS_readahead, fd, 0L, 4096L));
    show("sync_file_range", syscall(SYS_sync_file_range, fd, 0L, 4096L, 2L));
    show("fsync", syscall(SYS_fsync, fd));
    show("fdatasync", syscall(SYS_fdatasync, fd));
    show("syncfs", syscall(SYS_syncfs, fd));
}

static void attributes(int fd)
{
    struct timespec times[2] = {{1000, 0}, {2000, 0}};
    struct timeval old[2] = {{3000, 0}, {4000, 0}};
    struct statfs fs;
    struct stat st;
    long waiting = -1;
    show("flock", syscall(SYS_flock, fd, LOCK_EX | LOCK_NB));
    show("fchmod", syscall(SYS_fchmod, fd, 0640L));
    show("fchown", syscall(SYS_fchown, fd, -1, -1));
    show("fchownat", syscall(SYS_fchownat, fd, "", -1, -1, AT_EMPTY_PATH));
    show("utimensat", syscall(SYS_utimensat, fd, NULL, times, 0L));
    fstat(fd, &st);
    say("changed at %ld", (long)st.st_mtime);
    show("futimesat", syscall(SYS_futimesat, fd, NULL, old));
    fstat(fd, &st);
    say("changed at %ld, mode %o", (long)st.st_mtime, st.st_mode & 07777);
    show("utimensat of a path", syscall(SYS_utimensat, AT_FDCWD, "file", times, 0L));
    show("fstatfs", syscall(SYS_fstatfs, fd, &fs));
    show("fgetxattr", syscall(SYS_fgetxattr, fd, "user.missing", back, 10L));
    show("fremovexattr", syscall(SYS_fremovexattr, fd, "user.missing"));
    show("faccessat", syscall(SYS_faccessat, AT_FDCWD, "file", R_OK));
    show("faccessat2", syscall(439, fd, "", X_OK, AT_EMPTY_PATH));
    show("faccessat2", syscall(439, fd, "", R_OK, AT_EMPTY_PATH));
    show("ioctl", syscall(SYS_ioctl, fd, TCGETS, back));
    show("ioctl", syscall(SYS_ioctl, fd, FIONREAD, &waiting));
    show("fcntl", syscall(SYS_fcntl, fd, F_GETFL) & O_ACCMODE);
    long n = syscall(SYS_readlink, "link", back, 100L);
    show("readlink", n);
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    n = syscall(SYS_readlinkat, AT_FDCWD, path, back, sizeof back);
    say("names the file: %d", n > 5 && !memcmp(back + n - 5, "/file", 5));
}

static void waiting(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLIN | POLLOUT};
    struct timespec soon = {0, 1000};
    fd_set in, out;
    show("poll", syscall(SYS_poll, &one, 1L, 0L));
    say("ready for %x", one.revents);
    show("ppoll", syscall(SYS_ppoll, &one, 1L, &soon, NULL, 8L));
    say("ready for %x", one.revents);
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_SET(fd, &in);
    FD_SET(fd, &out);
    show("select", syscall(SYS_select, fd + 1, &in, &out, NULL, NULL));
    say("readable %d, writable %d", !!FD_ISSET(fd, &in), !!FD_ISSET(fd, &out));
    show("pselect6", syscall(SYS_pselect6, fd + 1, &in, &out, NULL, &soon, NULL));
    say("readable %d, writable %d", !!FD_ISSET(fd, &in), !!FD_ISSET(fd, &out));
    one.fd = -1;
    show("ppoll of nothing", syscall(SYS_ppoll, &one, 1L, &soon, NULL, 8L));
}

int main(int argc, char **argv)
{
    start(argc, argv);
    int fd = make_file("file", 1, 8300);
    if (symlink("file", "link") < 0)
        return 1;
    bytes(fd);
    sizes(fd);
    attributes(fd);
    waiting(fd);
    int other = make_file("other", 2, 100);
    pid_t me = getpid();
    say("two files are one: %d", syscall(SYS_kcmp, me, me, 0L, fd, other) == 0);
    show_file("file");
    show("a number that no kernel has", syscall(9999L, 1L, 2L, 3L));
    return 0;
}
