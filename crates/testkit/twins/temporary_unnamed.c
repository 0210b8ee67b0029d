/* O_TMPFILE: a file without a name has no policy; programs fall back to a name that they unlink. */
#include "twin.h"

int main(int argc, char **argv)
{
    start(argc, argv);
    show("mkdir", mkdir("dir", 0755));
    show("O_TMPFILE", open("dir", O_TMPFILE | O_RDWR, 0600) < 0 ? -1 : 0);
    show("O_TMPFILE of this directory", open(".", O_TMPFILE | O_RDWR | O_EXCL, 0640) < 0 ? -1 : 0);
    int fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    show("elsewhere", fd < 0 ? -1 : 0);
    return 0;
}
