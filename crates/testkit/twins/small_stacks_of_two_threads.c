/* A handler on an alternate stack writes and reads a file, while another thread has the same file's
 * cipher busy with writes of 1 MiB. What the handler takes of a painted stack stays below 6 KiB,
 * also where it has to have a cipher of its own. Each child begins without a spare one. */
#include "twin.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

enum { PAINT = 0xa5, BOUND = 6144, STACK = 256 * 1024, LARGE = 1 << 20, TIMES = 50, CHILDREN = 20 };

static int fd;
static char large[LARGE], text[8192], back[8192];
static volatile int ends, wrong;

static void *busy(void *none)
{
    while (!ends)
        if (pwrite(fd, large, LARGE, LARGE) != LARGE || pread(fd, large, LARGE, LARGE) != LARGE)
            wrong = 1;
    return none;
}

static void on_signal(int signal)
{
    (void)signal;
    if (pwrite(fd, text, sizeof text, 0) != sizeof text ||
        pread(fd, back, sizeof back, 0) != sizeof back)
        wrong = 1;
}

static void nothing(int signal) { (void)signal; }

/* The deepest use of the stack by one signal. */
static long used(unsigned char *stack, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    long untouched = 0;
    memset(stack, PAINT, STACK);
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    while (untouched < STACK && stack[untouched] == PAINT)
        untouched++;
    return STACK - untouched;
}

/* What the handler takes at most, in a process where the file is busy. */
static long deepest_of(unsigned char *stack, long frame)
{
    pthread_t thread;
    long deepest = 0;
    if (pthread_create(&thread, NULL, busy, NULL) != 0)
        wrong = 1;
    for (int i = 0; i < TIMES; i++) {
        long more = used(stack, on_signal) - frame;
        deepest = more > deepest ? more : deepest;
    }
    ends = 1;
    pthread_join(thread, NULL);
    if (memcmp(text, back, sizeof text) != 0)
        wrong = 1;
    return deepest;
}

int main(int argc, char **argv)
{
    long deepest = 0;
    int bad = 0;
    start(argc, argv);
    fill(large, sizeof large, 1, 0);
    fill(text, sizeof text, 2, 0);
    fd = open("shared", O_RDWR | O_CREAT, 0600);
    show("first write", pwrite(fd, text, sizeof text, 0));
    unsigned char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t alternate = {.ss_sp = stack, .ss_size = STACK};
    show("sigaltstack", sigaltstack(&alternate, NULL));
    long frame = used(stack, nothing);
    for (int i = 0; i < CHILDREN; i++) {
        struct { long deepest; int wrong; } told = {0, 1};
        int ends_of[2];
        if (pipe(ends_of) < 0)
            return 98;
        pid_t child = fork();
        if (child == 0) {
            told.deepest = deepest_of(stack, frame);
            told.wrong = wrong;
            _exit(write(ends_of[1], &told, sizeof told) != sizeof told);
        }
        close(ends_of[1]);
        bad |= read(ends_of[0], &told, sizeof told) != sizeof told || told.wrong;
        close(ends_of[0]);
        waitpid(child, NULL, 0);
        deepest = told.deepest > deepest ? told.deepest : deepest;
    }
    fprintf(stderr, "deepest: %ld bytes\n", deepest);
    say("deepest is within the bound: %d", deepest <= BOUND);
    say("wrong: %d", bad);
    close(fd);
    return 0;
}
