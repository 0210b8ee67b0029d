/* A regular file is always ready for poll and select, and epoll refuses it. */
#include "twin.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

int main(int argc, char **argv)
{
    int pipes[2];
    start(argc, argv);
    int fd = make_file("file", 1, 100);
    int r = open("file", O_RDONLY);
    show("pipe", pipe(pipes));
    struct pollfd set[] = {{fd, POLLIN | POLLOUT | POLLPRI, 0}, {pipes[0], POLLIN, 0},
                           {r, POLLIN, 0}, {-1, POLLIN, 0}, {pipes[1], POLLOUT, 0},
                           {400, POLLIN, 0}};
    show("poll", poll(set, 6, 0));
    for (int i = 0; i < 6; i++)
        say("  revents %x", set[i].revents);
    struct timespec none = {0, 0};
    show("ppoll", ppoll(set, 3, &none, NULL));
    for (int i = 0; i < 3; i++)
        say("  revents %x", set[i].revents);
    set[0].events = 0;
    show("poll for nothing", poll(set, 1, 0));
    set[1].events = POLLIN;
    show("poll of a pipe waits", poll(set + 1, 1, 10));

    /* A file that is asked for nothing does not end the wait for others. */
    pid_t child = fork();
    if (child == 0) {
        usleep(100 * 1000);
        _exit(write(pipes[1], "x", 1) != 1);
    }
    set[0].events = POLLPRI;
    show("poll waits beside a file", poll(set, 2, -1));
    say("  fd %d revents %x, pipe %x", set[0].fd == fd, set[0].revents, set[1].revents);
    show_end("child", child);
    show("poll again", ppoll(set, 2, NULL, NULL));
    char byte;
    show("read", read(pipes[0], &byte, 1));
    struct timespec short_time = {0, 20 * 1000 * 1000};
    show("poll to its end", ppoll(set, 2, &short_time, NULL));
    say("  fd %d revents %x, pipe %x", set[0].fd == fd, set[0].revents, set[1].revents);

    fd_set in, out, bad;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&bad);
    FD_SET(fd, &in);
    FD_SET(pipes[0], &in);
    FD_SET(fd, &out);
    FD_SET(pipes[1], &out);
    FD_SET(fd, &bad);
    struct timeval now = {0, 0};
    show("select", select(20, &in, &out, &bad, &now));
    say("  in %d pipe %d out %d pipe %d except %d", FD_ISSET(fd, &in), FD_ISSET(pipes[0], &in),
        FD_ISSET(fd, &out), FD_ISSET(pipes[1], &out), FD_ISSET(fd, &bad));
    FD_ZERO(&in);
    FD_SET(fd, &in);
    show("pselect", pselect(20, &in, NULL, NULL, &none, NULL));
    say("  in %d", FD_ISSET(fd, &in));

    /* A call that fails leaves the sets as they are. */
    FD_SET(fd, &out);
    FD_SET(fd, &bad);
    FD_SET(19, &in);
    show("select of what is closed", select(20, &in, &out, &bad, &now));
    say("  in %d closed %d out %d except %d", FD_ISSET(fd, &in), FD_ISSET(19, &in),
        FD_ISSET(fd, &out), FD_ISSET(fd, &bad));

    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    show("epoll_ctl of the file", epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    show("epoll_ctl of the pipe", epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[1], &event));
    show("epoll_wait", epoll_wait(epoll, &event, 1, 0));
    show_file("file");
    return 0;
}
