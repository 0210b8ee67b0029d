/* System calls that go round libc. */
#include "twin.h"
#include <sys/mman.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
    char back[64] = "";
    struct stat st;
    start(argc, argv);
    int fd = make_file("file", 1, 100);
    show("read", syscall(SYS_read, fd, back, 10));
    show("pread64", syscall(SYS_pread64, fd, back, 10, 0L));
    show("write", syscall(SYS_write, fd, MARKER, 13));
    show("pwrite64", syscall(SYS_pwrite64, fd, MARKER, 13, 50L));
    show("lseek", syscall(SYS_lseek, fd, 0L, SEEK_SET));
    show("ftruncate", syscall(SYS_ftruncate, fd, 90L));
    show("fsync", syscall(SYS_fsync, fd));
    long map = syscall(SYS_mmap, NULL, 4096L, PROT_READ, MAP_SHARED, fd, 0L);
    say("mmap = %s", map == -1 ? errno_name(errno) : "ok");
    int copy = dup(fd);
    show("read of a duplicate", syscall(SYS_read, copy, back, 10));
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    say("open of /proc/self/fd = %s",
        syscall(SYS_openat, AT_FDCWD, path, O_RDWR) < 0 ? "no" : "yes");
    snprintf(path, sizeof path, "/dev/fd/%d", fd);
    say("open of /dev/fd = %s", syscall(SYS_openat, AT_FDCWD, path, O_RDONLY) < 0 ? "no" : "yes");
    show("raw dup", (copy = syscall(SYS_dup, fd)) >= 0);
    show("read of a raw duplicate", syscall(SYS_read, copy, back, 10));
    show("through libc", read(copy, back, 10));
    show("raw close", syscall(SYS_close, fd));
    /* The number is free for the kernel; the library must not believe that it is still the file. */
    int other = open("/dev/zero", O_RDWR);
    say("the same number: %d", other == fd);
    memset(back, 'x', sizeof back);
    show("read", read(other, back, 20));
    show_bytes("zeros", back, 20);
    show("write", write(other, MARKER, 13));
    show("fstat", fstat(other, &st));
    say("a device: %d", S_ISCHR(st.st_mode));
    show("through raw openat", copy = syscall(SYS_openat, AT_FDCWD, "file", O_RDONLY) >= 0);
    show_file("file");
    return 0;
}
