/* MADV_DONTNEED of a private map that was not changed shows the file's bytes again, not zeros: by
 * page, in parts, after the descriptor is closed, and beside other memory, which is emptied as it
 * should be. */
#include "twin.h"
#include <sys/mman.h>

int main(int argc, char **argv)
{
    start(argc, argv);
    int fd = make_file("mapped", 1, 20000);
    char *map = mmap(NULL, 20000, PROT_READ, MAP_PRIVATE, fd, 0);
    show_bytes("mapped", map, 20000);
    show("DONTNEED", madvise(map, 20000, MADV_DONTNEED));
    show_bytes("after it", map, 20000);
    show("of a page", madvise(map + 4096, 4096, MADV_DONTNEED));
    show_bytes("after it", map, 20000);
    show("WILLNEED", madvise(map, 20000, MADV_WILLNEED));
    show("RANDOM", madvise(map, 20000, MADV_RANDOM));
    show("posix", posix_madvise(map, 20000, POSIX_MADV_DONTNEED));
    show_bytes("after it", map, 20000);
    show("FREE is for anonymous memory", madvise(map, 4096, MADV_FREE));
    show("at an odd address", madvise(map + 1, 4096, MADV_DONTNEED));
    show("unknown advice", madvise(map, 4096, 9999));
    show("by number", syscall(SYS_madvise, map, 8192, MADV_DONTNEED));
    show("munmap at an odd address", munmap(map + 1, 4096));
    show("munmap of nothing", munmap(map, 0));
    show("munmap of too much", munmap(map, -4096L));
    show("mremap to an odd address",
         mremap(map, 8192, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, map + 1) == MAP_FAILED ? -1 : 0);
    show("DONTNEED after that", madvise(map, 20000, MADV_DONTNEED));
    show_bytes("after it", map, 20000);
    close(fd);
    show("DONTNEED", madvise(map, 20000, MADV_DONTNEED));
    show_bytes("closed", map, 20000);

    /* A part is unmapped; anonymous memory comes to lie there, and belongs to the program alone. */
    show("munmap of the middle", munmap(map + 4096, 4096));
    char *between = mmap(map + 4096, 4096, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    memset(between, 'x', 4096);
    show("DONTNEED over all", madvise(map, 20000, MADV_DONTNEED));
    show_bytes("before", map, 4096);
    show_bytes("between", map + 4096, 4096);
    show_bytes("behind", map + 8192, 20000 - 8192);
    show("munmap", munmap(map, 20480));
    char *anonymous =
        mmap(map, 20480, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    memset(anonymous, 'y', 20480);
    show("DONTNEED of what is no map any more", madvise(anonymous, 20480, MADV_DONTNEED));
    show_bytes("emptied", anonymous, 20480);
    munmap(anonymous, 20480);

    /* Moved. */
    fd = open("mapped", O_RDONLY);
    map = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, 4096);
    char *room = mmap(NULL, 16384, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    map = mremap(map, 8192, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, room);
    show("mremap", map == room ? 0 : -1);
    show("DONTNEED", madvise(map, 8192, MADV_DONTNEED));
    show_bytes("moved", map, 8192);
    munmap(room, 16384);
    /* Two parts, of which the second is cut off. */
    map = mmap(NULL, 16384, PROT_READ, MAP_PRIVATE, fd, 0);
    show("mprotect", mprotect(map + 4096, 4096, PROT_READ | PROT_WRITE));
    show("mprotect", mprotect(map + 4096, 4096, PROT_READ));
    show("mremap", mremap(map, 16384, 4096, 0) == map ? 0 : -1);
    anonymous = mmap(map + 4096, 12288, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    memset(anonymous, 'z', 12288);
    show("DONTNEED over all", madvise(map, 16384, MADV_DONTNEED));
    show_bytes("a part and what is none", map, 16384);
    munmap(map, 16384);
    show("fork", 0);
    map = mmap(NULL, 20000, PROT_READ, MAP_PRIVATE, fd, 0);
    pid_t child = fork();
    if (child == 0) {
        show("DONTNEED in the child", madvise(map, 20000, MADV_DONTNEED));
        show_bytes("in the child", map, 20000);
        _exit(0);
    }
    show_end("child", child);
    for (int i = 0; i < 300; i++) {
        char *one = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
        if (one == MAP_FAILED || madvise(one, 4096, MADV_DONTNEED) || memcmp(one, map, 4096)) {
            show("one of many", -1);
            break;
        }
    }
    return 0;
}
