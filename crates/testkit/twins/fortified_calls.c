/* The checked names that _FORTIFY_SOURCE puts in place of read, pread, open and the stdio calls.
 * Built plainly the same calls go by their plain names; the answers are the same. */
#include "twin.h"
#include <limits.h>
#include <poll.h>

static int print(FILE *file, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vfprintf(file, format, args);
    va_end(args);
    return n;
}

static int print_to(int fd, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vdprintf(fd, format, args);
    va_end(args);
    return n;
}

int main(int argc, char **argv)
{
    volatile size_t n = 100;
    volatile int flags = O_RDWR;
    char back[200], line[100], path[PATH_MAX];
    start(argc, argv);
    int made = make_file("file", 1, 9000);
    show("close", close(made));
    int fd = open("file", flags);
    show_read("read", read(fd, back, n), back);
    show_read("pread", pread(fd, back, n, 4050), back);
    show_read("pread64", pread64(fd, back, n, 8950), back);
    show("openat", openat(AT_FDCWD, "file", flags) >= 0);
    show("open64", open64("file", flags) >= 0);
    show("openat64", openat64(AT_FDCWD, "file", flags) >= 0);
    show("dprintf", dprintf(fd, MARKER " %s %zu\n", "dprintf", n));
    show("lseek", lseek(fd, 0, SEEK_CUR));
    show("symlink", symlink("file", "link"));
    show("readlink", readlink("link", back, n));
    show("readlinkat", readlinkat(AT_FDCWD, "link", back, n));
    show_pointer("realpath", realpath("link", path));
    show_pointer("getcwd", getcwd(back, n + 100));
    struct pollfd poll_fds[2] = {{fd, POLLIN | POLLOUT, 0}, {1, 0, 0}};
    show("poll", poll(poll_fds, n / 100, 0));

    FILE *file = show_pointer("fopen", fopen("stream", "w+"));
    show("fprintf", fprintf(file, MARKER " %s %zu\n", "fprintf", n));
    show("fwrite", fwrite(back, 1, 0, file));
    for (int i = 0; i < 200; i++)
        if (fprintf(file, "line %d of the stream, " MARKER "\n", i) < 0)
            show("fprintf", -1);
    rewind(file);
    n = 60;
    show_pointer("fgets", fgets(line, n, file));
    show_bytes("line", line, strlen(line));
    show("fread", fread(back, 1, n + 100, file));
    show_bytes("bytes", back, 160);
    show_pointer("fgets_unlocked", fgets_unlocked(line, n, file));
    show_bytes("line", line, strlen(line));
    show("fread_unlocked", fread_unlocked(back, 2, n, file));
    show_bytes("bytes", back, 120);
    show("vfprintf", print(file, MARKER " %s\n", "vfprintf"));
    show("vdprintf", print_to(fd, MARKER " %s\n", "vdprintf"));
    show("fclose", fclose(file));
    show_file("stream");
    show_file("file");
    return 0;
}
