/* A child of clone with memory of its own shares offsets as one of fork does, though libc runs no
 * handlers for it: no record may be lost or written over. */
#include "twin.h"
#include <sched.h>
#include <signal.h>

enum { RECORDS = 2000, LENGTH = 33 };

static int shared;
static char stack[512 << 10] __attribute__((aligned(16)));

static void write_records(char mark)
{
    char record[LENGTH];
    memset(record, mark, sizeof record);
    for (int i = 0; i < RECORDS; i++)
        if (write(shared, record, sizeof record) != sizeof record)
            _exit(1);
}

static int child(void *mark)
{
    write_records(*(char *)mark);
    return 0;
}

int main(int argc, char **argv)
{
    static char back[2 * RECORDS * LENGTH], mark = 'c';
    start(argc, argv);
    shared = open("shared", O_RDWR | O_CREAT, 0600);
    pid_t pid = clone(child, stack + sizeof stack, SIGCHLD, &mark);
    show("clone", pid > 0);
    write_records('p');
    show_end("child", pid);
    show("pread", pread(shared, back, sizeof back, 0));
    int of_child = 0, of_parent = 0, torn = 0;
    for (int at = 0; at < (int)sizeof back; at += LENGTH) {
        for (int i = 1; i < LENGTH; i++)
            torn += back[at + i] != back[at];
        of_child += back[at] == 'c';
        of_parent += back[at] == 'p';
    }
    say("records of the child %d, of the parent %d, torn %d", of_child, of_parent, torn);
    /* The order of the records is not the same in two runs. */
    show("unlink", unlink("shared"));
    return 0;
}
