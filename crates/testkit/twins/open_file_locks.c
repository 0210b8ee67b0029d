/* OFD locks and flock belong to the open file: two opens in one process conflict, duplicates and
 * forked children share, and the last close releases. */
#include "twin.h"
#include <sys/file.h>

static long ofd(int fd, int command, short type, short whence, long from, long n)
{
    struct flock lock = {.l_type = type, .l_whence = whence, .l_start = from, .l_len = n};
    long ret = fcntl(fd, command, &lock);
    if (ret == 0 && command == F_OFD_GETLK && lock.l_type == F_UNLCK)
        say("  free");
    else if (ret == 0 && command == F_OFD_GETLK)
        say("  type %d from %ld length %ld pid %d", lock.l_type, (long)lock.l_start,
            (long)lock.l_len, lock.l_pid);
    return ret;
}

int main(int argc, char **argv)
{
    start(argc, argv);
    int a = make_file("locked", 1, 5003), b = open("locked", O_RDWR);
    show("a locks", ofd(a, F_OFD_SETLK, F_WRLCK, SEEK_SET, 10, 20));
    show("b conflicts", ofd(b, F_OFD_SETLK, F_WRLCK, SEEK_SET, 29, 1));
    show("b asks", ofd(b, F_OFD_GETLK, F_WRLCK, SEEK_SET, 0, 100));
    show("b beside", ofd(b, F_OFD_SETLK, F_WRLCK, SEEK_SET, 30, 1));
    show("a at the end", ofd(a, F_OFD_SETLK, F_RDLCK, SEEK_END, -3, 3));
    show("b asks there", ofd(b, F_OFD_GETLK, F_WRLCK, SEEK_SET, 4900, 200));
    show("b close of a dup", close(dup(a)));
    show("b still conflicts", ofd(b, F_OFD_SETLK, F_WRLCK, SEEK_SET, 10, 1));
    int copy = dup(a);
    show("close of a", close(a));
    show("b still conflicts", ofd(b, F_OFD_SETLK, F_WRLCK, SEEK_SET, 10, 1));
    show("close of its copy", close(copy));
    show("b gets it", ofd(b, F_OFD_SETLK, F_WRLCK, SEEK_SET, 10, 1));
    char text[50];
    fill(text, sizeof text, 2, 0);
    show("pwrite", pwrite(b, text, 50, 5001));
    show("b unlocks", ofd(b, F_OFD_SETLK, F_UNLCK, SEEK_SET, 0, 0));

    a = open("locked", O_RDONLY);
    show("flock shared", flock(a, LOCK_SH | LOCK_NB));
    show("flock shared too", flock(b, LOCK_SH | LOCK_NB));
    show("flock exclusive", flock(b, LOCK_EX | LOCK_NB));
    show("flock unlock", flock(a, LOCK_UN));
    show("flock exclusive", flock(b, LOCK_EX | LOCK_NB));
    show("flock refused", flock(a, LOCK_SH | LOCK_NB));
    pid_t child = fork();
    if (child == 0) {
        show("the child shares", flock(b, LOCK_EX | LOCK_NB));
        show("another open does not", flock(open("locked", O_RDONLY), LOCK_SH | LOCK_NB));
        _exit(0);
    }
    show_end("child", child);
    show("still held", flock(a, LOCK_SH | LOCK_NB));
    show("close", close(b));
    show("released", flock(a, LOCK_SH | LOCK_NB));
    show_file("locked");
    return 0;
}
