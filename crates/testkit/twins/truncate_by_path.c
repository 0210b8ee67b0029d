/* truncate(2) on names, with the file open elsewhere and closed, through a link, and its errors.
 * What has no size is not waited for. */
#include "twin.h"

int main(int argc, char **argv)
{
    start(argc, argv);
    int fd = make_file("file", 1, 9999);
    const long sizes[] = {9998, 8192, 8177, 8176, 4097, 100, 16, 15, 1, 0, 17, 4096, 12345};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        show("truncate", truncate("file", sizes[i]));
        show_size("open elsewhere", fd);
        if (i % 3 == 0)
            show("pwrite", pwrite(fd, MARKER, 13, sizes[i] / 2));
        show_file("file");
    }
    close(fd);
    show("truncate", truncate("file", 33));
    show_file("file");
    show("symlink", symlink("file", "link"));
    show("truncate by link", truncate("link", 5000));
    show_file("file");
    show("truncate64", truncate64("file", 31));
    show("missing", truncate("missing", 3));
    show("directory", truncate(".", 3));
    show("directory to nothing", truncate(".", 0));
    show("device", truncate("/dev/null", 3));
    char away[] = "/tmp/twin-XXXXXX", pipe[40];
    show_pointer("mkdtemp", mkdtemp(away));
    snprintf(pipe, sizeof pipe, "%s/fifo", away);
    show("mkfifo", mkfifo(pipe, 0600));
    alarm(60);
    show("pipe elsewhere", truncate(pipe, 3));
    show("negative size of a pipe", truncate(pipe, -3));
    show("unlink", unlink(pipe));
    show("rmdir", rmdir(away));
    show("negative", truncate("file", -3));
    close(make_file("empty", 2, 0));
    show("truncate of an empty one", truncate("empty", 0));
    show("grow an empty one", truncate("empty", 50));
    show_file("empty");
    show_file("file");
    return 0;
}
