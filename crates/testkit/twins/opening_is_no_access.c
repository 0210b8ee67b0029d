/* The library reads a file's header at each opening. That must not count as an access: the inode
 * would change, and an fsync behind it would have to write it. What the program reads counts, as on
 * a plain file, and O_NOATIME shows only where the program has given it. */
#include "twin.h"
#include <time.h>

static struct timespec accessed(void)
{
    struct stat st;
    must(stat("file", &st));
    return st.st_atim;
}

/* Whether the time of access has changed since `before`. */
static int is_later(struct timespec before)
{
    struct timespec now = accessed();
    return now.tv_sec != before.tv_sec || now.tv_nsec != before.tv_nsec;
}

static void show_flags(const char *what, int fd)
{
    show(what, fcntl(fd, F_GETFL) & (O_NOATIME | O_APPEND | O_NONBLOCK));
}

int main(int argc, char **argv)
{
    char back[100];
    struct timespec before, pause = {0, 30 * 1000 * 1000};
    start(argc, argv);
    close(make_file("file", 1, 20000));
    before = accessed();
    /* Whatever counts as an access from now on has another time. */
    nanosleep(&pause, NULL);

    int r = open("file", O_RDONLY), w = open("file", O_RDWR);
    int c = open("file", O_RDWR | O_CREAT, 0600), n = open("file", O_RDONLY | O_NONBLOCK);
    show("accessed by opens", is_later(before));
    show_flags("flags, only read", r);
    show_flags("flags, written too", w);
    show_flags("flags, perhaps made", c);
    show_flags("flags, without waiting", n);
    show("size", lseek(w, 0, SEEK_END));
    must(pwrite(w, MARKER, 13, 5000));
    must(fsync(w));
    must(fsync(r));
    show("accessed by a write within a unit", is_later(before));

    show_read("read", pread(n, back, 100, 300), back);
    show_flags("flags after a read", n);
    show("accessed by a read", is_later(before));

    int a = open("file", O_RDWR);
    show_pointer("fdopen", fdopen(a, "a+"));
    show_flags("flags behind fdopen", a);

    show("F_SETFL", fcntl(r, F_SETFL, O_NOATIME));
    show_flags("flags, no access", r);
    show_read("read", read(r, back, 100), back);
    show_flags("flags after a read", r);
    int quiet = open("file", O_RDONLY | O_NOATIME);
    show_flags("flags of a quiet one", quiet);
    /* An access would count again, and have another time. */
    must(pwrite(w, MARKER, 13, 9000));
    before = accessed();
    nanosleep(&pause, NULL);
    show_read("read", read(quiet, back, 100), back);
    show_flags("flags after a read", quiet);
    show("accessed by a quiet read", is_later(before));
    show_file("file");
    return 0;
}
