/* File calls in a signal handler on an alternate stack of 8 KiB, and in a thread with the smallest
 * stack, between pages that nobody may touch. Every call of the list must work there, and how much
 * of a painted stack it takes must stay below 6 KiB: what the plain calls of libc take is far less,
 * what the C library itself needs for streams is not counted. */
#include "twin.h"
#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/uio.h>

enum { PAINT = 0xa5, BOUND = 6144, ALTERNATE = 8192, MEASURED = 256 * 1024 };

static volatile int step;
static long results[80];
static int errors[80];
static const char *names[80];
static int steps;

#define CALL(text, expression)                                                                     \
    do {                                                                                           \
        if (step == number) {                                                                      \
            names[number] = text;                                                                  \
            errno = 0;                                                                             \
            results[number] = (long)(expression);                                                  \
            errors[number] = results[number] < 0 ? errno : 0;                                      \
        }                                                                                          \
        number++;                                                                                  \
    } while (0)

static int fd, other;
static char text[9000];
static char target[300], again[300];
static struct stat st;
static struct iovec pieces[3];
static void *map;

/* One call of the list, by `step`: what is below is one frame for all of them. */
__attribute__((noinline)) static void one_call(void)
{
    int number = 0;
    CALL("create", fd = open("made", O_RDWR | O_CREAT | O_EXCL, 0600));
    CALL("first write", write(fd, text, 100));
    CALL("write", write(fd, text, 5000));
    CALL("pwrite", pwrite(fd, text, 300, 4000));
    CALL("pwrite of whole units", pwrite(fd, text, 8192, 8192));
    CALL("pwrite behind a gap", pwrite(fd, text, 77, 50001));
    CALL("pread", pread(fd, text, 9000, 33));
    CALL("lseek", lseek(fd, 0, SEEK_SET));
    CALL("read", read(fd, text, 777));
    CALL("readv", readv(fd, pieces, 3));
    CALL("writev", writev(fd, pieces, 3));
    CALL("pwritev", pwritev(fd, pieces, 3, 100));
    CALL("preadv", preadv(fd, pieces, 3, 100));
    CALL("fstat", fstat(fd, &st));
    CALL("fsync", fsync(fd));
    CALL("ftruncate", ftruncate(fd, 5001));
    CALL("ftruncate", ftruncate(fd, 70000));
    CALL("fallocate", fallocate(fd, 0, 0, 80000));
    CALL("punch", fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 100, 20000));
    CALL("lseek", lseek(fd, 0, SEEK_END));
    CALL("dup", other = dup(fd));
    CALL("close", close(other));
    CALL("close", close(fd));
    CALL("open of what was closed", fd = open("made", O_RDWR));
    CALL("close", close(fd));
    CALL("open of another's", fd = open("others", O_RDWR));
    CALL("pread", pread(fd, text, 100, 5));
    CALL("close", close(fd));
    CALL("open by a link", fd = open("link/deep", O_RDWR | O_CREAT, 0600));
    CALL("write", write(fd, text, 10));
    CALL("close", close(fd));
    CALL("openat", fd = openat(AT_FDCWD, "a/../a/b/deep", O_RDONLY));
    CALL("close", close(fd));
    CALL("open with O_TRUNC", fd = open("made", O_RDWR | O_TRUNC | O_APPEND));
    CALL("append", write(fd, text, 20));
    CALL("close", close(fd));
    CALL("open of nothing", open("a/b/nothing", O_RDONLY));
    CALL("stat", stat("others", &st));
    CALL("stat by a link", stat("link/deep", &st));
    CALL("lstat", lstat("link", &st));
    CALL("truncate", truncate("others", 3000));
    CALL("rename", rename("made", "a/moved"));
    CALL("link", link("a/moved", "a/linked"));
    CALL("symlink", symlink("b", "a/short"));
    CALL("unlink", unlink("a/moved"));
    CALL("rename by a link", rename("a/short/deep", "a/short/deeper"));
    CALL("readlink", readlink("link", target, sizeof target));
    CALL("open of a long name", open(again, O_RDONLY));
    CALL("access", access("a/linked", R_OK));
    CALL("chdir", chdir("a"));
    CALL("open from there", fd = open("linked", O_RDWR));
    CALL("pread", pread(fd, text, 9000, 0));
    CALL("map", (map = mmap(NULL, 5000, PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED ? -1 : 0);
    CALL("munmap", munmap(map, 5000));
    CALL("close", close(fd));
    CALL("chdir", chdir(".."));
    CALL("mkdir", mkdir("a/c", 0700));
    CALL("rmdir", rmdir("a/c"));
    steps = number;
}

static void on_signal(int signal)
{
    (void)signal;
    one_call();
}

/* The deepest use of `size` painted bytes from `low`, whose top is `high`. */
static long used(const unsigned char *low, long size)
{
    long untouched = 0;
    while (untouched < size && low[untouched] == PAINT)
        untouched++;
    return size - untouched;
}

static unsigned char *guarded(long size)
{
    unsigned char *all = mmap(NULL, size + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(all + 4096, size, PROT_READ | PROT_WRITE);
    memset(all + 4096, PAINT, size);
    return all + 4096;
}

static void on_stack(unsigned char *stack, long size)
{
    stack_t alternate = {.ss_sp = stack, .ss_size = size};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    memset(stack, PAINT, size);
    if (sigaltstack(&alternate, NULL) < 0)
        show("sigaltstack", -1);
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    alternate.ss_flags = SS_DISABLE;
    sigaltstack(&alternate, NULL);
}

static void prepare(void)
{
    fill(text, sizeof text, 1, 0);
    for (int i = 0; i < 3; i++)
        pieces[i] = (struct iovec){text + i * 2000, 1000 + i};
    mkdir("a", 0700);
    mkdir("a/b", 0700);
    if (symlink("a/b", "link") < 0)
        show("symlink", -1);
    memset(again, 'n', 250);
    close(make_file("others", 3, 6000));
    close(make_file("a/b/deep", 4, 100));
}

static void clean_up(void)
{
    unlink("made");
    unlink("a/linked");
    unlink("a/short");
    unlink("a/b/deep");
    unlink("a/b/deeper");
    unlink("others");
    unlink("link");
    rmdir("a/b");
    rmdir("a");
}

static void show_results(void)
{
    for (int i = 0; i < steps; i++)
        say("%s = %ld %s", names[i], results[i] > 2 && strstr(names[i], "open") ? 3 : results[i],
            errors[i] ? errno_name(errors[i]) : "");
}

static void *in_thread(void *painted)
{
    (void)painted;
    for (step = 0; step == 0 || step < steps; step++)
        one_call();
    return NULL;
}

int main(int argc, char **argv)
{
    long smallest = getauxval(AT_MINSIGSTKSZ), deepest = 0;
    const char *where = "";
    start(argc, argv);

    /* How much each call takes, on a stack that is large enough to tell. */
    unsigned char *large = guarded(MEASURED);
    prepare();
    step = -1;
    on_stack(large, MEASURED);
    long frame = used(large, MEASURED);
    for (step = 0; step < steps; step++) {
        on_stack(large, MEASURED);
        long more = used(large, MEASURED) - frame;
        if (more > deepest) {
            deepest = more;
            where = names[step];
        }
        if (getenv("SHOW_STACKS"))
            fprintf(stderr, "%-30s %ld\n", names[step], more);
    }
    fprintf(stderr, "deepest: %ld bytes for %s\n", deepest, where);
    say("deepest is within the bound: %d", deepest <= BOUND);
    show_results();
    clean_up();

    /* On 8 KiB; where the kernel's frame alone takes much of it (AVX-512), as much more. */
    long size = ALTERNATE + (smallest > 2048 ? (smallest - 2048 + 4095) / 4096 * 4096 : 0);
    unsigned char *small = guarded(size);
    prepare();
    for (step = 0; step < steps; step++)
        on_stack(small, size);
    show_results();
    clean_up();

    prepare();
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    show("stack size", pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN));
    show("thread", pthread_create(&thread, &attributes, in_thread, NULL));
    show("join", pthread_join(thread, NULL));
    show_results();
    clean_up();
    return 0;
}
