/* A FIFO is opened once: whoever waits at its other end must not see an end of file in between, and
 * nothing that was written may be lost. */
#include "twin.h"

enum { ROUNDS = 50 };
static const char text[] = MARKER " through a pipe with a name";

/* The child reads to the end; says by its exit whether it got the text. */
static pid_t reader(void)
{
    pid_t child = fork();
    if (child == 0) {
        char back[100];
        size_t have = 0;
        ssize_t count;
        int fd = open("fifo", O_RDONLY);
        while (have < sizeof back && (count = read(fd, back + have, sizeof back - have)) > 0)
            have += count;
        _exit(have != sizeof text || memcmp(back, text, sizeof text) != 0);
    }
    return child;
}

static pid_t writer(void)
{
    pid_t child = fork();
    if (child == 0) {
        int fd = open("fifo", O_WRONLY);
        _exit(write(fd, text, sizeof text) != sizeof text || close(fd) != 0);
    }
    return child;
}

static int failed(pid_t child)
{
    int status = 0;
    return waitpid(child, &status, 0) != child || status != 0;
}

int main(int argc, char **argv)
{
    start(argc, argv);
    alarm(60);
    show("mkfifo", mkfifo("fifo", 0600));
    int lost = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pid_t child = reader();
        int fd = open("fifo", O_WRONLY | O_CLOEXEC | (round % 2 ? O_APPEND | O_CREAT : 0), 0600);
        if (write(fd, text, sizeof text) != sizeof text)
            lost++;
        close(fd);
        lost += failed(child);
    }
    say("readers that did not get the text: %d", lost);
    lost = 0;
    for (int round = 0; round < ROUNDS; round++) {
        char back[100];
        size_t have = 0;
        ssize_t count;
        pid_t child = writer();
        int fd = open("fifo", O_RDONLY | (round % 2 ? O_CLOEXEC : 0));
        lost += !!(fcntl(fd, F_GETFD) & FD_CLOEXEC) != round % 2;
        while (have < sizeof back && (count = read(fd, back + have, sizeof back - have)) > 0)
            have += count;
        lost += have != sizeof text || memcmp(back, text, sizeof text) != 0;
        close(fd);
        lost += failed(child);
    }
    say("texts that did not come: %d", lost);
    show("open for writing without a reader", open("fifo", O_WRONLY | O_NONBLOCK));
    show("truncate", truncate("fifo", 5));
    show("truncate to nothing", truncate("fifo", 0));
    int both = open("fifo", O_RDWR | O_NONBLOCK);
    show("write", write(both, text, sizeof text));
    say("the lowest number: %d", open("fifo", O_RDONLY | O_NONBLOCK) == both + 1);
    show("truncate of an open one", truncate("fifo", 0));
    show("unlink", unlink("fifo"));
    return 0;
}
