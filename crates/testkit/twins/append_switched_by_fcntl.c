/* F_SETFL may turn O_APPEND on and off: F_GETFL tells, a duplicate shares it, writes obey it. */
#include "twin.h"

static void show_flags(const char *what, int fd)
{
    int flags = fcntl(fd, F_GETFL);
    say("%s: access %d append %d nonblock %d", what, flags & O_ACCMODE, !!(flags & O_APPEND),
        !!(flags & O_NONBLOCK));
}

int main(int argc, char **argv)
{
    char text[200];
    start(argc, argv);
    int fd = make_file("switched", 1, 100);
    int twin = dup(fd);
    fill(text, sizeof text, 2, 0);
    show_flags("at first", fd);
    show("pwrite", pwrite(fd, text, 10, 20));
    show("F_SETFL", fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK));
    show_flags("after F_SETFL", fd);
    show_flags("the duplicate", twin);
    show("pwrite", pwrite(twin, text, 10, 40));
    show_size("appended", fd);
    show("write", write(fd, text, 31));
    show("F_SETFL", fcntl(twin, F_SETFL, 0));
    show_flags("after F_SETFL 0", fd);
    show("pwrite", pwrite(fd, text, 10, 60));
    show("lseek", lseek(fd, 3, SEEK_SET));
    show("write", write(fd, text, 5));
    show_file("switched");
    const int modes[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_APPEND, O_WRONLY | O_APPEND};
    for (int i = 0; i < 5; i++) {
        int again = open("switched", modes[i]);
        show_flags("opened", again);
        close(again);
    }
    return 0;
}
