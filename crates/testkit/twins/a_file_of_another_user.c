/* A program that owns nothing may read a file of another user: what only the owner may ask the
 * kernel for, the library must do without. */
#include "twin.h"

int main(int argc, char **argv)
{
    char back[100];
    start(argc, argv);
    must(chmod(".", 0755));
    must(fchmod(make_file("file", 1, 20000), 0666));
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
        fflush(stdout);
        _exit(0);
    }
    show_end("child", child);
    show_file("file");
    return 0;
}
