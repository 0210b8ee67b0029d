/* Aligned 8 KiB reads and writes of a paged file, between marks that a trace of system calls shows: a
 * write to descriptor -1 that names what follows. */
#include "twin.h"

enum { PAGES = 32, PAGE = 8192 };

static void mark(const char *text)
{
    syscall(SYS_write, -1, text, strlen(text));
}

int main(int argc, char **argv)
{
    static char page[PAGE] __attribute__((aligned(4096)));
    static char back[PAGE] __attribute__((aligned(4096)));
    int bad = 0;
    start(argc, argv);
    show("mkdir", mkdir("base", 0700) | mkdir("base/5", 0700));
    int fd = open("base/5/16384", O_RDWR | O_CREAT | O_EXCL, 0600);
    for (int i = 0; i < PAGES; i++) {
        fill(page, PAGE, 1, i * (long)PAGE);
        bad += pwrite(fd, page, PAGE, i * (long)PAGE) != PAGE;
    }
    mark("begin pwrite64");
    for (int i = 0; i < PAGES; i++)
        bad += pwrite(fd, page, PAGE, i * (long)PAGE) != PAGE;
    mark("end");
    mark("begin pread64");
    for (int i = 0; i < PAGES; i++)
        bad += pread(fd, back, PAGE, i * (long)PAGE) != PAGE;
    mark("end");
    bad += memcmp(page, back, PAGE) != 0;
    /* Opened again, as another backend does, and at the end, as a relation grows. */
    close(fd);
    fd = open("base/5/16384", O_RDWR);
    mark("begin pread64");
    for (int i = 0; i < PAGES; i++)
        bad += pread(fd, back, PAGE, i * (long)PAGE) != PAGE;
    mark("end");
    mark("begin pwrite64");
    for (int i = PAGES; i < 2 * PAGES; i++)
        bad += pwrite(fd, page, PAGE, i * (long)PAGE) != PAGE;
    mark("end");
    say("bad %d", bad);
    show_file("base/5/16384");
    return 0;
}
