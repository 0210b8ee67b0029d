/* A shared map would show sealed bytes or go stale. */
#include "twin.h"
#include <sys/mman.h>

static void try(const char *what, int fd, int protection, int flags)
{
    char *map = mmap(NULL, 5000, protection, flags, fd, 0);
    show(what, map == MAP_FAILED ? -1 : 0);
    if (map == MAP_FAILED)
        return;
    show_bytes("  mapped", map, 5000);
    munmap(map, 5000);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    int fd = make_file("mapped", 1, 5000);
    try("shared to read", fd, PROT_READ, MAP_SHARED);
    try("shared to write", fd, PROT_READ | PROT_WRITE, MAP_SHARED);
    try("shared, validated", fd, PROT_READ, MAP_SHARED_VALIDATE);
    show_file("mapped");
    return 0;
}
