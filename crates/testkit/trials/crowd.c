/* Many threads, each with files of its own: 300 bytes at random places, and back. Nobody waits for
 * ever.
 *
 * usage: crowd DIR THREADS FILES SECONDS
 *   FILES   how many files each thread has, by turns
 * One line of JSON. Exit code 1 if a thread has not come back some time after the end, or if bytes
 * were wrong.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 20000, EACH = 300, PATIENCE = 30, MOST_FILES = 8 };

static const char *directory;
static int threads, files;
static _Atomic int go, stop, left;
static _Atomic long writes, wrong;

static void die(const char *what)
{
    fprintf(stderr, "crowd: %s: %s\n", what, strerror(errno));
    exit(2);
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void *work(void *argument)
{
    long self = (long)argument;
    uint64_t state = self;
    unsigned char *model = calloc(files, SIZE), back[EACH];
    int fds[MOST_FILES];
    /* Threads that work would keep the rest from being made. */
    while (!go)
        usleep(1000);
    for (int file = 0; file < files; file++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%ld", directory, 20000 + self * files + file);
        fds[file] = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (fds[file] < 0 || pwrite(fds[file], model + file * SIZE, SIZE, 0) != SIZE)
            die("make a file");
    }
    for (long turn = 0; !stop; turn++) {
        state += 0x9e3779b97f4a7c15u;
        int file = turn % files;
        long at = mix(state) % (SIZE - EACH);
        unsigned char *bytes = model + file * SIZE + at;
        memset(bytes, 1 + mix(state + turn) % 255, EACH);
        wrong += pwrite(fds[file], bytes, EACH, at) != EACH;
        at = mix(~state) % (SIZE - EACH);
        wrong += pread(fds[file], back, EACH, at) != EACH ||
                 memcmp(back, model + file * SIZE + at, EACH);
        writes++;
    }
    unsigned char *all = malloc(SIZE);
    for (int file = 0; file < files; file++) {
        wrong += pread(fds[file], all, SIZE, 0) != SIZE || memcmp(all, model + file * SIZE, SIZE);
        close(fds[file]);
    }
    left--;
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: crowd DIR THREADS FILES SECONDS\n");
        return 2;
    }
    directory = argv[1];
    threads = atoi(argv[2]);
    files = atoi(argv[3]);
    if (files > MOST_FILES)
        return 2;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 * 1024);
    left = threads;
    for (long thread = 0; thread < threads; thread++) {
        pthread_t unused;
        if (pthread_create(&unused, &small, work, (void *)thread))
            die("a thread");
    }
    go = 1;
    int seconds = atoi(argv[4]);
    long before = 0, idle = 0;
    /* All threads stuck for so long is a hang too: no need to wait for the end. */
    for (int tenth = 0; tenth < seconds * 10 && idle < PATIENCE * 10; tenth++) {
        struct timespec pause = {0, 100000000};
        nanosleep(&pause, NULL);
        idle = writes == before ? idle + 1 : 0;
        before = writes;
    }
    stop = 1;
    for (int tenth = 0; tenth < PATIENCE * 10 && left; tenth++) {
        struct timespec pause = {0, 100000000};
        nanosleep(&pause, NULL);
    }
    printf("{\"threads\":%d,\"files\":%d,\"writes\":%ld,\"wrong\":%ld,\"stuck\":%d}\n", threads,
           threads * files, (long)writes, (long)wrong, left);
    fflush(stdout);
    _exit(left || wrong ? 1 : 0);
}
