/* A write behind the end leaves zeros between; a seek alone changes nothing; bad seeks are refused
 * and keep the offset. */
#include "twin.h"

int main(int argc, char **argv)
{
    char text[64], back[64];
    start(argc, argv);
    fill(text, sizeof text, 1, 0);
    for (int i = 0; i < EDGES; i++) {
        for (int gap = 1; gap <= 4097; gap = gap * 16 + (gap == 1)) {
            char name[40];
            snprintf(name, sizeof name, "past-%ld-%d", edges[i], gap);
            int fd = make_file(name, i + 1, edges[i]);
            show("lseek", lseek(fd, gap, SEEK_END));
            show_size("only sought", fd);
            show("read there", read(fd, back, sizeof back));
            show("write", write(fd, text, 13));
            show("offset", lseek(fd, 0, SEEK_CUR));
            close(fd);
            show_file(name);
        }
    }
    int fd = make_file("seeks", 99, 100);
    show("SEEK_SET 10", lseek(fd, 10, SEEK_SET));
    show("SEEK_CUR +5", lseek(fd, 5, SEEK_CUR));
    show("SEEK_CUR -20", lseek(fd, -20, SEEK_CUR));
    show("SEEK_END -1", lseek(fd, -1, SEEK_END));
    show("SEEK_END -101", lseek(fd, -101, SEEK_END));
    show("SEEK_SET -1", lseek(fd, -1, SEEK_SET));
    show("SEEK 77", lseek(fd, 0, 77));
    show("SEEK_CUR 0", lseek(fd, 0, SEEK_CUR));
    show("SEEK_SET far", lseek(fd, 1L << 40, SEEK_SET));
    show("read far", read(fd, back, 10));
    show("pread far", pread(fd, back, 10, 1L << 40));
    show("pread -1", pread(fd, back, 10, -1));
    show("pwrite -1", pwrite(fd, text, 10, -1));
    show_size("seeks", fd);
    int pipes[2];
    show("pipe", pipe(pipes));
    show("lseek of a pipe", lseek(pipes[0], 0, SEEK_CUR));
    return 0;
}
