/* Changes files in place: whole units and odd ranges of files of each class, which need no room on
 * the disk.
 *
 * usage: in_place DIR make|overwrite|check Exit code 1 and a message if a call fails or a byte is
 * wrong. `check` accepts either content of a unit.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { UNIT = 4096, UNITS = 64 };

static int fail(const char *what)
{
    fprintf(stderr, "in_place: %s: %s\n", what, strerror(errno));
    return 1;
}

static int one(const char *path, const char *what)
{
    static char unit[UNIT], back[UNIT];
    int makes = !strcmp(what, "make"), checks = !strcmp(what, "check");
    int fd = open(path, makes ? O_RDWR | O_CREAT : O_RDWR, 0600);
    if (fd < 0)
        return fail(path);
    memset(unit, makes ? 'a' : 'b', UNIT);
    for (long at = 0; at < UNITS * UNIT && !checks; at += UNIT)
        if (pwrite(fd, unit, UNIT, at) != UNIT || (!makes && pwrite(fd, unit, 300, at + 77) != 300))
            return fail("write");
    for (long at = 0; at < UNITS * UNIT; at += UNIT) {
        errno = 0;
        if (pread(fd, back, UNIT, at) != UNIT)
            return fail("read");
        memset(unit, back[0], UNIT);
        if (memcmp(unit, back, UNIT) != 0 || (back[0] != 'a' && back[0] != 'b'))
            return fail("wrong bytes");
    }
    return fsync(fd) < 0 || close(fd) < 0 ? fail("sync") : 0;
}

int main(int argc, char **argv)
{
    if (argc != 3 || chdir(argv[1]) < 0)
        return 2;
    return one("base/1/16384", argv[2]) | one("pg_wal/000000010000000000000001", argv[2]) |
           one("loose/file", argv[2]);
}
