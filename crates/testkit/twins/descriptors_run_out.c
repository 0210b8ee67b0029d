/* With few descriptors: opening ends in EMFILE, the file that could not be opened is not left
 * behind, what is open still works, and after a close the same open succeeds. */
#include "twin.h"
#include <sys/resource.h>

static int names(const char *form, int below)
{
    int n = 0;
    for (int i = 0; i < below; i++) {
        char name[20];
        snprintf(name, sizeof name, form, i);
        n += access(name, F_OK) == 0;
    }
    return n;
}

int main(int argc, char **argv)
{
    int fds[100], n = 0;
    char name[20], back[64];
    struct rlimit limit;
    start(argc, argv);
    for (int i = 0; i < 3; i++)
        show("open before", close(open("before", O_RDWR | O_CREAT, 0600)));
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 64;
    show("setrlimit", setrlimit(RLIMIT_NOFILE, &limit));
    for (;;) {
        snprintf(name, sizeof name, "f%d", n);
        int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (fd < 0)
            break;
        if (write(fd, MARKER, 13) != 13)
            show("write", -1);
        fds[n++] = fd;
    }
    say("ended by %s", errno_name(errno));
    say("at least twenty: %d", n >= 20);
    say("as many files as opens: %d", names("f%d", 100) == n);
    show("again", open(name, O_RDWR | O_CREAT | O_EXCL, 0600));
    show("not left behind", access(name, F_OK));
    say("fopen: %d %s", fopen(name, "wx") != NULL, errno_name(errno));
    show("not left behind", access(name, F_OK));
    show("dup", dup(fds[0]));
    show_read("open ones work", pread(fds[1], back, 20, 0), back);
    show("open ones work", pwrite(fds[2], MARKER, 13, 5));
    /* Truncation of an existing file must not happen either when its open fails. */
    show("O_TRUNC", open("f1", O_RDWR | O_TRUNC));
    show("not cut", lseek(fds[1], 0, SEEK_END));
    show("close", close(fds[n - 1]) | close(fds[n - 2]));
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    show_ok("now it opens", fd);
    show("write", write(fd, MARKER " late", 18));
    close(fd);
    show("rename", rename(name, "late"));
    show_file("late");
    for (int i = 0; i < n - 2; i++)
        close(fds[i]);
    int round = 0;
    for (; round < 200; round++) {
        fd = open("f0", O_RDWR);
        if (fd < 0 || pread(fd, back, 13, 0) != 13 || close(fd) < 0)
            break;
    }
    say("opened and closed: %d", round);
    for (int i = 3; i < n; i++) {
        snprintf(name, sizeof name, "f%d", i);
        unlink(name);
    }
    show_file("f2");
    return 0;
}
