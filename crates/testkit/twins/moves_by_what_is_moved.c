/* What crosses the border of the directory by rename and link, as the flags say and not as the text
 * does: followed links, empty files that are open, exchanges in both directions, directories with
 * what is in them. */
#include "twin.h"

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    show("put", write(fd, text, strlen(text)));
    close(fd);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    put("../outer", MARKER " plain");
    put("sealed", MARKER " sealed");
    show("symlink", symlink("outer", "../soft"));
    show("link follows", linkat(AT_FDCWD, "../soft", AT_FDCWD, "hard", AT_SYMLINK_FOLLOW));
    show("link of the link", linkat(AT_FDCWD, "../soft", AT_FDCWD, "../soft2", 0));
    show("link follows outside",
         linkat(AT_FDCWD, "../soft", AT_FDCWD, "../hard", AT_SYMLINK_FOLLOW));
    show("link out follows", linkat(AT_FDCWD, "sealed", AT_FDCWD, "../hard2", AT_SYMLINK_FOLLOW));

    /* Whatever is asked before: the program gets the lowest number that is free. */
    int lowest = open("/dev/null", O_RDONLY);
    close(lowest);
    int fd = open("../empty", O_RDWR | O_CREAT, 0644);
    say("lowest: %d", fd == lowest);
    close(fd);
    fd = open("../soft", O_WRONLY);
    say("lowest behind a link: %d", fd == lowest);
    close(fd);
    fd = open("../empty", O_RDWR);
    show("empty in", rename("../empty", "empty"));
    show("empty linked in", link("../empty", "empty2"));
    show("write", write(fd, MARKER " was empty", 23));
    close(fd);
    fd = open("none", O_RDWR | O_CREAT, 0644);
    show("empty out", rename("none", "../none"));
    show("empty linked out", link("none", "../none2"));
    close(fd);

    show("exchange", renameat2(AT_FDCWD, "sealed", AT_FDCWD, "../outer", RENAME_EXCHANGE));
    show("exchange", renameat2(AT_FDCWD, "../outer", AT_FDCWD, "sealed", RENAME_EXCHANGE));
    put("another", MARKER " another");
    show("exchange inside", renameat2(AT_FDCWD, "another", AT_FDCWD, "sealed", RENAME_EXCHANGE));
    show_file("sealed");
    show("whiteout", renameat2(AT_FDCWD, "another", AT_FDCWD, "third", RENAME_WHITEOUT));

    show("mkdir",
         mkdir("../directory", 0755) | mkdir("inside", 0755) | mkdir("../exchanged", 0755));
    put("../directory/file", MARKER " in a directory");
    put("inside/file", MARKER " inside");
    show("directory in", rename("../directory", "directory"));
    show("directory out", rename("inside", "../inside"));
    show("directories exchanged",
         renameat2(AT_FDCWD, "../exchanged", AT_FDCWD, "inside", RENAME_EXCHANGE));
    show("directory inside", rename("inside", "other"));
    show_file("other/file");
    show("file exchanged with directory",
         renameat2(AT_FDCWD, "../outer", AT_FDCWD, "other", RENAME_EXCHANGE));

    /* Whatever could be moved or not: nothing is left outside. */
    static const char *const left[] = {
        "outer", "soft", "soft2", "hard",           "hard2",
        "empty", "none", "none2", "directory/file", "inside/file",
    };
    for (size_t i = 0; i < sizeof left / sizeof left[0]; i++) {
        char path[64];
        snprintf(path, sizeof path, "../%s", left[i]);
        unlink(path);
    }
    rmdir("../directory");
    rmdir("../exchanged");
    rmdir("../inside");
    return 0;
}
