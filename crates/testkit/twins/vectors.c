/* readv, writev, preadv, pwritev and their second forms: bytes in order over uneven pieces, empty
 * pieces, short reads at the end, offset -1, flags for
 * synchronous writes, and too many pieces. */
#include "twin.h"
#include <limits.h>
#include <sys/uio.h>

static char text[40000], back[40000];

/* Cuts a buffer into pieces of 0, 1, 7, 16, 100, 4096, 3, 5000 ... bytes. */
static int pieces(struct iovec *iov, char *base, int n)
{
    static const int lengths[] = {0, 1, 7, 16, 100, 4096, 3, 5000, 0, 15, 17, 2048};
    for (int i = 0; i < n; i++) {
        iov[i] = (struct iovec){base, lengths[i % 12]};
        base += lengths[i % 12];
    }
    return n;
}

int main(int argc, char **argv)
{
    struct iovec iov[32];
    start(argc, argv);
    fill(text, sizeof text, 1, 0);
    int fd = open("vector", O_RDWR | O_CREAT, 0644);
    show("writev", writev(fd, iov, pieces(iov, text, 12)));
    show("writev", writev(fd, iov, pieces(iov, text + 100, 7)));
    show("pwritev", pwritev(fd, iov, pieces(iov, text, 5), 4090));
    show("pwritev behind", pwritev(fd, iov, pieces(iov, text, 3), 20001));
    show("offset", lseek(fd, 0, SEEK_CUR));
    show_file("vector");
    show("lseek", lseek(fd, 33, SEEK_SET));
    show_read("readv", readv(fd, iov, pieces(iov, back, 12)), back);
    show("offset", lseek(fd, 0, SEEK_CUR));
    show_read("readv to the end", readv(fd, iov, pieces(iov, back, 24)), back);
    show("readv at the end", readv(fd, iov, pieces(iov, back, 12)));
    show_read("preadv", preadv(fd, iov, pieces(iov, back, 6), 4000), back);
    show_read("preadv64", preadv64(fd, iov, pieces(iov, back, 6), 1), back);
    show("pwritev64", pwritev64(fd, iov, pieces(iov, text, 6), 15));

    show_read("preadv2", preadv2(fd, iov, pieces(iov, back, 8), 50, 0), back);
    show("lseek", lseek(fd, 9, SEEK_SET));
    show_read("preadv2 at -1", preadv2(fd, iov, pieces(iov, back, 5), -1, 0), back);
    show("offset", lseek(fd, 0, SEEK_CUR));
    show("pwritev2 at -1", pwritev2(fd, iov, pieces(iov, text, 5), -1, 0));
    show("offset", lseek(fd, 0, SEEK_CUR));
    show("pwritev2 RWF_DSYNC", pwritev2(fd, iov, pieces(iov, text, 6), 8000, RWF_DSYNC));
    show("pwritev2 RWF_SYNC", pwritev2(fd, iov, pieces(iov, text, 2), 8000, RWF_SYNC));
    show_file("vector");
    show("none", writev(fd, iov, 0));
    volatile int negative = -1;
    show("negative", writev(fd, iov, negative));
    struct iovec *many = calloc(IOV_MAX + 1, sizeof *many);
    for (int i = 0; i <= IOV_MAX; i++)
        many[i] = (struct iovec){text + i, 1};
    show("too many", writev(fd, many, IOV_MAX + 1));
    show("the most", pwritev(fd, many, IOV_MAX, 30000));
    show("the most", preadv(fd, many, IOV_MAX, 30000));
    show("negative offset", preadv(fd, many, 1, -5));
    int pipes[2];
    show("pipe", pipe(pipes));
    show("writev to a pipe", writev(pipes[1], iov, pieces(iov, text, 5)));
    show_read("readv of a pipe", readv(pipes[0], iov, pieces(iov, back, 5)), back);
    int append = open("vector", O_WRONLY | O_APPEND);
    show("writev appends", writev(append, iov, pieces(iov, text, 5)));
    show("pwritev appends", pwritev(append, iov, pieces(iov, text, 6), 3));
    show_file("vector");
    return 0;
}
