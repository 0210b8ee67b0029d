/* Opening /proc/self/fd/N and /dev/fd/N, and what readlink says of them. */
#include "twin.h"

int main(int argc, char **argv)
{
    char path[40], name[4200] = "", back[64];
    struct stat st;
    start(argc, argv);
    int fd = make_file("file", 1, 100);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_RDONLY);
    show_ok("open", again);
    if (again >= 0)
        show_read("read", read(again, back, 40), back);
    show("stat", stat(path, &st));
    say("size %ld", (long)st.st_size);
    show_ok("readlink", readlink(path, name, sizeof name - 1));
    say("ends in the name: %d", strlen(name) > 5 && strcmp(name + strlen(name) - 5, "/file") == 0);
    show_file("file");
    return 0;
}
