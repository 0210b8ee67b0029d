/* Writes through O_DSYNC and O_SYNC that change the size in every way, and through O_DIRECT that
 * leave it: what they acknowledge is on the disk.
 *
 * usage: synced DIR make|write [NAME]
 *        synced DIR behind
 *   behind  writes a unit at 1 MiB of files that another descriptor has made and not synced
 *   make    makes the files of all cases, synced, as they are before
 *   write   carries each case out between two marks (writes to descriptor -1, for a trace), prints
 * a line for it when its call has returned, and ends without another call to a file NAME chooses
 * one case. A line is its name and the bytes of its file, zeros as dots.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct step {
    const char *name;
    long before, at, len;
    int flags;
};

/* From every kind of end to every kind of end, within a unit, to its end and beyond; behind gaps;
 * no growth. */
static const struct step steps[] = {
    {"odd-append", 100, 100, 77, O_DSYNC},
    {"odd-append-of-a-log", 100, 100, 77, O_DSYNC | O_APPEND},
    {"odd-append-synced", 5000, 5000, 333, O_SYNC | O_APPEND},
    {"to-a-block", 100, 100, 12, O_DSYNC},
    {"to-a-block-by-one", 4111, 4111, 1, O_DSYNC},
    {"to-a-later-block", 100, 100, 60, O_SYNC},
    {"from-a-block-to-a-block", 32, 32, 16, O_DSYNC},
    {"to-a-unit", 100, 100, 3996, O_DSYNC},
    {"to-the-next-unit", 4090, 4090, 4102, O_DSYNC},
    {"behind-a-gap-to-a-unit", 100, 8192, 4096, O_DSYNC},
    {"a-unit-behind-an-odd-end", 4090, 4096, 4096, O_DSYNC | O_APPEND},
    {"behind-a-gap", 100, 9000, 50, O_SYNC},
    {"from-units-to-odd", 8192, 8192, 5, O_DSYNC},
    {"the-first-odd-bytes", 0, 0, 7, O_DSYNC},
    {"the-first-block", 0, 0, 16, O_DSYNC},
    {"the-first-unit", 0, 0, 4096, O_DSYNC},
    {"inside", 100, 20, 7, O_DSYNC},
    {"inside-at-the-end", 100, 90, 10, O_DSYNC},
    {"direct", 12288, 4096, 4096, O_DIRECT},
    {"direct-from-the-start", 16384, 0, 8192, O_DIRECT},
    {"direct-by-fcntl", 12288, 8192, 4096, O_DIRECT},
};
enum { STEPS = sizeof steps / sizeof *steps };

static char byte_at(const struct step *step, long at)
{
    long from = step->flags & O_APPEND ? step->before : step->at;
    if (at >= from && at < from + step->len)
        return 'A' + at % 26;
    return at < step->before ? 'a' + at % 26 : 0;
}

static void die(const char *what)
{
    fprintf(stderr, "synced: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void mark(const char *begin, const char *name)
{
    char text[128];
    int len = snprintf(text, sizeof text, "%s%s", begin, name);
    syscall(SYS_write, -1, text, len);
}

/* The descriptor that promises is opened before the other's first byte, or after it. */
static int behind(void)
{
    static char bytes[4096];
    const char *names[] = {"behind-before", "behind-after"};
    memset(bytes, 'B', sizeof bytes);
    for (int after = 0; after < 2; after++) {
        int maker = open(names[after], O_RDWR | O_CREAT | O_EXCL, 0600), fd = -1;
        if (!after)
            fd = open(names[after], O_RDWR | O_DSYNC);
        if (maker < 0 || pwrite(maker, bytes, sizeof bytes, 0) != sizeof bytes)
            die("make");
        if (after)
            fd = open(names[after], O_RDWR | O_DSYNC);
        if (fd < 0 || pwrite(fd, bytes, sizeof bytes, 1 << 20) != sizeof bytes)
            die("write");
    }
    return 0;
}

int main(int argc, char **argv)
{
    static char bytes[20000] __attribute__((aligned(4096)));
    int fds[STEPS], makes = argc > 2 && !strcmp(argv[2], "make");
    if (argc < 3 || chdir(argv[1]) < 0)
        return 2;
    if (!strcmp(argv[2], "behind"))
        return behind();
    for (int i = 0; i < STEPS; i++) {
        const struct step *step = &steps[i];
        int later = strstr(step->name, "fcntl") ? step->flags : 0;
        int flags = makes ? O_CREAT | O_EXCL : step->flags & ~later;
        fds[i] = open(step->name, O_RDWR | flags, 0600);
        if (fds[i] < 0 || (later && !makes && fcntl(fds[i], F_SETFL, later) < 0))
            die("open");
        for (long at = 0; at < step->before; at++)
            bytes[at] = 'a' + at % 26;
        if (makes && (write(fds[i], bytes, step->before) != step->before || fsync(fds[i]) < 0))
            die("make");
    }
    sync();
    for (int i = 0; i < STEPS && !makes; i++) {
        const struct step *step = &steps[i];
        if (argc > 3 && strcmp(argv[3], step->name) != 0)
            continue;
        long from = step->flags & O_APPEND ? step->before : step->at;
        for (long at = from; at < from + step->len; at++)
            bytes[at - from] = byte_at(step, at);
        mark("begin ", step->name);
        long done = i % 2 && step->flags & O_APPEND ? write(fds[i], bytes, step->len)
                                                    : pwrite(fds[i], bytes, step->len, step->at);
        mark("end", "");
        if (done != step->len)
            die(step->name);
        long size = from + step->len > step->before ? from + step->len : step->before;
        char line[20300];
        int len = snprintf(line, sizeof line, "%s ", step->name);
        for (long at = 0; at < size; at++)
            line[len++] = byte_at(step, at) ? byte_at(step, at) : '.';
        line[len++] = '\n';
        if (syscall(SYS_write, 1, line, len) != len)
            die("acknowledge");
    }
    return 0;
}
