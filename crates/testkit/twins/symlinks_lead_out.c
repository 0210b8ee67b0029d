/* A link inside that leads out takes its target along: what is written through it is sealed there.
 * A new link to a single file is refused. */
#include "twin.h"

int main(int argc, char **argv)
{
    char path[200], outside[] = "/tmp/twin-XXXXXX";
    start(argc, argv);
    if (!mkdtemp(outside))
        return 1;
    snprintf(path, sizeof path, "%s/plain", outside);
    close(make_file(path, 5, 321));
    show("link to a plain file", symlink(path, "plain"));
    show("open", open("plain", O_RDONLY) < 0 ? -1 : 0);
    show("unlink", unlink("plain") | unlink(path));
    show("link to a directory", symlink(outside, "space"));
    close(make_file("space/file", 6, 500));
    show_file("space/file");
    snprintf(path, sizeof path, "%s/file", outside);
    show_file(path);
    show("unlink", unlink(path) | unlink("space"));
    show("rmdir", rmdir(outside));
    return 0;
}
