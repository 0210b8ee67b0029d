/* O_APPEND belongs to the open file, which a fork shares: set or taken back by one process after
 * the fork, it counts for the other, for duplicates, and for F_GETFL of all. */
#include "twin.h"

static int to_child[2], to_parent[2];

static void tell(int to) { if (write(to, "x", 1) != 1) _exit(1); }
static void await(int from) { char c; if (read(from, &c, 1) != 1) _exit(1); }

static int appends(int fd) { return !!(fcntl(fd, F_GETFL) & O_APPEND); }

int main(int argc, char **argv)
{
    char text[100];
    start(argc, argv);
    fill(text, sizeof text, 2, 0);
    if (pipe(to_child) || pipe(to_parent))
        return 1;
    int fd = make_file("shared", 1, 1000);
    int set_before = make_file("before", 1, 1000);
    show("F_SETFL", fcntl(set_before, F_SETFL, O_APPEND));
    int opened = open("opened", O_RDWR | O_CREAT | O_APPEND, 0600);
    show("write", write(opened, text, 50));
    int twin = dup(fd);
    pid_t child = fork();
    if (child == 0) {
        await(to_child[0]);
        say("child sees %d %d %d", appends(fd), appends(set_before), appends(opened));
        show("child pwrite", pwrite(fd, text, 10, 20));
        show("child pwrite", pwrite(set_before, text, 10, 20));
        show("child pwrite", pwrite(opened, text, 10, 20));
        show("child F_SETFL", fcntl(twin, F_SETFL, 0));
        show("child F_SETFL", fcntl(opened, F_SETFL, O_NONBLOCK));
        tell(to_parent[1]);
        await(to_child[0]);
        int own = open("own", O_RDWR | O_CREAT, 0600);
        show("own", fcntl(own, F_SETFL, O_APPEND));
        say("own %d", appends(own));
        _exit(0);
    }
    show("parent F_SETFL", fcntl(fd, F_SETFL, O_APPEND));
    say("parent sees %d %d %d %d", appends(fd), appends(twin), appends(set_before),
        appends(opened));
    tell(to_child[1]);
    await(to_parent[0]);
    say("parent sees %d %d %d %d", appends(fd), appends(twin), appends(set_before),
        appends(opened));
    say("nonblock %d async %d", !!(fcntl(opened, F_GETFL) & O_NONBLOCK),
        !!(fcntl(opened, F_GETFL) & O_ASYNC));
    show("parent pwrite", pwrite(fd, text, 10, 40));
    show("parent pwrite", pwrite(set_before, text, 10, 40));
    show("parent pwrite", pwrite(opened, text, 10, 0));
    lseek(fd, 100, SEEK_SET);
    show("parent write", write(fd, text, 33));
    tell(to_child[1]);
    show_end("child", child);
    show_file("shared");
    show_file("before");
    show_file("opened");
    return 0;
}
