/* Thousands of new files are open at once, each written and read. The one that does not fit any
 * more fails at its open, with EMFILE or ENFILE, and nothing of it is left behind; no write fails
 * for want of room. How many fit depends on the limits of the machine, so it is not printed. */
#include "twin.h"
#include <sys/resource.h>

enum { MOST = 40000 };

static int fds[MOST];

static void name_of(char *name, int number)
{
    snprintf(name, 40, "d%d/f%d", number / 1000, number);
}

int main(int argc, char **argv)
{
    char name[40], text[64], back[64];
    int n = 0, bad_write = 0, bad_read = 0, left = 0;
    struct rlimit limit;
    start(argc, argv);
    getrlimit(RLIMIT_NOFILE, &limit);
    /* Two descriptors for each file, and as many as a privileged program may have. */
    struct rlimit more = {36000, limit.rlim_max < 36000 ? 36000 : limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &more) < 0) {
        more = (struct rlimit){limit.rlim_max, limit.rlim_max};
        setrlimit(RLIMIT_NOFILE, &more);
    }
    for (int i = 0; i * 1000 < MOST; i++) {
        snprintf(name, sizeof name, "d%d", i);
        mkdir(name, 0700);
    }
    for (; n < MOST; n++) {
        name_of(name, n);
        fds[n] = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (fds[n] < 0)
            break;
    }
    int error = errno;
    say("ended by EMFILE or ENFILE: %d", n < MOST && (error == EMFILE || error == ENFILE));
    say("not left behind: %d", access(name, F_OK) < 0 && errno == ENOENT);
    long enough = more.rlim_cur > 34000 ? 16000 : (long)more.rlim_cur / 2 - 1100;
    say("more than enough were opened: %d", n >= enough);
    for (int i = 0; i < n; i++) {
        fill(text, 40, i, 0);
        bad_write += write(fds[i], text, 40) != 40;
    }
    say("writes that failed: %d", bad_write);
    for (int i = 0; i < n; i++) {
        fill(text, 40, i, 0);
        bad_read += pread(fds[i], back, 64, 0) != 40 || memcmp(text, back, 40) != 0;
    }
    say("reads that failed: %d", bad_read);
    name_of(name, n);
    show("again", open(name, O_RDWR | O_CREAT | O_EXCL, 0600) < 0 ? 0 : 1);
    for (int i = 0; i < 2; i++)
        bad_write += close(fds[i]) != 0;
    show("after two were closed it opens", open(name, O_RDWR | O_CREAT | O_EXCL, 0600) < 0 ? 1 : 0);
    unlink(name);
    for (int i = 2; i < n; i++)
        close(fds[i]);
    /* In another order, so that keys are found among all those that were used. */
    bad_read = 0;
    for (int i = 0; i < 6000 && i < n; i++) {
        int which = (int)((long)i * 7919 % n);
        name_of(name, which);
        int fd = open(name, O_RDONLY);
        fill(text, 40, which, 0);
        bad_read += fd < 0 || read(fd, back, 64) != 40 || memcmp(text, back, 40) != 0;
        close(fd);
    }
    say("opened again, reads that failed: %d", bad_read);
    show_file("d0/f7");
    for (int i = 0; i < n; i++) {
        name_of(name, i);
        /* How many there were is not the same in both runs. */
        if (i > 0)
            left += unlink(name) != 0;
    }
    say("could not be removed: %d", left);
    return 0;
}
