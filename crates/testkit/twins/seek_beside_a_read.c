/* lseek(SEEK_SET) while another reads at the same offset: it wins or loses as a whole. Each seek
 * goes further into the file; a read that begins after it has returned finds bytes from there on.
 */
#include "two_at_one_offset.h"

enum { SEEKS = 4000, STEP = 1024, EACH = 64 };

static void seek_on(void)
{
    for (long seek = 1; seek < SEEKS; seek++) {
        two->bad += lseek(fd, seek * STEP, SEEK_SET) != seek * STEP;
        two->done = seek * STEP;
        for (volatile int turn = 0; turn < 200 + seek % 700; turn++)
            ;
    }
    two->over = 1;
}

static void *read_on(void *unused)
{
    char back[EACH + 1] = "";
    begin();
    while (!two->over) {
        long least = two->done;
        long got = read(fd, back, EACH);
        if (got == EACH)
            two->bad += atol(back) < least;
        else
            two->bad += got != 0;
    }
    return unused;
}

int main(int argc, char **argv)
{
    static char text[SEEKS * STEP + 1];
    start(argc, argv);
    share();
    for (long at = 0; at < SEEKS * STEP; at += EACH)
        snprintf(text + at, EACH + 1, "%0*ld", EACH, at);
    fd = open("shared", O_RDWR | O_CREAT | O_TRUNC, 0644);
    show("write", write(fd, text, SEEKS * STEP));
    for (int forks = 0; forks < 2; forks++) {
        lseek(fd, 0, SEEK_SET);
        run_both("child", forks, seek_on, read_on);
        say("%s: %d bad", forks ? "processes" : "threads", two->bad);
    }
    close(fd);
    unlink("shared");
    return 0;
}
