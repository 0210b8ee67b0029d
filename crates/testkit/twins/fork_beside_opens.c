/* Threads open and close files while another forks: what a child opens then is its own, and what
 * was open before is what it was. */
#include "twin.h"
#include <pthread.h>
#include <sys/socket.h>

enum { THREADS = 3, FORKS = 300 };

static volatile int over;
static int bad[THREADS];

static void *work(void *arg)
{
    long t = (long)arg;
    char name[20], text[100], back[100];
    snprintf(name, sizeof name, "of-%ld", t);
    fill(text, sizeof text, 50 + t, 0);
    while (!over) {
        int fd = open(name, O_RDWR | O_CREAT, 0644);
        bad[t] += pwrite(fd, text, sizeof text, 0) != sizeof text;
        int copy = dup(fd);
        close(fd);
        bad[t] += pread(copy, back, sizeof back, 0) != sizeof back;
        bad[t] += memcmp(text, back, sizeof back) != 0;
        close(copy);
    }
    return NULL;
}

/* How many of its calls do not what they should. */
static int in_child(int before)
{
    int wrong = 0, ends[2];
    char byte = 0, text[1000], back[1000];
    for (int i = 0; i < 4; i++) {
        wrong += i % 2 ? pipe(ends) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
        wrong += write(ends[1], "x", 1) != 1 || read(ends[0], &byte, 1) != 1 || byte != 'x';
    }
    fill(text, sizeof text, 1, 0);
    wrong += pread(before, back, sizeof back, 0) != sizeof back || memcmp(text, back, sizeof back);
    return wrong;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    int wrong = 0, status;
    start(argc, argv);
    int before = make_file("before", 1, 10000);
    for (long t = 0; t < THREADS; t++)
        pthread_create(&threads[t], NULL, work, (void *)t);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(in_child(before));
        wrong += waitpid(child, &status, 0) != child || status != 0;
    }
    over = 1;
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        say("thread %d: %d bad", t, bad[t]);
    }
    say("%d children went wrong", wrong);
    show_file("before");
    show_file("of-0");
    return 0;
}
