/* Relative names follow chdir and fchdir, also to outside the directory and back, and in a child.
 */
#include "twin.h"

int main(int argc, char **argv)
{
    char home[4096], back[64];
    start(argc, argv);
    show_pointer("getcwd", getcwd(home, sizeof home));
    show("mkdir", mkdir("deep", 0755) | mkdir("deep/er", 0755));
    close(make_file("file", 1, 100));
    close(make_file("deep/file", 2, 200));
    show("chdir", chdir("deep"));
    close(make_file("er/file", 3, 300));
    show_file("file");
    show_file("../file");
    show("chdir", chdir("er"));
    show_file("file");
    int here = open(".", O_RDONLY);
    show("chdir", chdir("/"));
    show("gone", open("file", O_RDONLY));
    show_read("by descriptor", read(openat(here, "file", O_RDONLY), back, 40), back);
    show("fchdir", fchdir(here));
    show_file("file");
    show("chdir up", chdir("../.."));
    show_file("file");
    pid_t child = fork();
    if (child == 0) {
        show("chdir", chdir("deep"));
        show_file("file");
        _exit(0);
    }
    show_end("child", child);
    show_file("file");
    /* The directory that we stand in is renamed: relative names must follow. */
    show("chdir", chdir("deep/er"));
    char old[5000], new[5000];
    snprintf(old, sizeof old, "%s/deep", home);
    snprintf(new, sizeof new, "%s/renamed", home);
    show("rename", rename(old, new));
    show_file("file");
    close(make_file("late", 4, 400));
    show("chdir", chdir(home));
    show_file("renamed/er/late");
    show("removed", mkdir("gone", 0755) | chdir("gone") | rmdir("../gone"));
    show("create in it", open("file", O_RDWR | O_CREAT, 0644));
    show("fchdir of a file", fchdir(open("../file", O_RDONLY)));
    show("chdir", chdir(home));
    show_file("file");
    /* libc goes to / by itself. */
    int done[2];
    show("pipe", pipe(done));
    child = fork();
    if (child == 0) {
        show("daemon", daemon(0, 1));
        show_ok("of the root", open("etc/passwd", O_RDONLY));
        show("not of the directory", open("file", O_RDONLY));
        _exit(write(done[1], "x", 1) != 1);
    }
    show("daemon has ended", read(done[0], back, 1));
    show_end("child", child);
    show_file("file");
    return 0;
}
