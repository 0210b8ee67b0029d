/* The second names that libc exports for one function: __open64, __write, _IO_fopen and the like.
 */
#include "twin.h"
#include <dirent.h>
#include <dlfcn.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>

/* The name as a program finds it, if this libc has it at all (the library may define more). */
static void *named(const char *name)
{
    static void *libc;
    if (!libc)
        libc = dlopen("libc.so.6", RTLD_LAZY);
    return dlsym(libc, name) ? dlsym(RTLD_DEFAULT, name) : NULL;
}

/* Runs the statement with f as that function. */
#define WITH(name, type, ...)                          \
    do {                                               \
        type = named(name);                            \
        if (f) {                                       \
            __VA_ARGS__;                               \
        } else {                                       \
            say("%s is not in this libc", name);       \
        }                                              \
    } while (0)

static char back[9000];

static void opened_by(const char *name)
{
    char text[9000];
    WITH(name, int (*f)(const char *, int, ...), {
        char file[64];
        snprintf(file, sizeof file, "opened-by-%s", name);
        int fd = f(file, O_RDWR | O_CREAT, 0600);
        fill(text, sizeof text, 2, 0);
        show(name, write(fd, text, 4099));
        close(fd);
        show_file(file);
    });
}

static void written_by(const char *name)
{
    char text[] = MARKER " by another name";
    WITH(name, ssize_t (*f)(int, const void *, size_t), {
        int fd = open("file", O_RDWR);
        show(name, f(fd, text, sizeof text));
        close(fd);
        show_file("file");
    });
}

static void written_at_by(const char *name)
{
    char text[] = MARKER " by another name, at a place";
    WITH(name, ssize_t (*f)(int, const void *, size_t, off_t), {
        int fd = open("file", O_RDWR);
        show(name, f(fd, text, sizeof text, 4090));
        close(fd);
        show_file("file");
    });
}

static void read_by(const char *name)
{
    WITH(name, ssize_t (*f)(int, void *, size_t), {
        int fd = open("file", O_RDONLY);
        show_read(name, f(fd, back, 50), back);
        close(fd);
    });
}

static void read_at_by(const char *name)
{
    WITH(name, ssize_t (*f)(int, void *, size_t, off_t), {
        int fd = open("file", O_RDONLY);
        show_read(name, f(fd, back, 50, 4080), back);
        close(fd);
    });
}

static void sought_by(const char *name)
{
    WITH(name, off_t (*f)(int, off_t, int), {
        int fd = open("file", O_RDONLY);
        show(name, f(fd, -3, SEEK_END));
        close(fd);
    });
}

/* After the close, something else has the number: it must not be taken for the file. */
static void closed_by(const char *name)
{
    WITH(name, int (*f)(int), {
        int fd = open("file", O_RDWR), pair[2];
        show(name, f(fd));
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
            return;
        say("the same number: %d", pair[0] == fd);
        show("write", write(pair[0], "to a socket", 12));
        memset(back, 0, sizeof back);
        show("read", recv(pair[1], back, 20, MSG_DONTWAIT));
        say("it got: %s", back);
        show_file("file");
        close(pair[0]);
        close(pair[1]);
    });
}

static void controlled_by(const char *name)
{
    WITH(name, int (*f)(int, int, ...), {
        int fd = open("file", O_RDWR);
        int copy = f(fd, F_DUPFD, 100);
        show(name, copy);
        show_read("read of it", pread(copy, back, 40, 0), back);
        say("may be read and written: %d", (f(fd, F_GETFL) & O_ACCMODE) == O_RDWR);
        close(copy);
        close(fd);
    });
}

static void stream_by(const char *opener, const char *closer)
{
    FILE *(*open_it)(const char *, const char *) = named(opener);
    int (*close_it)(FILE *) = named(closer);
    if (!open_it || !close_it) {
        say("%s is not in this libc", opener);
        return;
    }
    FILE *stream = open_it("stream", "w");
    show_pointer(opener, stream);
    show("fprintf", fprintf(stream, MARKER " %s\n", opener));
    show(closer, close_it(stream));
    show_file("stream");
    stream = open_it("stream", "a+");
    show("fputs", fputs(MARKER " and a second line\n", stream) >= 0);
    rewind(stream);
    say("fgets: %s", fgets(back, sizeof back, stream) ? back : "(nothing)");
    show(closer, close_it(stream));
    show_file("stream");
}

static void stream_on_a_descriptor(void)
{
    WITH("_IO_fdopen", FILE *(*f)(int, const char *), {
        FILE *stream = f(open("on-a-descriptor", O_RDWR | O_CREAT, 0600), "w");
        show_pointer("_IO_fdopen", stream);
        show("fputs", fputs(MARKER " on a descriptor\n", stream) >= 0);
        show("fclose", fclose(stream));
        show_file("on-a-descriptor");
    });
}

/* The list of mounted file systems is a stream under other names, of any file. */
static void list_of_mounts(const char *opener, const char *closer)
{
    FILE *(*open_it)(const char *, const char *) = named(opener);
    int (*close_it)(FILE *) = named(closer);
    if (!open_it || !close_it) {
        say("%s is not in this libc", opener);
        return;
    }
    FILE *list = open_it("mounts", "w");
    show_pointer(opener, list);
    show("fputs", fputs("/dev/" MARKER " /nowhere none ro 0 0\n", list) >= 0);
    show(closer, close_it(list));
    show_file("mounts");
    show_pointer("of a missing file", open_it("missing", "r"));
}

static void mapped(void)
{
    WITH("__mmap", void *(*f)(void *, size_t, int, int, int, off_t), {
        int fd = open("file", O_RDONLY);
        void *map = f(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED)
            show("__mmap", -1);
        else
            show_bytes("__mmap", map, 4096);
        close(fd);
    });
}

static void duplicated(void)
{
    WITH("__dup2", int (*f)(int, int), {
        int fd = open("file", O_RDWR), other = open("/dev/null", O_RDWR);
        show("__dup2", f(fd, other) == other);
        show_read("read of it", read(other, back, 20), back);
        int null = open("/dev/null", O_RDWR);
        show("__dup2 of another", f(null, fd) == fd);
        show("read of that", read(fd, back, 20));
        close(fd);
        close(other);
        close(null);
    });
}

static void asked(void)
{
    struct pollfd one = {.events = POLLIN};
    struct stat st;
    WITH("__poll", int (*f)(struct pollfd *, nfds_t, int), {
        one.fd = open("file", O_RDONLY);
        show("__poll", f(&one, 1, 0));
        say("ready for %x", one.revents);
        close(one.fd);
    });
    WITH("__select", int (*f)(int, fd_set *, fd_set *, fd_set *, struct timeval *), {
        int fd = open("file", O_RDONLY);
        fd_set in;
        FD_ZERO(&in);
        FD_SET(fd, &in);
        show("__select", f(fd + 1, &in, NULL, NULL, NULL));
        close(fd);
    });
    WITH("__fstat64", int (*f)(int, struct stat *), {
        int fd = open("file", O_RDONLY);
        show("__fstat64", f(fd, &st));
        say("size %ld", (long)st.st_size);
        close(fd);
    });
    WITH("__ttyname_r_chk", int (*f)(int, char *, size_t, size_t), {
        int fd = open("file", O_RDONLY);
        say("__ttyname_r_chk: %s", errno_name(f(fd, back, 100, sizeof back)));
        close(fd);
    });
}

/* A directory that was given a file's number: closing it closes the file. */
static void closed_as_a_directory(void)
{
    DIR *directory = opendir(".");
    int number = dirfd(directory), fd = open("file", O_RDWR), pair[2];
    show("dup2", dup2(fd, number) == number);
    close(fd);
    show("closedir", closedir(directory));
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        return;
    say("the same number: %d", pair[0] == number);
    show("write", write(pair[0], "to a socket", 12));
    show("read", recv(pair[1], back, 20, MSG_DONTWAIT));
    show_file("file");
}

#ifdef __x86_64__
/* A name that only programs of long ago were linked with. */
__asm__(".symver sought_long_ago, llseek@GLIBC_2.2.5");
extern off_t sought_long_ago(int, off_t, int);

static void sought_by_an_old_program(void)
{
    int fd = open("file", O_RDONLY);
    show("llseek", sought_long_ago(fd, -3, SEEK_END));
    close(fd);
}
#else
static void sought_by_an_old_program(void)
{
}
#endif

int main(int argc, char **argv)
{
    start(argc, argv);
    close(make_file("file", 1, 8200));
    static const char *const opens[] = {"__open", "__open64", "__open_nocancel",
                                        "__open64_nocancel"};
    for (size_t i = 0; i < sizeof opens / sizeof *opens; i++)
        opened_by(opens[i]);
    written_by("__write");
    written_by("__write_nocancel");
    written_at_by("__pwrite64");
    written_at_by("__libc_pwrite");
    read_by("__read");
    read_by("__read_nocancel");
    read_at_by("__pread64");
    read_at_by("__pread64_nocancel");
    read_at_by("__libc_pread");
    sought_by("__lseek");
    sought_by_an_old_program();
    closed_by("__close");
    closed_by("__close_nocancel");
    controlled_by("__fcntl");
    controlled_by("__libc_fcntl64");
    stream_by("_IO_fopen", "_IO_fclose");
    stream_on_a_descriptor();
    list_of_mounts("setmntent", "endmntent");
    list_of_mounts("__setmntent", "__endmntent");
    mapped();
    duplicated();
    asked();
    closed_as_a_directory();
    return 0;
}
