/* A private map shows the plain bytes and zeros behind the end of the file; writing to it does not
 * reach the file; it outlives the descriptor. */
#include "twin.h"
#include <sys/mman.h>

int main(int argc, char **argv)
{
    start(argc, argv);
    for (int i = 1; i < EDGES; i++) {
        char name[40];
        snprintf(name, sizeof name, "mapped-%ld", edges[i]);
        int fd = make_file(name, i, edges[i]);
        long pages = (edges[i] + 4095) / 4096 * 4096;
        char *map = mmap(NULL, edges[i], PROT_READ, MAP_PRIVATE, fd, 0);
        show("mmap", map == MAP_FAILED ? -1 : 0);
        show("offset", lseek(fd, 0, SEEK_CUR));
        show("close", close(fd));
        if (map != MAP_FAILED) {
            show_bytes("mapped", map, pages);
            show("munmap", munmap(map, edges[i]));
        }
    }
    int fd = make_file("written", 20, 10000);
    char *map = mmap(NULL, 10000, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    show("mmap to write", map == MAP_FAILED ? -1 : 0);
    if (map != MAP_FAILED) {
        memset(map + 100, 'x', 8000);
        show_bytes("the map", map, 10000);
        show("msync", msync(map, 10000, MS_SYNC));
        show("munmap", munmap(map, 10000));
    }
    map = mmap(NULL, 5000, PROT_READ, MAP_PRIVATE, fd, 4096);
    show("mmap at a page", map == MAP_FAILED ? -1 : 0);
    if (map != MAP_FAILED)
        show_bytes("from 4096", map, 5000);
    show("at an odd offset",
         mmap(NULL, 10, PROT_READ, MAP_PRIVATE, fd, 100) == MAP_FAILED ? -1 : 0);
    show("of no bytes", mmap(NULL, 0, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED ? -1 : 0);
    const int kinds[] = {0, MAP_PRIVATE | MAP_SHARED | 8, 5};
    for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        show("of no kind",
             mmap(NULL, 4096, PROT_READ, kinds[i], fd, 0) == MAP_FAILED ? -1 : 0);
    show("shared, of no bytes",
         mmap(NULL, 0, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
    const long last = 0x7ffffffffffff000;
    show("behind the last offset",
         mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, last) == MAP_FAILED ? -1 : 0);
    show("at a negative offset",
         mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, -4096) == MAP_FAILED ? -1 : 0);
    int w = open("written", O_WRONLY);
    show("write-only", mmap(NULL, 10, PROT_READ, MAP_PRIVATE, w, 0) == MAP_FAILED ? -1 : 0);
    show("bad descriptor", mmap(NULL, 10, PROT_READ, MAP_PRIVATE, 300, 0) == MAP_FAILED ? -1 : 0);
    map = mmap64(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    show("anonymous", map == MAP_FAILED ? -1 : 0);
    map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    show("anonymous shared", map == MAP_FAILED ? -1 : 0);
    show_file("written");
    return 0;
}
