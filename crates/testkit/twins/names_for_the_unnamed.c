/* A file without a name, made elsewhere on the same file system and full of plain bytes, gets one
 * by linkat: outside that is nobody's business, inside it would be plain bytes where sealed ones
 * must lie. */
#include "twin.h"

static int unnamed(const char *text)
{
    int fd = open("..", O_TMPFILE | O_RDWR, 0600);
    show_ok("O_TMPFILE outside", fd);
    if (*text)
        show("write", write(fd, text, strlen(text)));
    return fd;
}

static void name(int fd, const char *to)
{
    char magic[64];
    snprintf(magic, sizeof magic, "/proc/self/fd/%d", fd);
    show("linkat follows", linkat(AT_FDCWD, magic, AT_FDCWD, to, AT_SYMLINK_FOLLOW));
    show("unlink", unlink(to));
    show("linkat of the descriptor", linkat(fd, "", AT_FDCWD, to, AT_EMPTY_PATH));
    show("unlink", unlink(to));
}

int main(int argc, char **argv)
{
    start(argc, argv);
    int full = unnamed(MARKER " unnamed");
    name(full, "inside");
    name(full, "../outside");
    int empty = unnamed("");
    name(empty, "inside");
    show("write later", write(empty, MARKER " later", 19));
    return 0;
}
