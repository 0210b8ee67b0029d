/* A sealed file at a place for plain ones: who would append plain bytes to it is refused, whether
 * it is opened to be read too or not. A plain file there is opened; that drops no lock. */
#include "twin.h"
#include "direct.h"

static char sealed[40000];

/* As a program does that knows nothing of us. */
static void copy_as_it_is(const char *from, const char *to)
{
    int in = direct(SYS_openat, AT_FDCWD, (long)from, O_RDONLY, 0, 0, 0);
    int out = direct(SYS_openat, AT_FDCWD, (long)to, O_WRONLY | O_CREAT, 0600, 0, 0);
    long n = direct(SYS_read, in, (long)sealed, sizeof sealed, 0, 0, 0);
    show("copied", direct(SYS_write, out, (long)sealed, n, 0, 0, 0) == n && n >= 9000);
    direct(SYS_close, in, 0, 0, 0, 0, 0);
    direct(SYS_close, out, 0, 0, 0, 0, 0);
}

static int try(const char *what, int fd)
{
    show_ok(what, fd);
    if (fd >= 0)
        close(fd);
    return fd;
}

/* Asked by another process: of its own locks none is told. */
static void show_locked(const char *what, int fd)
{
    pid_t child = fork();
    if (child == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        if (fcntl(fd, F_GETLK, &lock) < 0)
            _exit(2);
        _exit(lock.l_type != F_UNLCK);
    }
    show_end(what, child);
}

int main(int argc, char **argv)
{
    char outside[] = "/tmp/twin-XXXXXX", path[200];
    start(argc, argv);
    if (!mkdtemp(outside))
        return 1;
    close(make_file("file", 1, 9000));
    snprintf(path, sizeof path, "%s/log", outside);
    copy_as_it_is("file", path);
    try("to write", open(path, O_WRONLY));
    try("to append", open(path, O_WRONLY | O_APPEND));
    try("to append or create", open(path, O_WRONLY | O_APPEND | O_CREAT, 0600));
    try("to read and write", open(path, O_RDWR));
    FILE *log = show_pointer("fopen", fopen(path, "a"));
    if (log)
        fclose(log);
    try("to begin anew", open(path, O_WRONLY | O_TRUNC));

    close(make_file(path, 2, 9000));
    int fd = open(path, O_WRONLY | O_APPEND);
    show("write", write(fd, MARKER " more", 18));
    close(fd);
    fd = open(path, O_RDWR);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5};
    show("lock", fcntl(fd, F_SETLK, &lock));
    show_locked("locked", fd);
    int again = open(path, O_WRONLY | O_APPEND);
    show_ok("to append", again);
    show_locked("still locked", fd);
    show("write", write(again, MARKER " last", 18));
    close(again);
    show_locked("after close", fd);
    close(fd);
    show_file(path);
    show("unlink", unlink(path) | rmdir(outside));
    return 0;
}
