/* preadv2 and pwritev2 with flags that change where or how bytes move. */
#include "twin.h"
#include <sys/uio.h>

int main(int argc, char **argv)
{
    char text[5000], back[5000];
    struct iovec from = {text, 100}, into = {back, 100};
    start(argc, argv);
    fill(text, sizeof text, 1, 0);
    int fd = make_file("file", 1, 300);
    show("RWF_APPEND", pwritev2(fd, &from, 1, 0, RWF_APPEND));
    show("RWF_NOWAIT", preadv2(fd, &into, 1, 0, RWF_NOWAIT));
    show("unknown", preadv2(fd, &into, 1, 0, 1 << 30));
    show("RWF_HIPRI", preadv2(fd, &into, 1, 0, RWF_HIPRI));
    show("RWF_SYNC", preadv2(fd, &into, 1, 0, RWF_SYNC));
    show("RWF_DSYNC", preadv2(fd, &into, 1, -1, RWF_DSYNC));
    show_file("file");
    return 0;
}
