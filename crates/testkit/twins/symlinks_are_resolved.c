/* A link to a file, to a directory, a chain of links, and links out of and into the directory: the
 * real file decides, not the text of the path. */
#include "twin.h"

int main(int argc, char **argv)
{
    char home[4096], path[5000], back[64];
    start(argc, argv);
    show_pointer("getcwd", getcwd(home, sizeof home));
    show("mkdir", mkdir("real", 0755));
    close(make_file("real/file", 1, 5000));
    show("links", symlink("real", "dir") | symlink("real/file", "soft") | symlink("soft", "chain") |
                      symlink("../real", "real/self"));
    snprintf(path, sizeof path, "%s/real/file", home);
    show("absolute link", symlink(path, "absolute"));
    show_file("dir/file");
    show_file("soft");
    show_file("chain");
    show_file("absolute");
    show_file("real/self/self/file");
    int fd = open("chain", O_RDWR);
    show("write", pwrite(fd, MARKER " chain", 19, 4990));
    show_file("dir/file");
    int made = open("dir/made", O_RDWR | O_CREAT | O_EXCL, 0644);
    show("write", write(made, MARKER " made", 18));
    show_file("real/made");
    show("rename a link", rename("soft", "softer"));
    show("chain is broken", open("chain", O_RDONLY));
    show("unlink a link", unlink("softer"));
    show_file("real/file");
    show("readlink", readlink("dir", back, sizeof back));
    show("through a file", open("absolute/x", O_RDONLY));

    /* A link outside that leads in: the working directory is reached by another name. */
    char outside[] = "/tmp/twin-XXXXXX";
    if (!mkdtemp(outside))
        return 1;
    snprintf(path, sizeof path, "%s/in", outside);
    show("link from outside", symlink(home, path));
    snprintf(path, sizeof path, "%s/in/real/file", outside);
    show_file(path);
    snprintf(path, sizeof path, "%s/in/from-outside", outside);
    fd = open(path, O_RDWR | O_CREAT, 0600);
    show("write", write(fd, MARKER " from outside", 26));
    close(fd);
    show_file("from-outside");
    snprintf(path, sizeof path, "%s/in", outside);
    show("unlink", unlink(path));
    show("rmdir", rmdir(outside));
    show("unlink", unlink("absolute"));
    return 0;
}
