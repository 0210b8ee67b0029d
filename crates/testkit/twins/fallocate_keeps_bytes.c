/* posix_fallocate and fallocate: sizes as asked, old bytes kept, new bytes zero. Modes that a
 * sealed file cannot do may be refused with EOPNOTSUPP, as by many file systems; callers then write
 * zeros.
 * */
#include "twin.h"

static void by_mode(const char *what, int fd, int mode, long from, long n)
{
    static char zeros[20000];
    if (fallocate(fd, mode, from, n) < 0) {
        if (errno != EOPNOTSUPP) {
            show(what, -1);
            return;
        }
        if (mode & FALLOC_FL_PUNCH_HOLE || mode & FALLOC_FL_ZERO_RANGE)
            if (pwrite(fd, zeros, n, from) != n)
                show("pwrite", -1);
    }
    say("%s", what);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    for (int i = 0; i < EDGES; i++) {
        char name[40];
        snprintf(name, sizeof name, "allocated-%ld", edges[i]);
        int fd = make_file(name, i + 1, edges[i]);
        show("posix_fallocate inside", posix_fallocate(fd, 0, edges[i] / 2 + 1));
        show_size(name, fd);
        show("posix_fallocate behind", posix_fallocate(fd, edges[i] + 5, 4100));
        show_size(name, fd);
        show_file(name);
        show("fallocate", fallocate(fd, 0, 0, edges[i] + 9001));
        show_size(name, fd);
        show("offset", lseek(fd, 0, SEEK_CUR));
        show("write", pwrite(fd, MARKER, 13, edges[i] + 6000));
        show_file(name);
        close(fd);
    }
    int fd = make_file("modes", 50, 30000);
    by_mode("KEEP_SIZE", fd, FALLOC_FL_KEEP_SIZE, 0, 100000);
    show_size("modes", fd);
    by_mode("PUNCH_HOLE", fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 8192);
    show_file("modes");
    by_mode("PUNCH_HOLE odd", fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 20001, 777);
    show_file("modes");
    by_mode("ZERO_RANGE", fd, FALLOC_FL_ZERO_RANGE, 16384, 4096);
    show_file("modes");
    show("no length", posix_fallocate(fd, 0, 0));
    show("negative", posix_fallocate(fd, -1, 10));
    show("closed", posix_fallocate(300, 0, 10));
    int r = open("modes", O_RDONLY);
    show("read-only", fallocate(r, 0, 0, 10));
    show("fallocate64", fallocate64(fd, 0, 0, 31000));
    show("posix_fallocate64", posix_fallocate64(fd, 0, 31007));
    show_file("modes");
    return 0;
}
