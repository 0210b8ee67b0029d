/* Two names of one file: bytes and sizes seen through either, and after either is gone. */
#include "twin.h"

int main(int argc, char **argv)
{
    struct stat st;
    start(argc, argv);
    int fd = make_file("first", 1, 4100);
    show("link", link("first", "second"));
    show("link over", link("first", "second"));
    show("link of the missing", link("none", "third"));
    int other = open("second", O_RDWR);
    show("pwrite", pwrite(other, MARKER " second", 20, 4099));
    show_file("first");
    show("ftruncate", ftruncate(fd, 4111));
    show_file("second");
    show("stat", stat("second", &st));
    say("links %ld size %ld", (long)st.st_nlink, (long)st.st_size);
    show("unlink", unlink("first"));
    show("write by the unlinked name", pwrite(fd, MARKER " first", 19, 17));
    show_file("second");
    show("linkat", linkat(AT_FDCWD, "second", AT_FDCWD, "third", 0));
    show("symlink", symlink("second", "soft"));
    show("linkat of the link", linkat(AT_FDCWD, "soft", AT_FDCWD, "soft2", 0));
    show("linkat follows", linkat(AT_FDCWD, "soft", AT_FDCWD, "hard", AT_SYMLINK_FOLLOW));
    show("lstat", lstat("soft2", &st));
    say("a link %d", S_ISLNK(st.st_mode));
    show("lstat", lstat("hard", &st));
    say("a file %d links %ld size %ld", S_ISREG(st.st_mode), (long)st.st_nlink, (long)st.st_size);
    show_file("third");
    show_file("hard");
    return 0;
}
