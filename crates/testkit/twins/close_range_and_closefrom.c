/* close_range and closefrom close what the program sees and nothing of what the library hides:
 * files opened afterwards still work, and a loop over all numbers finds no stranger. */
#include "twin.h"
#include <sys/resource.h>

static int open_ones(void)
{
    int n = 0;
    for (int fd = 0; fd < 20000; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

int main(int argc, char **argv)
{
    char back[64];
    int fds[6];
    start(argc, argv);
    int before = open_ones();
    for (int i = 0; i < 6; i++) {
        char name[20];
        snprintf(name, sizeof name, "file-%d", i);
        fds[i] = make_file(name, i, 1000);
    }
    say("six more are open: %d", open_ones() - before);
    show("close_range", close_range(fds[3], fds[4], 0));
    show("read closed", read(fds[3], back, 10));
    show("read closed", read(fds[4], back, 10));
    show_read("read open", read(fds[5], back, 40), back);
    int again = open("file-0", O_RDWR);
    say("the lowest number is used: %d", again == fds[3]);
    show_read("read", read(again, back, 40), back);
    show("CLOSE_RANGE_CLOEXEC", close_range(fds[0], fds[1], CLOSE_RANGE_CLOEXEC));
    show("F_GETFD", fcntl(fds[0], F_GETFD));
    show("F_GETFD", fcntl(fds[2], F_GETFD));
    show_read("read", read(fds[0], back, 40), back);
    show("wrong way round", close_range(9, 8, 0));
    show("bad flags", close_range(8, 9, 77));
    show("all above 3", close_range(3, ~0u, 0));
    show("read closed", read(fds[0], back, 40));
    int fresh = open("file-1", O_RDWR);
    show_read("read", read(fresh, back, 40), back);
    show("write", write(fresh, MARKER " after close_range", 31));
    show_file("file-1");
    closefrom(3);
    show("read closed", read(fresh, back, 40));
    fresh = open("file-2", O_RDWR | O_APPEND);
    show("write", write(fresh, MARKER " after closefrom", 29));
    show_file("file-2");

    /* What daemons do: close every number that there may be. */
    int closed = 0;
    for (int fd = 3; fd < 20000; fd++)
        closed += close(fd) == 0;
    say("closed in a loop: %d", closed);
    fresh = make_file("file-3", 33, 3000);
    show("write", pwrite(fresh, MARKER " after the loop", 28, 2995));
    show_file("file-3");
    say("open: %d", open_ones() - before);

    /* dup2 onto every number that may be hidden, within the limit. */
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    int null = open("/dev/null", O_RDWR);
    for (unsigned fd = 1000; fd < 20000 && fd < limit.rlim_cur; fd++)
        if (dup2(null, fd) == (int)fd)
            close(fd);
    show_read("pread", pread(fresh, back, 40, 2980), back);
    show("write", pwrite(fresh, MARKER " after dup2", 24, 2000));
    show_file("file-3");
    return 0;
}
