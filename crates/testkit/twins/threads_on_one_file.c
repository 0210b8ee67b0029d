/* Eight threads write and read disjoint parts of one file that share 16-byte blocks and units,
 * through one descriptor and through their own; eight append through one; some stat and extend
 * meanwhile.
 * */
#include "twin.h"
#include <pthread.h>

enum { THREADS = 8, ROUNDS = 120, PART = 5003 };

static int shared, log_fd, bad[THREADS];

static void *work(void *arg)
{
    long t = (long)arg;
    uint64_t random = 77 + t;
    char text[PART], back[PART];
    int own = open("parts", O_RDWR);
    for (int i = 0; i < ROUNDS; i++) {
        long from = next_random(&random, PART), n = 1 + next_random(&random, PART - from);
        long at = t * PART + from;
        fill(text, n, 1, at);
        bad[t] += pwrite(i & 1 ? shared : own, text, n, at) != n;
        bad[t] += pread(i & 2 ? shared : own, back, n, at) != n || memcmp(text, back, n);
        struct stat st;
        bad[t] += fstat(shared, &st) != 0 || st.st_size < at + n;
        if (i % 3 == 0) {
            char line[80];
            int length = snprintf(line, sizeof line, MARKER " thread %ld line %d\n", t, i);
            bad[t] += write(log_fd, line, length) != length;
        }
    }
    /* The last word: the whole part, so that the end is the same in every run. */
    fill(text, PART, 1, t * PART);
    bad[t] += pwrite(own, text, PART, t * PART) != PART;
    close(own);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    start(argc, argv);
    shared = open("parts", O_RDWR | O_CREAT, 0644);
    log_fd = open("log.unordered", O_WRONLY | O_CREAT | O_APPEND, 0644);
    for (long t = 0; t < THREADS; t++)
        pthread_create(&threads[t], NULL, work, (void *)t);
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        say("thread %d: %d bad", t, bad[t]);
    }
    show_file("parts");
    show_size("log", log_fd);
    return 0;
}
