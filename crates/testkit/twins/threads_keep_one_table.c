/* A thread cannot get descriptors of its own: there is one table for the process, and one thread's
 * file would be taken for another's. A process of one thread goes on as it is, and so does one that
 * has only parted with its working directory. */
#include "twin.h"
#include <linux/close_range.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

static pthread_barrier_t meet;
static char stack[256 << 10] __attribute__((aligned(16)));
static int a, b;

static void wait_here(void)
{
    pthread_barrier_wait(&meet);
}

static void ask_all(const char *who)
{
    say("%s:", who);
    show("unshare", unshare(CLONE_FILES));
    show("unshare of more", unshare(CLONE_FS | CLONE_FILES));
    show("by number", syscall(SYS_unshare, CLONE_FILES));
    show("close_range", close_range(500, 600, CLOSE_RANGE_UNSHARE));
    show("close_range on exec", close_range(500, 600, CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC));
    show("close_range by number", syscall(SYS_close_range, 500, 600, CLOSE_RANGE_UNSHARE));
    show("close_range of nothing", close_range(9, 8, CLOSE_RANGE_UNSHARE));
}

static void *opens_a(void *unused)
{
    ask_all("a thread beside another");
    wait_here();
    a = make_file("a", 1, 5000);
    wait_here();
    wait_here();
    show("write", pwrite(a, MARKER " of the thread", 28, 4000));
    show("fsync", fsync(a));
    close(a);
    wait_here();
    return unused;
}

static void *goes_away(void *unused)
{
    wait_here();
    show("unshare(CLONE_FS)", unshare(CLONE_FS));
    show("chdir", chdir("/"));
    wait_here();
    wait_here();
    return unused;
}

static void *does_nothing(void *unused)
{
    return unused;
}

static int beside(void *unused)
{
    (void)unused;
    syscall(SYS_pause);
    return 0;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    struct stat st;
    start(argc, argv);
    pthread_barrier_init(&meet, NULL, 2);
    ask_all("alone");
    pthread_create(&thread, NULL, opens_a, NULL);
    wait_here();
    wait_here();
    b = make_file("b", 2, 5000);
    wait_here();
    wait_here();
    show("write", pwrite(b, MARKER " of main", 22, 4000));
    pthread_join(thread, NULL);
    close(b);
    show_file("a");
    show_file("b");

    for (int i = 0; i < 200; i++) {
        pthread_create(&thread, NULL, does_nothing, NULL);
        pthread_join(thread, NULL);
        if (unshare(CLONE_FILES) < 0)
            show("unshare after a thread has ended", -1);
    }
    pid_t pid = fork();
    if (pid == 0) {
        show("in a child", unshare(CLONE_FILES));
        _exit(0);
    }
    show_end("child", pid);

    pthread_create(&thread, NULL, goes_away, NULL);
    wait_here();
    wait_here();
    show("stat", stat("b", &st));
    say("size %ld", (long)st.st_size);
    close(make_file("c", 3, 100));
    show("stat", stat("c", &st));
    say("size %ld", (long)st.st_size);
    wait_here();
    pthread_join(thread, NULL);

    /* A process with our memory and descriptors is in no list of threads. */
    pid = clone(beside, stack + sizeof stack, CLONE_VM | CLONE_FILES | SIGCHLD, NULL);
    show("clone", pid > 0 ? 0 : -1);
    ask_all("beside another process");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return 0;
}
