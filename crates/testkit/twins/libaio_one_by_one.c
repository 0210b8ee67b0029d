/* Pages that one thread submits one by one while others wait for the events, as InnoDB flushes: the
 * library may hold some of them back to hand several to the kernel at once. What reads them, waits
 * for several events, interrupts, forks, ends the context or refuses the call must not leave one.
 */
#include "twin.h"
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <time.h>

enum { PAGE = 4096, PAGES = 256, LEN = PAGE * PAGES, ROUNDS = 6 };

static char *text, *before, *back;
static aio_context_t context;
static int file, cached;
static struct iocb requests[PAGES];
static int done[PAGES];
static long fetched, bad;
static int ends;

/* Fetches events until told to end; at least so many at a time. */
struct fetcher {
    pthread_t thread;
    long least;
    long timeout_ms;
    int may_not_submit;
};

/* The kernel refuses this thread an io_submit of more requests than that. */
static int forbid_more_than(unsigned most)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_submit, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, most, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program, 0, 0);
}

static void *fetch_all(void *arg)
{
    struct fetcher *how = arg;
    struct io_event events[32];
    static char next[PAGE];
    struct timespec soon = {how->timeout_ms / 1000, how->timeout_ms % 1000 * 1000000};
    if (how->may_not_submit && forbid_more_than(0))
        __atomic_add_fetch(&bad, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&ends, __ATOMIC_SEQ_CST)) {
        /* Few, so that some have to wait. */
        long most = how->may_not_submit ? 3 : 32;
        long n = syscall(SYS_io_getevents, context, how->least, most, events,
                         how->timeout_ms ? &soon : NULL);
        if (n < 0 && errno != EINTR)
            break;
        for (long i = 0; i < n; i++) {
            struct iocb *of = (void *)(uintptr_t)events[i].obj;
            long page = of - requests;
            if (page < 0 || page >= PAGES || events[i].res != PAGE ||
                of->aio_data != events[i].data)
                __atomic_add_fetch(&bad, 1, __ATOMIC_SEQ_CST);
            else
                __atomic_store_n(&done[page], 1, __ATOMIC_SEQ_CST);
            /* The page after it may be held back, and this thread cannot hand it over. */
            if (how->may_not_submit && pread(cached, next, PAGE, (page + 7) % PAGES * PAGE) != PAGE)
                __atomic_add_fetch(&bad, 1, __ATOMIC_SEQ_CST);
            __atomic_add_fetch(&fetched, 1, __ATOMIC_SEQ_CST);
        }
    }
    return NULL;
}

static void submit(long page)
{
    struct iocb *list[] = {&requests[page]};
    requests[page] = (struct iocb){.aio_data = 70000 + page, .aio_fildes = file,
                                   .aio_lio_opcode = IOCB_CMD_PWRITE,
                                   .aio_buf = (uintptr_t)(text + page * PAGE), .aio_nbytes = PAGE,
                                   .aio_offset = page * PAGE};
    long ret;
    while ((ret = syscall(SYS_io_submit, context, 1, list)) < 0 && errno == EAGAIN)
        sched_yield();
    if (ret != 1)
        __atomic_add_fetch(&bad, 1, __ATOMIC_SEQ_CST);
}

static void wait_for(long all)
{
    while (__atomic_load_n(&fetched, __ATOMIC_SEQ_CST) < all)
        usleep(50);
}

static void on_signal(int number)
{
    (void)number;
    char page[PAGE];
    /* What the thread below has just submitted, and what it has under way. */
    if (pread(cached, page, PAGE, 0) != PAGE || memcmp(page, MARKER, sizeof MARKER - 1))
        bad++;
}

/* Bytes of a page that may still be on its way: the kernel promises neither. */
static int is_page(const char *found, long page)
{
    return !memcmp(found, text + page * PAGE, PAGE) || !memcmp(found, before + page * PAGE, PAGE);
}

enum what { NOTHING, READS, SIGNALS, FORKS };

/* All pages in several rounds, each of which waits for its own. */
static void rounds(const char *name, enum what also, struct fetcher *fetchers, int count, int room)
{
    context = 0, ends = 0, fetched = 0, bad = 0;
    show("io_setup", syscall(SYS_io_setup, room, &context));
    for (int i = 0; i < count; i++)
        pthread_create(&fetchers[i].thread, NULL, fetch_all, &fetchers[i]);
    for (int round = 0; round < ROUNDS; round++) {
        memset(done, 0, sizeof done);
        bad += pread(cached, before, LEN, 0) != LEN;
        fill(text, LEN, 10 + round, 0);
        for (long i = 0; i < PAGES; i++) {
            long page = i * 7 % PAGES;
            submit(page);
            if (also == READS && i % 5 == 0) {
                bad += pread(cached, back, PAGE, page * PAGE) != PAGE;
                bad += !is_page(back, page);
            }
            if (also == SIGNALS && i % 9 == 0)
                raise(SIGUSR1);
            if (also == FORKS && i % 100 == 50) {
                pid_t child = fork();
                if (child == 0) {
                    long got = pread(cached, back, PAGE, page * PAGE);
                    _exit(got != PAGE || !is_page(back, page));
                }
                int status = -1;
                waitpid(child, &status, 0);
                bad += status != 0;
            }
        }
        wait_for((round + 1L) * PAGES);
        for (long page = 0; page < PAGES; page++)
            bad += !done[page];
        bad += pread(cached, back, LEN, 0) != LEN || memcmp(text, back, LEN);
    }
    ends = 1;
    /* Each fetcher gets an event to end by, whatever it waits for. */
    for (int i = 0; i < count; i++)
        for (long event = 0; event < fetchers[i].least; event++)
            submit(event);
    if (count == 1)
        pthread_join(fetchers[0].thread, NULL);
    show("io_destroy", syscall(SYS_io_destroy, context));
    for (int i = 1; i < count; i++)
        pthread_join(fetchers[i].thread, NULL);
    if (count > 1)
        pthread_join(fetchers[0].thread, NULL);
    say("%s: %ld bad", name, bad);
}

/* The context ends while pages are held back and a thread waits. */
static void ends_of_contexts(void)
{
    long wrong = 0;
    for (int round = 0; round < 40; round++) {
        struct fetcher fetcher = {.least = 1};
        context = 0, ends = 0, fetched = 0, bad = 0;
        wrong += syscall(SYS_io_setup, 64, &context) != 0;
        pthread_create(&fetcher.thread, NULL, fetch_all, &fetcher);
        fill(text, LEN, 200 + round, 0);
        for (long page = 0; page < 20; page++)
            submit(page);
        wrong += syscall(SYS_io_destroy, context) != 0;
        pthread_join(fetcher.thread, NULL);
        wrong += bad;
        wrong += pread(cached, back, 20 * PAGE, 0) != 20 * PAGE || memcmp(text, back, 20 * PAGE);
    }
    say("ends of contexts: %ld bad", wrong);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    if (posix_memalign((void **)&text, PAGE, LEN) || posix_memalign((void **)&before, PAGE, LEN) ||
        posix_memalign((void **)&back, PAGE, LEN))
        return 1;
    file = open("pages", O_RDWR | O_CREAT | O_DIRECT, 0644);
    cached = open("pages", O_RDWR);
    fill(text, LEN, 1, 0);
    show("pwrite", pwrite(file, text, LEN, 0));
    signal(SIGUSR1, on_signal);

    struct fetcher one[] = {{.least = 1}}, soon[] = {{.least = 1, .timeout_ms = 1}};
    struct fetcher forbidden[] = {{.least = 1, .may_not_submit = 1}};
    struct fetcher three[] = {{.least = 1}, {.least = 1}, {.least = 1}};
    struct fetcher mixed[] = {{.least = 1, .timeout_ms = 5}, {.least = 4, .timeout_ms = 3}};
    rounds("one fetcher", NOTHING, one, 1, 256);
    rounds("one fetcher, little room", NOTHING, one, 1, 3);
    rounds("one fetcher that looks again", NOTHING, soon, 1, 256);
    rounds("three fetchers", NOTHING, three, 3, 256);
    rounds("a fetcher of several", NOTHING, mixed, 2, 256);
    rounds("with reads", READS, one, 1, 256);
    rounds("with signals", SIGNALS, one, 1, 256);
    rounds("with forks", FORKS, one, 1, 256);
    ends_of_contexts();
    show_file("pages");
    /* What it is refused ends it for a context. */
    for (int i = 0; i < 10; i++)
        rounds("a fetcher that may not submit", NOTHING, forbidden, 1, 256);
    rounds("a fetcher that may not submit, with reads", READS, forbidden, 1, 256);
    show_file("pages");
    if (show("forbid batches", forbid_more_than(1)) == 0)
        rounds("no batches", NOTHING, soon, 1, 256);
    show_file("pages");
    return 0;
}
