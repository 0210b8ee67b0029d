/* A program that owns nothing may read a file of another user: what only the owner may ask the
 * kernel for, the library must do without. */
#include "twin.h"

int main(int argc, char **argv)
{
    const struct timespec long_ago[2] = {{1000, 0}, {1000, 0}};
    struct stat cut;
    char back[100];
    start(argc, argv);
    must(chmod(".", 0755));
    must(fchmod(make_file("file", 1, 20000), 0666));
    must(fchmod(make_file("empty", 1, 0), 0666));
    must(utimensat(AT_FDCWD, "empty", long_ago, 0));
    pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0)
            must(seteuid(65534));
        int r = open("file", O_RDONLY), w = open("file", O_RDWR);
        show("reads", r >= 0);
        show_read("read", pread(r, back, 100, 300), back);
        show("writes", pwrite(w, MARKER, 13, 5000));
        show_read("read", pread(w, back, 100, 4990), back);
        show("opened as nobody's own", open("file", O_RDONLY | O_NOATIME) >= 0);
        show("opened to be cut", open("empty", O_WRONLY | O_TRUNC) >= 0);
        fflush(stdout);
        _exit(0);
    }
    show_end("child", child);
    show("stat", stat("empty", &cut));
    say("size %ld, new times: %d", (long)cut.st_size, cut.st_mtime > 1000);
    show_file("file");
    return 0;
}
