/* The calls of a server that are made most, each once between marks (a write to descriptor
 * -1 that names what follows): tests/instructions.rs counts what the processor does for them. The
 * first section is empty: what the marks themselves take. */
#include "twin.h"

enum { TIMES = 1, PAGE = 8192, SCAN = 16 * PAGE };

static char page[PAGE] __attribute__((aligned(4096)));
static char back[PAGE] __attribute__((aligned(4096)));
static char scanned[SCAN] __attribute__((aligned(4096)));
static int bad, long_one;

static void mark(const char *text)
{
    syscall(SYS_write, -1, text, strlen(text));
}

static void nothing(int fd, int i) { (void)fd, (void)i; }
static void read_page(int fd, int i) { bad += pread(fd, back, PAGE, i * (long)PAGE) != PAGE; }
static void write_page(int fd, int i) { bad += pwrite(fd, page, PAGE, i * (long)PAGE) != PAGE; }
static void read_many(int fd, int i)
{
    (void)fd, (void)i;
    bad += pread(long_one, scanned, SCAN, 0) != SCAN;
}

static void write_little(int fd, int i)
{
    bad += pwrite(fd, page, 100, i * (long)PAGE + 1237) != 100;
}

static void open_and_close(int fd, int i)
{
    (void)i;
    fd = open("base/5/16384", O_RDWR);
    bad += fd < 0 || close(fd);
}

static void ask(int fd, int i)
{
    struct stat found;
    (void)i;
    bad += fstat(fd, &found) || found.st_size != TIMES * (long)PAGE;
}

static void seek(int fd, int i)
{
    (void)i;
    bad += lseek(fd, 0, SEEK_END) != TIMES * (long)PAGE;
}

static const struct { const char *mark; void (*call)(int fd, int i); } calls[] = {
    {"begin nothing", nothing},
    {"begin aligned read", read_page},
    {"begin read of 16 pages", read_many},
    {"begin aligned write", write_page},
    {"begin open and close", open_and_close},
    {"begin small write", write_little},
    {"begin fstat", ask},
    {"begin seek to the end", seek},
};

int main(int argc, char **argv)
{
    start(argc, argv);
    show("mkdir", mkdir("base", 0700) | mkdir("base/5", 0700));
    int fd = open("base/5/16384", O_RDWR | O_CREAT | O_EXCL, 0600);
    for (int i = 0; i < TIMES; i++) {
        fill(page, PAGE, 1, i * (long)PAGE);
        write_page(fd, i);
    }
    long_one = open("base/5/16385", O_RDWR | O_CREAT | O_EXCL, 0600);
    for (int i = 0; i < SCAN / PAGE; i++) {
        fill(page, PAGE, 1, i * (long)PAGE);
        write_page(long_one, i);
    }
    fill(page, PAGE, 1, 0);
    for (unsigned which = 0; which < sizeof calls / sizeof *calls; which++) {
        /* Once before: symbols are found, keys are known, pages of memory were seen. */
        for (int i = 0; i < TIMES; i++)
            calls[which].call(fd, i);
        mark(calls[which].mark);
        for (int i = 0; i < TIMES; i++)
            calls[which].call(fd, i);
        mark("end");
    }
    say("bad %d", bad);
    close(fd);
    show_file("base/5/16384");
    return 0;
}
