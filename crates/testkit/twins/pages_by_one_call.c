/* Aligned 8 KiB reads and writes of a paged file, and seeks to its end, between marks that a trace
 * of system calls shows: a write to descriptor -1 that names what follows. Between the marks,
 * whoever allocates or takes a lock of libc ends the program: its functions are replaced by these.
 */
#include "twin.h"
#include <dlfcn.h>
#include <pthread.h>

enum { PAGES = 32, PAGE = 8192 };

static volatile int forbidden;

static void forbid(const char *what)
{
    if (!forbidden)
        return;
    forbidden = 0;
    say("%s between the marks", what);
    abort();
}

void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t), __libc_free(void *);

void *malloc(size_t n) { forbid("malloc"); return __libc_malloc(n); }
void *calloc(size_t n, size_t each) { forbid("calloc"); return __libc_calloc(n, each); }
void *realloc(void *at, size_t n) { forbid("realloc"); return __libc_realloc(at, n); }
void *memalign(size_t align, size_t n) { forbid("memalign"); return __libc_memalign(align, n); }
void *aligned_alloc(size_t align, size_t n) {
    forbid("aligned_alloc");
    return __libc_memalign(align, n);
}
void free(void *at) { forbid("free"); __libc_free(at); }

int posix_memalign(void **to, size_t align, size_t n)
{
    forbid("posix_memalign");
    *to = __libc_memalign(align, n);
    return *to ? 0 : ENOMEM;
}

static int (*next_lock)(pthread_mutex_t *);

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    forbid("pthread_mutex_lock");
    if (!next_lock)
        next_lock = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
    return next_lock(mutex);
}

static void mark(const char *text)
{
    forbidden = 0;
    syscall(SYS_write, -1, text, strlen(text));
    forbidden = text[0] == 'b';
}

int main(int argc, char **argv)
{
    static char page[PAGE] __attribute__((aligned(4096)));
    static char back[PAGE] __attribute__((aligned(4096)));
    int bad = 0;
    start(argc, argv);
    show("mkdir", mkdir("base", 0700) | mkdir("base/5", 0700));
    int fd = open("base/5/16384", O_RDWR | O_CREAT | O_EXCL, 0600);
    for (int i = 0; i < PAGES; i++) {
        fill(page, PAGE, 1, i * (long)PAGE);
        bad += pwrite(fd, page, PAGE, i * (long)PAGE) != PAGE;
    }
    mark("begin pwrite64");
    for (int i = 0; i < PAGES; i++)
        bad += pwrite(fd, page, PAGE, i * (long)PAGE) != PAGE;
    mark("end");
    /* The library asks once about each page of memory that it has not seen. */
    bad += pread(fd, back, PAGE, 0) != PAGE;
    mark("begin pread64");
    for (int i = 0; i < PAGES; i++)
        bad += pread(fd, back, PAGE, i * (long)PAGE) != PAGE;
    mark("end");
    bad += memcmp(page, back, PAGE) != 0;
    /* Opened again, as another backend does, and at the end, as a relation grows. */
    close(fd);
    fd = open("base/5/16384", O_RDWR);
    /* The first read takes one more: only from then on do reads count as accesses. */
    bad += pread(fd, back, PAGE, 0) != PAGE;
    mark("begin pread64");
    for (int i = 0; i < PAGES; i++)
        bad += pread(fd, back, PAGE, i * (long)PAGE) != PAGE;
    mark("end");
    mark("begin pwrite64");
    for (int i = PAGES; i < 2 * PAGES; i++)
        bad += pwrite(fd, page, PAGE, i * (long)PAGE) != PAGE;
    mark("end");
    /* A planner asks for the end of each relation with every query. */
    mark("begin lseek");
    for (int i = 0; i < PAGES; i++)
        bad += lseek(fd, 0, SEEK_END) != 2 * PAGES * (long)PAGE;
    mark("end");
    say("bad %d", bad);
    show_file("base/5/16384");
    return 0;
}
