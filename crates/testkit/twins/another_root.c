/* A new root would change what every path means, also that of the directory: a program with keys
 * gets none, and its files are what they were. Needs root. */
#include "twin.h"

int main(int argc, char **argv)
{
    struct stat st;
    start(argc, argv);
    close(make_file("file", 1, 5000));
    show("chroot", chroot("."));
    show("chroot by number", syscall(SYS_chroot, "."));
    show("pivot_root", syscall(SYS_pivot_root, ".", "."));
    show("stat", stat("file", &st));
    say("size %ld", (long)st.st_size);
    close(make_file("another", 2, 100));
    show("truncate", truncate("file", 4999));
    show_file("file");
    show_file("another");
    return 0;
}
