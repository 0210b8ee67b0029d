/* Eight threads write and read pages and sectors of one file with O_DIRECT, through a descriptor
 * that they share and others that they open for a moment, beside reads of all of it, directly and
 * through the page cache. Every fsync succeeds: no page was dirty where another call wrote
 * directly.
 */
#include "twin.h"
#include <pthread.h>

enum { THREADS = 8, ROUNDS = 60, PAGE = 4096, PAGES = 4, PART = PAGES * PAGE };

static int shared, bad[THREADS];

static void *work(void *arg)
{
    long t = (long)arg;
    uint64_t random = 99 + t;
    char *text, *back;
    if (posix_memalign((void **)&text, PAGE, PART) ||
        posix_memalign((void **)&back, PAGE, PART * THREADS))
        return NULL;
    for (int i = 0; i < ROUNDS; i++) {
        int own = open("pages", O_RDWR | O_DIRECT);
        int fd = i & 1 ? shared : own;
        /* A sector of the first page, or some whole pages behind it. */
        long unit = i & 4 ? 512 : PAGE;
        long from = i & 4 ? next_random(&random, 8) * unit
                          : (1 + next_random(&random, PAGES - 1)) * unit;
        long at = t * PART + from;
        fill(text, unit, 3 + i, at);
        bad[t] += pwrite(fd, text, unit, at) != unit;
        bad[t] += pread(own, back, unit, at) != unit || memcmp(text, back, unit);
        if (i % 8 == 0) {
            int cached = open("pages", O_RDONLY);
            bad[t] += pread(cached, back, PART * THREADS, 0) != PART * THREADS;
            bad[t] += memcmp(back + at, text, unit) != 0;
            close(cached);
            bad[t] += pread(shared, back, PART * THREADS, 0) != PART * THREADS;
            bad[t] += memcmp(back + at, text, unit) != 0;
        }
        bad[t] += fsync(own) != 0;
        close(own);
    }
    /* The last word: the whole part, so that the end is the same in every run. */
    fill(text, PART, 1, t * PART);
    bad[t] += pwrite(shared, text, PART, t * PART) != PART;
    free(text);
    free(back);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    char *all;
    start(argc, argv);
    if (posix_memalign((void **)&all, PAGE, PART * THREADS))
        return 1;
    shared = open("pages", O_RDWR | O_CREAT | O_DIRECT, 0644);
    fill(all, PART * THREADS, 2, 0);
    show("write", write(shared, all, PART * THREADS));
    for (long t = 0; t < THREADS; t++)
        pthread_create(&threads[t], NULL, work, (void *)t);
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        say("thread %d: %d bad", t, bad[t]);
    }
    show("fsync", fsync(shared));
    show_file("pages");
    return 0;
}
