/* O_DIRECT with what it needs (aligned buffers, offsets and lengths), and O_SYNC and O_DSYNC. */
#include "twin.h"

int main(int argc, char **argv)
{
    char *page, *back;
    start(argc, argv);
    if (posix_memalign((void **)&page, 4096, 65536) || posix_memalign((void **)&back, 4096, 65536))
        return 1;
    int fd = open("direct", O_RDWR | O_CREAT | O_DIRECT, 0644);
    show_ok("O_DIRECT", fd);
    if (fd >= 0) {
        show("F_GETFL", !!(fcntl(fd, F_GETFL) & O_DIRECT));
        for (int i = 0; i < 6; i++) {
            fill(page, 65536, 1, i * 65536L);
            show("write", write(fd, page, 4096 << i % 5));
        }
        show("offset", lseek(fd, 0, SEEK_CUR));
        show_read("pread", pread(fd, back, 65536, 8192), back);
        show_read("pread at the end", pread(fd, back, 65536, 126976), back);
        show("pwrite inside", pwrite(fd, page, 8192, 16384));
        show_read("pread", pread(fd, back, 8192, 16384), back);
        show("F_SETFL without", fcntl(fd, F_SETFL, 0));
        show("pwrite odd", pwrite(fd, page + 1, 777, 100001));
        show("F_SETFL with", fcntl(fd, F_SETFL, O_DIRECT));
        show_read("pread", pread(fd, back, 4096, 98304), back);
        show("ftruncate", ftruncate(fd, 12288));
        show("fdatasync", fdatasync(fd));
        show_file("direct");
        close(fd);
        /* A file whose end is odd, read directly. */
        close(make_file("odd", 2, 5001));
        fd = open("odd", O_RDONLY | O_DIRECT);
        show_read("pread", pread(fd, back, 8192, 0), back);
        show_read("pread", pread(fd, back, 4096, 4096), back);
        show("pread behind", pread(fd, back, 4096, 8192));
        close(fd);
    }
    const int flags[] = {O_SYNC, O_DSYNC};
    for (int i = 0; i < 2; i++) {
        fd = open(i ? "dsync" : "sync", O_RDWR | O_CREAT | flags[i], 0644);
        show_ok("open", fd);
        show("F_GETFL", (fcntl(fd, F_GETFL) & O_SYNC) == flags[i]);
        fill(page, 65536, 5 + i, 0);
        show("write", write(fd, page, 1));
        show("write", write(fd, page + 1, 8191));
        show("pwrite", pwrite(fd, page, 8192, 8192));
        show_file(i ? "dsync" : "sync");
    }
    return 0;
}
