/* System calls by the instruction itself, as programs make them that do not use libc (Go, static
 * code). */
#include "twin.h"
#include "direct.h"
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

int main(int argc, char **argv)
{
    char back[64] = "", text[] = MARKER " by instruction", path[40];
    struct iovec piece = {text, sizeof text};
    struct stat st;
    start(argc, argv);
    int fd = make_file("file", 1, 100), zero = open("/dev/zero", O_RDWR), pipes[2];
    if (pipe(pipes) < 0 || write(pipes[1], text, 20) != 20)
        return 1;
    show("read", direct(SYS_read, fd, (long)back, 10, 0, 0, 0));
    show("pread64", direct(SYS_pread64, fd, (long)back, 10, 0, 0, 0));
    show("write", direct(SYS_write, fd, (long)text, 13, 0, 0, 0));
    show("pwrite64", direct(SYS_pwrite64, fd, (long)text, 13, 50, 0, 0));
    show("writev", direct(SYS_writev, fd, (long)&piece, 1, 0, 0, 0));
    show("pwritev2", direct(SYS_pwritev2, fd, (long)&piece, 1, 0, 0, 0));
    show("sendfile", direct(SYS_sendfile, fd, zero, 0, 20, 0, 0));
    show("splice", direct(SYS_splice, pipes[0], 0, fd, 0, 20, 0));
    show("copy_file_range", direct(SYS_copy_file_range, zero, 0, fd, 0, 20, 0));
    show("ftruncate", direct(SYS_ftruncate, fd, 90, 0, 0, 0, 0));
    show("fallocate", direct(SYS_fallocate, fd, 0, 0, 9000, 0, 0));
    long map = direct(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    say("mmap = %s", map == -1 ? errno_name(errno) : "ok");
    int copy = direct(SYS_dup, fd, 0, 0, 0, 0, 0);
    show("dup", copy >= 0);
    show("read of the duplicate", direct(SYS_read, copy, (long)back, 10, 0, 0, 0));
    show("read of the duplicate through libc", read(copy, back, 10));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    say("open of /proc/self/fd = %s",
        direct(SYS_openat, AT_FDCWD, (long)path, O_RDWR, 0, 0, 0) < 0 ? errno_name(errno) : "ok");

    /* Opened without being asked: sealed bytes to read. */
    int sealed = direct(SYS_openat, AT_FDCWD, (long)"file", O_RDONLY, 0, 0, 0);
    show("open", sealed >= 0);
    long n = direct(SYS_read, sealed, (long)back, 40, 0, 0, 0);
    show("read", n);
    say("plain: %d", memmem(back, 40, MARKER, 13) != NULL);

    /* Closed behind the library's back, and the number used by the kernel for something else. */
    show("close", direct(SYS_close, fd, 0, 0, 0, 0, 0));
    int other = open("/dev/zero", O_RDWR);
    say("the same number: %d", other == fd);
    memset(back, 'x', sizeof back);
    show("read", read(other, back, 20));
    show_bytes("zeros", back, 20);
    show("fstat", fstat(other, &st));
    say("a device: %d", S_ISCHR(st.st_mode));
    show_file("file");
    return 0;
}
