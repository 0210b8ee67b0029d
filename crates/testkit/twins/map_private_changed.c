/* MADV_DONTNEED of a private map that may have been changed: the file's bytes would have to come
 * back. */
#include "twin.h"
#include <sys/mman.h>

int main(int argc, char **argv)
{
    start(argc, argv);
    int fd = make_file("mapped", 1, 20000);
    char *map = mmap(NULL, 20000, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    memset(map, 'x', 5000);
    show("DONTNEED", madvise(map, 20000, MADV_DONTNEED));
    say("never zeros: %d", map[0] != 0 && map[4999] != 0 && map[19999] != 0);
    show("munmap", munmap(map, 20000));
    map = mmap(NULL, 20000, PROT_READ, MAP_PRIVATE, fd, 0);
    show("DONTNEED", madvise(map, 20000, MADV_DONTNEED));
    show("mprotect", mprotect(map, 8192, PROT_READ | PROT_WRITE));
    show("DONTNEED of a part that may be changed", madvise(map, 4096, MADV_DONTNEED));
    show("DONTNEED of a part that may not", madvise(map + 8192, 4096, MADV_DONTNEED));
    show_bytes("all", map, 20000);
    return 0;
}
