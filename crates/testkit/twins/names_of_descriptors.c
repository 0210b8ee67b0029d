/* All names that the kernel has for a descriptor of one's own are the file, and so is a descriptor
 * that is open as a path only. */
#include "twin.h"
#include <limits.h>
#include <sys/sysmacros.h>

static char here[PATH_MAX];

static void show_name(const char *what, const char *name)
{
    char back[PATH_MAX], bytes[64];
    struct stat st;
    struct statx stx;
    say("%s:", what);
    int fd = show_ok("open", open(name, O_RDWR));
    if (fd >= 0) {
        show_read("pread", pread(fd, bytes, 40, 10960), bytes);
        close(fd);
    }
    if (show("stat", stat(name, &st)) == 0)
        say("size %ld regular %d", (long)st.st_size, S_ISREG(st.st_mode));
    if (show("lstat", lstat(name, &st)) == 0)
        say("a link %d", S_ISLNK(st.st_mode));
    if (show("statx", statx(AT_FDCWD, name, 0, STATX_SIZE, &stx)) == 0)
        say("size %ld", (long)stx.stx_size);
    show("access", access(name, R_OK | W_OK));
    show("access to run it", access(name, X_OK));
    show("chmod", chmod(name, 0640));
    long n = readlink(name, back, sizeof back - 1);
    back[n < 0 ? 0 : n] = 0;
    say("readlink tells the path: %d", strcmp(back, here) == 0);
    say("realpath tells it: %d", realpath(name, back) && strcmp(back, here) == 0);
    show("truncate", truncate(name, 11000));
}

static void show_unopened(const char *what, int fd)
{
    struct stat st;
    struct statx stx;
    say("%s:", what);
    if (fd < 0) {
        show("open", fd);
        return;
    }
    show_size("fstat", fd);
    if (show("fstatat", fstatat(fd, "", &st, AT_EMPTY_PATH)) == 0)
        say("size %ld", (long)st.st_size);
    if (show("statx", statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &stx)) == 0)
        say("size %ld", (long)stx.stx_size);
    int copy = dup(fd);
    show_size("a copy", copy);
    close(copy);
}

int main(int argc, char **argv)
{
    char name[100], byte;
    start(argc, argv);
    if (!getcwd(here, sizeof here - 10))
        return 1;
    strcat(here, "/file");
    int fd = make_file("file", 1, 11000);
    int process = getpid(), thread = syscall(SYS_gettid);
#define NAME(...) (snprintf(name, sizeof name, __VA_ARGS__), name)
    show_name("self", NAME("/proc/self/fd/%d", fd));
    show_name("the process", NAME("/proc/%d/fd/%d", process, fd));
    show_name("the thread", NAME("/proc/thread-self/fd/%d", fd));
    show_name("a thread of self", NAME("/proc/self/task/%d/fd/%d", thread, fd));
    show_name("a thread of the process", NAME("/proc/%d/task/%d/fd/%d", process, thread, fd));
    show_name("device", NAME("/dev/fd/%d", fd));
    /* Of another process nothing is ours. */
    show("no such thread", open(NAME("/proc/self/task/%d/fd/%d", 1, fd), O_RDONLY));
    say("of process 1: %d", open(NAME("/proc/1/fd/%d", 12345), O_RDONLY) < 0);

    int path = open("file", O_PATH);
    show_unopened("as a path", path);
    show("read", read(path, &byte, 1));
    show_unopened("as a path by its number", open(NAME("/proc/self/fd/%d", fd), O_PATH));
    struct stat st;
    show("stat by its number", stat(NAME("/proc/self/fd/%d", path), &st));
    say("size %ld", (long)st.st_size);
    int again = open(name, O_RDONLY);
    show_size("opened by that", again);
    show("ftruncate", ftruncate(fd, 333));
    show_unopened("after a cut", path);
    show("unlink", unlink("file"));
    show_unopened("without a name", path);
    int other = make_file("file (deleted)", 2, 5000);
    show_unopened("another's name", path);
    show_unopened("a name like that", open("file (deleted)", O_PATH));
    close(other);
    int directory = open(".", O_PATH | O_DIRECTORY);
    show("a directory", fstat(directory, &st));
    return 0;
}
