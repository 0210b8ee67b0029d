/* The calls that move no bytes but must reach the real file: fsync and friends, and advice. */
#include "twin.h"

int main(int argc, char **argv)
{
    start(argc, argv);
    int fd = make_file("file", 1, 50001);
    int r = open("file", O_RDONLY);
    show("fsync", fsync(fd));
    show("fdatasync", fdatasync(fd));
    show("fsync of a read descriptor", fsync(r));
    show("syncfs", syncfs(fd));
    const int range = SYNC_FILE_RANGE_WRITE;
    show("sync_file_range", sync_file_range(fd, 0, 0, range));
    show("sync_file_range", sync_file_range(fd, 4096, 8192, range | SYNC_FILE_RANGE_WAIT_BEFORE));
    show("bad flags", sync_file_range(fd, 0, 0, 99));
    show("readahead", readahead(r, 0, 50000));
    show("readahead before the beginning", readahead(r, -1, 100));
    show("readahead to write", readahead(open("file", O_WRONLY), 0, 50000));
    show("SEQUENTIAL", posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
    show("RANDOM", posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM));
    show("WILLNEED", posix_fadvise(fd, 8192, 8192, POSIX_FADV_WILLNEED));
    show("DONTNEED", posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
    show("posix_fadvise64", posix_fadvise64(fd, 0, 0, POSIX_FADV_NORMAL));
    show("bad advice", posix_fadvise(fd, 0, 0, 99));
    show("before the beginning", posix_fadvise(fd, -1, 10, POSIX_FADV_DONTNEED));
    show("at the last offset", posix_fadvise(fd, 0x7fffffffffffffff, 10, POSIX_FADV_WILLNEED));
    show("a negative length", posix_fadvise(fd, 0, -1, POSIX_FADV_NORMAL));
    show("F_GETLEASE", fcntl(fd, F_GETLEASE));
    show("closed", posix_fadvise(300, 0, 0, POSIX_FADV_NORMAL));
    int here = open(".", O_RDONLY | O_DIRECTORY);
    show("fsync of the directory", fsync(here));
    int pipes[2];
    show("pipe", pipe(pipes));
    show("fsync of a pipe", fsync(pipes[0]));
    show("fadvise of a pipe", posix_fadvise(pipes[0], 0, 0, POSIX_FADV_NORMAL));
    sync();
    show_file("file");
    return 0;
}
