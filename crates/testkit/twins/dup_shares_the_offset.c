/* Every way to duplicate a descriptor shares offset and flags, keeps its own close-on-exec mark,
 * and outlives the first one. Numbers are the lowest that are free. */
#include "twin.h"

int main(int argc, char **argv)
{
    char back[64];
    start(argc, argv);
    int fd = make_file("shared", 1, 5000);
    show("first", fd);
    int copies[6];
    copies[0] = show("dup", dup(fd));
    copies[1] = show("dup2", dup2(fd, 20));
    copies[2] = show("dup3", dup3(fd, 21, O_CLOEXEC));
    copies[3] = show("F_DUPFD", fcntl(fd, F_DUPFD, 20));
    copies[4] = show("F_DUPFD_CLOEXEC", fcntl(fd, F_DUPFD_CLOEXEC, 20));
    copies[5] = show("dup of a dup", dup(copies[1]));
    for (int i = 0; i < 6; i++) {
        show("F_GETFD", fcntl(copies[i], F_GETFD));
        show_read("read", read(copies[i], back, 10 + i), back);
        show("offset of the first", lseek(fd, 0, SEEK_CUR));
    }
    show("F_SETFD", fcntl(copies[0], F_SETFD, FD_CLOEXEC));
    show("F_GETFD", fcntl(copies[0], F_GETFD));
    show("F_GETFD of the first", fcntl(fd, F_GETFD));
    show("lseek", lseek(copies[3], 4090, SEEK_SET));
    show("close", close(fd));
    show("read of the closed", read(fd, back, 10));
    show("close again", close(fd));
    show("write", write(copies[2], "tidelock-twin through dup3", 26));
    for (int i = 0; i < 5; i++)
        show("close", close(copies[i]));
    show_read("read of the last", read(copies[5], back, 40), back);
    show("close", close(copies[5]));
    show("lowest free", open("shared", O_RDONLY));
    show_file("shared");
    return 0;
}
