/* Sparse files of every size beside the edges read as zeros, before and after data lands in them.
 */
#include "twin.h"

int main(int argc, char **argv)
{
    char text[32], back[70];
    start(argc, argv);
    fill(text, sizeof text, 1, 0);
    for (int i = 0; i < EDGES; i++) {
        char name[40];
        long size = edges[i];
        snprintf(name, sizeof name, "hole-%ld", size);
        int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0644);
        show("ftruncate", ftruncate(fd, size));
        show_file(name);
        show("pwrite at a third", pwrite(fd, text, 3, size / 3));
        show_file(name);
        show("pwrite far behind", pwrite(fd, text, 20, size + 20000));
        show_read("pread across", pread(fd, back, 70, size + 19970), back);
        show("pwrite of zeros", pwrite(fd, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20, 16));
        show_file(name);
        close(fd);
    }
    /* Zeros that are really written are zeros, whatever rule reads holes. */
    static char zeros[20000];
    int fd = make_file("zeros", 7, 20000);
    show("pwrite of zeros", pwrite(fd, zeros, 9000, 4000));
    show_file("zeros");
    show("pwrite of zeros", pwrite(fd, zeros, 16, 32));
    show("pwrite of a zero", pwrite(fd, zeros, 1, 100));
    show_file("zeros");
    return 0;
}
