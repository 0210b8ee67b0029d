/* One writes at the offset that it shares with another, who seeks to the end all the time. The end
 * is where the writer stands anyway, so nothing may change: no gap, no byte that nobody wrote. */
#include "two_at_one_offset.h"

enum { WRITES = 4000, EACH = 37 };

static void write_on(void)
{
    char text[EACH];
    for (int i = 0; i < WRITES; i++) {
        memset(text, 'a' + i % 26, EACH);
        two->bad += write(fd, text, EACH) != EACH;
    }
    two->over = 1;
}

static void *seek_on(void *unused)
{
    begin();
    for (long last = 0; !two->over;) {
        long end = lseek(fd, 0, SEEK_END);
        two->bad += end < last || end % EACH != 0 || end > WRITES * EACH;
        last = end;
    }
    return unused;
}

static void look(const char *who)
{
    static char all[2 * WRITES * EACH];
    long size = pread(fd, all, sizeof all, 0), nobodys = 0;
    for (long i = 0; i < size; i++)
        nobodys += all[i] < 'a' || all[i] > 'z';
    say("%s: size %ld, %ld bytes that nobody wrote, %d bad answers", who, size, nobodys, two->bad);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    share();
    for (int forks = 0; forks < 2; forks++) {
        fd = open("shared", O_RDWR | O_CREAT | O_TRUNC, 0644);
        run_both("child", forks, write_on, seek_on);
        look(forks ? "processes" : "threads");
        close(fd);
    }
    unlink("shared");
    return 0;
}
