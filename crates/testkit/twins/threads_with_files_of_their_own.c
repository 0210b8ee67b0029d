/* Eight threads open, write, read, rename and close files of their own, as fast as they can. */
#include "twin.h"
#include <pthread.h>

enum { THREADS = 8, ROUNDS = 60 };

static int bad[THREADS];

static void *work(void *arg)
{
    long t = (long)arg;
    uint64_t random = 1000 + t;
    char name[40], moved[40], text[9000], back[9000];
    for (int i = 0; i < ROUNDS; i++) {
        snprintf(name, sizeof name, "t%ld-%d", t, i % 5);
        snprintf(moved, sizeof moved, "t%ld-moved", t);
        int fd = open(name, O_RDWR | O_CREAT | (i % 7 ? 0 : O_TRUNC), 0644);
        unsigned n = 1 + next_random(&random, sizeof text), at = next_random(&random, 20000);
        fill(text, n, t * 100 + i, at);
        bad[t] += pwrite(fd, text, n, at) != n;
        int copy = dup(fd);
        close(fd);
        bad[t] += pread(copy, back, n, at) != n || memcmp(text, back, n);
        struct stat st;
        bad[t] += fstat(copy, &st) != 0 || st.st_size < at + n;
        if (i % 11 == 3)
            bad[t] += ftruncate(copy, at + n / 2) != 0;
        close(copy);
        FILE *file = fopen(name, "r");
        bad[t] += !file || fseek(file, at, SEEK_SET) || fread(back, 1, n / 2, file) != n / 2 ||
                  memcmp(text, back, n / 2);
        if (file)
            fclose(file);
        if (i % 13 == 5)
            bad[t] += rename(name, moved) != 0;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    start(argc, argv);
    for (long t = 0; t < THREADS; t++)
        pthread_create(&threads[t], NULL, work, (void *)t);
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        say("thread %d: %d bad", t, bad[t]);
    }
    for (int t = 0; t < THREADS; t++) {
        char name[40];
        snprintf(name, sizeof name, "t%d-0", t);
        show_file(name);
        snprintf(name, sizeof name, "t%d-moved", t);
        show_file(name);
    }
    return 0;
}
