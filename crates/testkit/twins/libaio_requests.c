/* Asynchronous I/O by the kernel's own requests, through libc's syscall() as libaio makes them:
 * whole pages with O_DIRECT, which the kernel carries out, and all that has to be carried out on
 * the spot; many threads; other calls, forks and the end of a context while requests are under way.
 */
#include "twin.h"
#include <linux/aio_abi.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/eventfd.h>
#include <sys/uio.h>

enum { PAGE = 4096, PAGES = 32, LEN = PAGE * PAGES, MANY = 8 };

static char *text, *back;
static aio_context_t context;

static struct iocb request(int fd, int operation, void *buffer, long len, long at)
{
    static uint64_t number = 1000;
    return (struct iocb){.aio_data = number++, .aio_fildes = fd, .aio_lio_opcode = operation,
                         .aio_buf = (uintptr_t)buffer, .aio_nbytes = len, .aio_offset = at};
}

/* Fetches the event of one request, which must be the only one. */
static long fetch(struct iocb *of)
{
    struct io_event event = {0};
    long ret = syscall(SYS_io_getevents, context, 1, 1, &event, NULL);
    if (ret != 1)
        return ret < 0 ? -errno : -1000;
    if (event.obj != (uintptr_t)of || event.data != of->aio_data || event.res2)
        return -1001;
    return event.res;
}

static long run(struct iocb one)
{
    struct iocb *list[] = {&one};
    long ret = syscall(SYS_io_submit, context, 1, list);
    if (ret != 1)
        return ret < 0 ? -errno : -1002;
    return fetch(&one);
}

static void report(const char *what, long result)
{
    say("%s: %ld %s", what, result, result < 0 ? errno_name(-result) : "");
}

/* All of a file in one batch, in pages of its own order; the events come in any. */
static void in_a_batch(int fd, int operation, char *buffer)
{
    struct iocb requests[PAGES], *list[PAGES];
    struct io_event events[PAGES];
    int seen[PAGES] = {0}, bad = 0;
    for (int i = 0; i < PAGES; i++) {
        int page = i * 7 % PAGES;
        requests[i] = request(fd, operation, buffer + page * PAGE, PAGE, page * PAGE);
        list[i] = &requests[i];
    }
    long given = 0, done = 0;
    while (given < PAGES) {
        long ret = syscall(SYS_io_submit, context, PAGES - given, list + given);
        if (ret <= 0) {
            report("io_submit", ret < 0 ? -errno : 0);
            return;
        }
        given += ret;
    }
    while (done < PAGES) {
        long ret = syscall(SYS_io_getevents, context, 1, 5, events, NULL);
        if (ret < 1)
            return report("io_getevents", -errno);
        for (int i = 0; i < ret; i++) {
            struct iocb *of = (void *)(uintptr_t)events[i].obj;
            bad += of < requests || of >= requests + PAGES || seen[of - requests]++ ||
                   events[i].data != of->aio_data || events[i].res != PAGE;
        }
        done += ret;
    }
    say("%d pages, %d bad", PAGES, bad);
}

static void edges_of_a_file(const char *name, int flags)
{
    int fd = open(name, O_RDWR | O_CREAT | flags, 0644);
    say("%s", name);
    fill(text, LEN, 4, 0);
    in_a_batch(fd, IOCB_CMD_PWRITE, text);
    memset(back, 7, LEN);
    in_a_batch(fd, IOCB_CMD_PREAD, back);
    say("same: %d", !memcmp(text, back, LEN));
    report("read behind the end", run(request(fd, IOCB_CMD_PREAD, back, PAGE, LEN)));
    report("read over the end", run(request(fd, IOCB_CMD_PREAD, back, 4 * PAGE, LEN - PAGE)));
    report("write behind a gap", run(request(fd, IOCB_CMD_PWRITE, text, PAGE, LEN + 3 * PAGE)));
    report("sync", run(request(fd, IOCB_CMD_FDSYNC, NULL, 0, 0)));
    report("sync all", run(request(fd, IOCB_CMD_FSYNC, NULL, 0, 0)));
    report("unknown", run(request(fd, 77, text, PAGE, 0)));
    report("negative place", run(request(fd, IOCB_CMD_PREAD, back, PAGE, -PAGE)));
    show_size("size", fd);
    show_file(name);
    close(fd);
}

/* What is no whole page, in a file without O_DIRECT. */
static void odd_places(void)
{
    static char parts[3][100];
    int fd = make_file("odd", 6, 10000), only = open("odd", O_RDONLY);
    report("write within", run(request(fd, IOCB_CMD_PWRITE, text + 1, 777, 4000)));
    report("write over the end", run(request(fd, IOCB_CMD_PWRITE, text + 1, 777, 9900)));
    report("read", run(request(fd, IOCB_CMD_PREAD, back + 3, 5000, 3333)));
    say("same: %d", !memcmp(back + 3 + 667, text + 1, 777));
    struct iovec pieces[] = {{parts[0], 100}, {parts[1], 7}, {parts[2], 93}};
    report("read pieces", run(request(fd, IOCB_CMD_PREADV, pieces, 3, 4050)));
    say("same: %d %d", !memcmp(parts[0], text + 51, 100), !memcmp(parts[2], text + 158, 93));
    report("write pieces", run(request(fd, IOCB_CMD_PWRITEV, pieces, 3, 1)));
    report("write without the right", run(request(only, IOCB_CMD_PWRITE, text, 8, 0)));
    report("no descriptor", run(request(-1, IOCB_CMD_PWRITE, text, 8, 0)));
    report("no memory", run(request(fd, IOCB_CMD_PWRITE, (void *)16, 8, 0)));
    show_file("odd");
    close(fd);
    close(only);
}

/* Other calls of the same thread, while its requests are under way. */
static void beside_other_calls(void)
{
    struct iocb requests[MANY], *list[MANY];
    struct io_event events[MANY];
    int fd = open("beside", O_RDWR | O_CREAT | O_DIRECT, 0644), cached = open("beside", O_RDWR);
    fill(text, LEN, 8, 0);
    show("pwrite", pwrite(fd, text, LEN, 0));
    int other = eventfd(0, EFD_NONBLOCK), bad = 0;
    for (int round = 0; round < 40; round++) {
        fill(text, MANY * PAGE, 9 + round, 0);
        for (int i = 0; i < MANY; i++) {
            requests[i] = request(fd, IOCB_CMD_PWRITE, text + i * PAGE, PAGE, i * PAGE);
            requests[i].aio_flags = IOCB_FLAG_RESFD;
            requests[i].aio_resfd = other;
            list[i] = &requests[i];
        }
        bad += syscall(SYS_io_submit, context, MANY, list) != MANY;
        /* Parts of other pages of the same area, a size that is odd for a while, a read. */
        bad += pwrite(cached, "small", 5, MANY * PAGE + 17 + round) != 5;
        if (round % 4 == 0) {
            bad += ftruncate(cached, LEN + 100 + round) != 0;
            bad += ftruncate(cached, LEN) != 0;
        }
        bad += pread(cached, back, PAGE, (MANY + 2) * PAGE) != PAGE;
        if (round % 10 == 3) {
            /* The child reads what its parent has under way. */
            pid_t child = fork();
            if (child == 0) {
                long got = pread(cached, back, MANY * PAGE, 0);
                _exit(got == MANY * PAGE ? 0 : 1);
            }
            int status = -1;
            waitpid(child, &status, 0);
            bad += status != 0;
        }
        uint64_t told = 0, all = 0;
        while (all < MANY) {
            struct pollfd wait = {.fd = other, .events = POLLIN};
            bad += poll(&wait, 1, 10000) != 1;
            bad += read(other, &told, 8) != 8;
            all += told;
        }
        bad += syscall(SYS_io_getevents, context, MANY, MANY, events, NULL) != MANY;
        for (int i = 0; i < MANY; i++)
            bad += events[i].res != PAGE;
        bad += pread(fd, back, MANY * PAGE, 0) != MANY * PAGE || memcmp(text, back, MANY * PAGE);
    }
    say("beside other calls: %d bad", bad);
    show("ftruncate", ftruncate(fd, LEN));
    show_file("beside");
    close(fd);
    close(cached);
}

enum { THREADS = 4, ROUNDS = 200, PART = 8 };

/* A request that a thread waits for, while another fetches all events. */
struct asked {
    struct iocb request;
    sem_t done;
    long result;
};

static int pages;

static void *fetch_all(void *arg)
{
    struct io_event events[16];
    for (;;) {
        long n = syscall(SYS_io_getevents, context, 1, 16, events, NULL);
        for (int i = 0; i < n; i++) {
            struct asked *of = (void *)(uintptr_t)events[i].data;
            if (of == NULL)
                return arg;
            of->result = events[i].res;
            sem_post(&of->done);
        }
    }
}

static long ask(int operation, void *buffer, long len, long at)
{
    struct asked asked = {.request = request(pages, operation, buffer, len, at)};
    struct iocb *list[] = {&asked.request};
    asked.request.aio_data = (uintptr_t)&asked;
    sem_init(&asked.done, 0, 0);
    long ret;
    while ((ret = syscall(SYS_io_submit, context, 1, list)) < 0 && errno == EAGAIN)
        ;
    if (ret != 1)
        return -errno;
    while (sem_wait(&asked.done) && errno == EINTR)
        ;
    return asked.result;
}

static void *work(void *arg)
{
    long t = (long)arg, bad = 0;
    uint64_t random = 5 + t;
    char *out, *in;
    if (posix_memalign((void **)&out, PAGE, PART * PAGE) ||
        posix_memalign((void **)&in, PAGE, PART * PAGE))
        return (void *)1L;
    for (int i = 0; i < ROUNDS; i++) {
        long count = 1 + next_random(&random, PART), first = next_random(&random, PART - count + 1);
        long at = (t * PART + first) * PAGE;
        fill(out, count * PAGE, 100 + i, at);
        bad += ask(IOCB_CMD_PWRITE, out, count * PAGE, at) != count * PAGE;
        bad += ask(IOCB_CMD_PREAD, in, count * PAGE, at) != count * PAGE;
        bad += memcmp(in, out, count * PAGE) != 0;
        /* Pages that others write: whole pages of theirs, old or new. */
        bad += ask(IOCB_CMD_PREAD, in, PAGE, next_random(&random, THREADS * PART) * PAGE) != PAGE;
        bad += memcmp(in, MARKER, sizeof MARKER - 1) != 0;
    }
    fill(out, PART * PAGE, 3, t * PART * PAGE);
    bad += ask(IOCB_CMD_PWRITE, out, PART * PAGE, t * PART * PAGE) != PART * PAGE;
    free(out);
    free(in);
    return (void *)bad;
}

static void many_threads(void)
{
    pthread_t threads[THREADS], fetches;
    pages = open("threads", O_RDWR | O_CREAT | O_DIRECT, 0644);
    fill(text, LEN, 1, 0);
    show("pwrite", pwrite(pages, text, LEN, 0));
    pthread_create(&fetches, NULL, fetch_all, NULL);
    for (long t = 0; t < THREADS; t++)
        pthread_create(&threads[t], NULL, work, (void *)t);
    for (int t = 0; t < THREADS; t++) {
        void *bad;
        pthread_join(threads[t], &bad);
        say("thread %d: %ld bad", t, (long)bad);
    }
    /* Nothing is left to fetch but this. */
    struct iocb last = request(pages, IOCB_CMD_PREAD, back, PAGE, 0), *list[] = {&last};
    last.aio_data = 0;
    show("io_submit", syscall(SYS_io_submit, context, 1, list));
    pthread_join(fetches, NULL);
    show_file("threads");
    close(pages);
}

/* The file is closed, and then the context ends, before any event is fetched. */
static void an_early_end(void)
{
    struct iocb requests[MANY], *list[MANY];
    int fd = open("early", O_RDWR | O_CREAT | O_DIRECT, 0644);
    show("pwrite", pwrite(fd, text, LEN, 0));
    fill(text, LEN, 77, 0);
    for (int i = 0; i < MANY; i++) {
        requests[i] = request(fd, IOCB_CMD_PWRITE, text + i * PAGE, PAGE, i * PAGE);
        list[i] = &requests[i];
    }
    show("io_submit", syscall(SYS_io_submit, context, MANY, list));
    close(fd);
    show("io_destroy", syscall(SYS_io_destroy, context));
    show("io_submit", syscall(SYS_io_submit, context, MANY, list));
    fd = open("early", O_RDWR);
    show("pwrite", pwrite(fd, "small", 5, LEN - 3));
    close(fd);
    show_file("early");
}

int main(int argc, char **argv)
{
    start(argc, argv);
    if (posix_memalign((void **)&text, PAGE, LEN) || posix_memalign((void **)&back, PAGE, LEN))
        return 1;
    for (int round = 0; round < 2; round++) {
        context = 0;
        show("io_setup", syscall(SYS_io_setup, 64, &context));
        struct timespec none = {0, 0};
        struct io_event event;
        show("io_getevents", syscall(SYS_io_getevents, context, 0, 1, &event, &none));
        if (round == 0) {
            edges_of_a_file("direct", O_DIRECT);
            edges_of_a_file("cached", 0);
            odd_places();
            beside_other_calls();
            many_threads();
        }
        an_early_end();
    }
    return 0;
}
