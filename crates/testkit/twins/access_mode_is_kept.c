/* The sealed descriptor must be readable for partial units; what the program opened O_WRONLY must
 * still refuse to read, and O_RDONLY to write, each with EBADF. */
#include "twin.h"
#include <sys/uio.h>

int main(int argc, char **argv)
{
    char back[32] = MARKER;
    struct iovec iov = {back, 13};
    start(argc, argv);
    close(make_file("file", 1, 1000));
    int r = open("file", O_RDONLY), w = open("file", O_WRONLY);
    show("write", write(r, back, 13));
    show("pwrite", pwrite(r, back, 13, 0));
    show("writev", writev(r, &iov, 1));
    show("pwritev", pwritev(r, &iov, 1, 0));
    show("ftruncate", ftruncate(r, 5));
    show("posix_fallocate", posix_fallocate(r, 0, 5000));
    show("write of nothing", write(r, back, 0));
    show("fsync", fsync(r));
    show("read", read(w, back, 13));
    show("pread", pread(w, back, 13, 0));
    show("readv", readv(w, &iov, 1));
    show("preadv", preadv(w, &iov, 1, 0));
    show("read of nothing", read(w, back, 0));
    show("write", write(w, MARKER, 13));
    show("lseek", lseek(w, 0, SEEK_CUR));
    show_read("read what was written", read(r, back, 20), back);
    show("read of nothing", read(r, back, 0));
    show_size("file", r);
    show("read of nothing open", read(300, back, 1));
    show("write of nothing open", write(300, back, 1));
    show("read of -1", read(-1, back, 1));
    show("close of -1", close(-1));
    show("fsync of nothing open", fsync(300));
    show("ftruncate of nothing open", ftruncate(300, 0));
    show("ftruncate to -1", ftruncate(w, -1));
    show_file("file");
    return 0;
}
