/* A descriptor that is sent over a socket. */
#include "twin.h"
#include <sys/socket.h>

int main(int argc, char **argv)
{
    int pair[2], got = -1;
    char back[64], byte = 'x';
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {&byte, 1};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control};
    start(argc, argv);
    int fd = make_file("file", 1, 100);
    show("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    control.header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    show("sendmsg", sendmsg(pair[0], &message, 0));
    memset(&control, 0, sizeof control);
    show("recvmsg", recvmsg(pair[1], &message, 0));
    memcpy(&got, CMSG_DATA(&control.header), sizeof got);
    show_ok("received", got);
    show("read", read(got, back, 20));
    show("pwrite", pwrite(got, MARKER, 13, 0));
    show_file("file");
    return 0;
}
