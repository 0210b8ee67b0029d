/* On Linux pwrite through an O_APPEND descriptor appends, whatever offset it names, and the shared
 * offset follows write but not pwrite. */
#include "twin.h"

int main(int argc, char **argv)
{
    char text[300], back[300];
    start(argc, argv);
    fill(text, sizeof text, 1, 0);
    int fd = open("appended", O_RDWR | O_CREAT | O_APPEND, 0644);
    show("write", write(fd, text, 21));
    show("offset", lseek(fd, 0, SEEK_CUR));
    show("pwrite at 0", pwrite(fd, text + 21, 50, 0));
    show("offset", lseek(fd, 0, SEEK_CUR));
    show_read("pread at 0", pread(fd, back, 100, 0), back);
    show("lseek", lseek(fd, 5, SEEK_SET));
    show_read("read", read(fd, back, 10), back);
    show("offset", lseek(fd, 0, SEEK_CUR));
    show("write", write(fd, text + 71, 100));
    show("offset", lseek(fd, 0, SEEK_CUR));
    show_read("read at the end", read(fd, back, 10), back);

    /* A second descriptor appends in between: the first one must notice. */
    int other = open("appended", O_WRONLY | O_APPEND);
    show("write by the other", write(other, text + 171, 33));
    show("write", write(fd, text + 204, 40));
    show("offset", lseek(fd, 0, SEEK_CUR));
    show("offset of the other", lseek(other, 0, SEEK_CUR));
    show("ftruncate", ftruncate(fd, 17));
    show("write by the other", write(other, text + 17, 33));
    show("offset of the other", lseek(other, 0, SEEK_CUR));
    show("write of nothing", write(fd, text, 0));
    show_file("appended");
    return 0;
}
