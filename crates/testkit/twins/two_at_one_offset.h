/* Two who use one offset at one time: two threads, or two processes after a fork, on two
 * processors. */
#ifndef TWO_AT_ONE_OFFSET_H
#define TWO_AT_ONE_OFFSET_H
#include "twin.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

struct two {
    _Atomic int ready, over, bad;
    _Atomic long done; /* what one tells the other */
};

static struct two *two;
static int fd;

/* Otherwise they take turns where there is little to do. */
static void use_processor(int number)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(number, &one);
    sched_setaffinity(0, sizeof one, &one);
}

/* The other is there. */
static void begin(void)
{
    use_processor(1);
    two->ready = 1;
}

/* Runs `first` here and `second` beside it, as a thread and then as a process. */
static void run_both(const char *who, int forks, void (*first)(void), void *(*second)(void *))
{
    pthread_t thread;
    pid_t child = 0;
    memset(two, 0, sizeof *two);
    if (!forks)
        pthread_create(&thread, NULL, second, NULL);
    else if ((child = fork()) == 0) {
        second(NULL);
        _exit(0);
    }
    use_processor(0);
    while (!two->ready)
        sched_yield();
    first();
    if (forks)
        show_end(who, child);
    else
        pthread_join(thread, NULL);
}

static void share(void)
{
    two = mmap(NULL, sizeof *two, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}
#endif
