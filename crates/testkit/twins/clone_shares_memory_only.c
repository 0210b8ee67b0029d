/* A child of clone with the memory of its parent and descriptors of its own. One that is waited for
 * is as one of vfork: what it closes and opens stays its own. One that runs beside its parent is
 * refused. */
#include "twin.h"
#include <sched.h>
#include <signal.h>

static int kept;
static char stack[512 << 10] __attribute__((aligned(16)));

static int waited_for(void *unused)
{
    (void)unused;
    close(kept);
    int other = open("other", O_RDWR | O_CREAT, 0600);
    if (other != kept)
        return 1;
    return write(other, MARKER " child", 19) == 19 ? 7 : 2;
}

static int beside(void *unused)
{
    (void)unused;
    return 5;
}

int main(int argc, char **argv)
{
    char back[100];
    start(argc, argv);
    kept = make_file("kept", 1, 5000);
    pid_t pid = clone(waited_for, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
    show("clone", pid > 0);
    show_end("waited for", pid);
    show_read("pread", pread(kept, back, 40, 4090), back);
    show("pwrite", pwrite(kept, MARKER " parent", 20, 4990));
    int next = open("other", O_RDONLY);
    show("another descriptor", next != kept);
    close(next);
    show_file("kept");
    show_file("other");

    pid = clone(beside, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    show("clone beside", pid > 0 ? 0 : -1);
    if (pid > 0)
        show_end("beside", pid);
    show("pwrite", pwrite(kept, MARKER " after", 19, 0));
    show_file("kept");
    return 0;
}
