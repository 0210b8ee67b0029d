/* Parent and child have one offset; what either writes the other reads; the child's close is its
 * own. */
#include "twin.h"

int main(int argc, char **argv)
{
    char back[64];
    start(argc, argv);
    int fd = make_file("shared", 1, 10000);
    show_read("parent", read(fd, back, 33), back);
    pid_t child = fork();
    if (child == 0) {
        show_read("child", read(fd, back, 50), back);
        show("child seeks", lseek(fd, 4000, SEEK_CUR));
        show("child writes", write(fd, MARKER " by the child", 26));
        show("child closes", close(fd));
        show("child reads", read(fd, back, 1));
        _exit(3);
    }
    show_end("child", child);
    show("offset", lseek(fd, 0, SEEK_CUR));
    show_read("parent", read(fd, back, 33), back);
    show_read("what the child wrote", pread(fd, back, 40, 4080), back);

    /* Opened and renamed in the child, truncated in the parent, grandchild appends. */
    child = fork();
    if (child == 0) {
        int other = make_file("made", 7, 777);
        show("child renames", rename("made", "made-by-child"));
        pid_t grandchild = fork();
        if (grandchild == 0) {
            show("grandchild seeks", lseek(other, 0, SEEK_END));
            show("grandchild writes", write(other, MARKER " grandchild", 24));
            _exit(0);
        }
        show_end("grandchild", grandchild);
        show("child's offset", lseek(other, 0, SEEK_CUR));
        show("child shortens", ftruncate(fd, 5001));
        _exit(0);
    }
    show_end("child", child);
    show_size("shortened", fd);
    show_file("made-by-child");
    show_file("shared");
    return 0;
}
