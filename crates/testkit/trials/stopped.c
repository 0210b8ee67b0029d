/* A writer that is stopped in the middle of its write, and others who meet it: readers and writers
 * of the same unit.
 *
 * The writer is a process of its own; this one traces it and stops it where it enters the system
 * call that writes, for so long that nobody could call it slow. Then it goes on, or it is killed.
 * Meanwhile another process reads or writes. A library that seals must make the other wait as long
 * as the writer lives, however long that is, and no longer.
 *
 * usage: stopped FILE WHAT read|write go|kill MILLISECONDS [LINK]
 *   WHAT        what the writer writes:
 *     units       one whole unit
 *     odd         100 bytes within it
 *     request     one whole unit by a request of libaio, stopped when it hands that in
 *     unfetched   the same, stopped when it is about to fetch the event
 *   LINK        another name of a file that the writer opens and closes before
 * One line of JSON: how long the other waited while the writer was stopped, how long after that,
 * its processor time, and whose bytes stand there: "old", "new" (the writer's), "own" (the other's)
 * or "wrong".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <linux/aio_abi.h>
#include <linux/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { UNIT = 4096, UNITS = 4, AT = UNIT, ODD_AT = AT + 1000, ODD = 100, OTHER_AT = AT + 2000 };

struct shared {
    _Atomic int called, returned;
    uint64_t start, end;
    long cpu_ms, result;
    unsigned char bytes[UNIT];
};

static struct shared *shared;

static void die(const char *what)
{
    fprintf(stderr, "stopped: %s: %s\n", what, strerror(errno));
    exit(2);
}

static uint64_t now_ms(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

static void pause_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void write_as(int fd, int odd, int byte, long odd_at)
{
    static unsigned char unit[UNIT] __attribute__((aligned(UNIT)));
    memset(unit, byte, UNIT);
    long len = odd ? ODD : UNIT, at = odd ? odd_at : AT;
    if (pwrite(fd, unit, len, at) != len)
        die("write");
}

/* The unit by a request of its own. */
static void request_as(int fd, aio_context_t context, int byte)
{
    static unsigned char unit[UNIT] __attribute__((aligned(UNIT)));
    memset(unit, byte, UNIT);
    struct iocb request = {.aio_fildes = fd, .aio_lio_opcode = IOCB_CMD_PWRITE,
                           .aio_buf = (uintptr_t)unit, .aio_nbytes = UNIT, .aio_offset = AT};
    struct iocb *list[] = {&request};
    struct io_event event;
    if (syscall(SYS_io_submit, context, 1, list) != 1 ||
        syscall(SYS_io_getevents, context, 1, 1, &event, NULL) != 1 || event.res != UNIT)
        die("request");
}

static pid_t start_writer(const char *file, const char *what, const char *link)
{
    pid_t writer = fork();
    if (writer != 0)
        return writer;
    int odd = !strcmp(what, "odd"), requests = strcmp(what, "units") && !odd;
    int fd = open(file, O_RDWR | (requests ? O_DIRECT : 0));
    aio_context_t context = 0;
    if (requests && syscall(SYS_io_setup, 4, &context))
        die("io_setup");
    /* Once without being stopped: what a process does at its first write is done. */
    write_as(fd, odd, 'o', ODD_AT);
    write_as(fd, 1, 'o', ODD_AT);
    int other = link ? open(link, O_RDONLY) : -1;
    if (fd < 0 || (link && (other < 0 || close(other) < 0)))
        die("open in the writer");
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) < 0)
        die("ptrace");
    raise(SIGSTOP);
    if (requests)
        request_as(fd, context, 'n');
    else
        write_as(fd, odd, 'n', ODD_AT);
    _exit(0);
}

static int writes_bytes(long number, const char *what)
{
    if (!strcmp(what, "request"))
        return number == SYS_io_submit;
    if (!strcmp(what, "unfetched"))
        return number == SYS_io_getevents;
    return number == SYS_pwrite64 || number == SYS_pwritev || number == SYS_pwritev2 ||
           number == SYS_write || number == SYS_writev;
}

/* Lets the writer run until it enters the call that writes, or that fetches what is done. */
static void stop_in_write(pid_t writer, const char *what)
{
    int status;
    if (waitpid(writer, &status, 0) != writer || !WIFSTOPPED(status))
        die("the writer does not stop");
    ptrace(PTRACE_SETOPTIONS, writer, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
    for (;;) {
        struct ptrace_syscall_info info;
        if (ptrace(PTRACE_SYSCALL, writer, 0, 0) < 0 || waitpid(writer, &status, 0) != writer ||
            !WIFSTOPPED(status))
            die("the writer ended without a write");
        if (ptrace(PTRACE_GET_SYSCALL_INFO, writer, sizeof info, &info) > 0 &&
            info.op == PTRACE_SYSCALL_INFO_ENTRY && writes_bytes(info.entry.nr, what))
            return;
    }
}

static pid_t start_other(const char *file, int writes)
{
    pid_t other = fork();
    if (other != 0)
        return other;
    static unsigned char unit[UNIT] __attribute__((aligned(UNIT)));
    int fd = open(file, O_RDWR);
    if (fd < 0)
        die("open in the other");
    struct rusage use;
    shared->start = now_ms();
    shared->called = 1;
    if (writes)
        write_as(fd, 1, 'w', OTHER_AT);
    else
        shared->result = pread(fd, unit, UNIT, AT);
    shared->end = now_ms();
    getrusage(RUSAGE_SELF, &use);
    shared->cpu_ms = (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000 +
                     (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1000;
    memcpy(shared->bytes, unit, UNIT);
    shared->returned = 1;
    _exit(0);
}

static const char *whose(const unsigned char *bytes, int odd)
{
    long from = odd ? ODD_AT - AT : 0, to = odd ? from + ODD : UNIT;
    unsigned char expected[UNIT];
    for (const char *byte = "on"; *byte; byte++) {
        memset(expected, 'o', UNIT);
        memset(expected + from, *byte, to - from);
        if (memcmp(expected, bytes, UNIT) == 0)
            return *byte == 'o' ? "old" : "new";
        memset(expected + (OTHER_AT - AT), 'w', ODD);
        if (memcmp(expected, bytes, UNIT) == 0)
            return *byte == 'o' ? "own" : "new and own";
    }
    return "wrong";
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: stopped FILE WHAT read|write go|kill MILLISECONDS [LINK]\n");
        return 2;
    }
    int odd = !strcmp(argv[2], "odd"), writes = !strcmp(argv[3], "write"),
        kills = !strcmp(argv[4], "kill");
    long stop = atol(argv[5]);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        die("mmap");
    static unsigned char all[UNITS * UNIT];
    memset(all, 'o', sizeof all);
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || pwrite(fd, all, sizeof all, 0) != sizeof all)
        die("make the file");
    pid_t writer = start_writer(argv[1], argv[2], argc > 6 ? argv[6] : NULL);
    stop_in_write(writer, argv[2]);
    pid_t other = start_other(argv[1], writes);
    while (!shared->called)
        pause_ms(1);
    for (long waited = 0; waited < stop && !shared->returned; waited += 10)
        pause_ms(10);
    int early = shared->returned;
    uint64_t released = now_ms();
    if (kills)
        kill(writer, SIGKILL);
    else
        ptrace(PTRACE_DETACH, writer, 0, 0);
    /* The other must not need us to bury the writer. */
    for (long waited = 0; waited < 20000 && !shared->returned; waited += 10)
        pause_ms(10);
    int hangs = !shared->returned;
    if (hangs)
        kill(other, SIGKILL);
    if (kills && early)
        kill(writer, SIGKILL);
    int status;
    waitpid(writer, &status, 0);
    waitpid(other, &status, 0);
    static unsigned char now_there[UNIT];
    if (!hangs && pread(fd, now_there, UNIT, AT) != UNIT)
        die("read afterwards");
    printf("{\"early\":%s,\"hangs\":%s,\"waited_ms\":%ld,\"after_ms\":%ld,\"cpu_ms\":%ld,"
           "\"read\":\"%s\",\"there\":\"%s\"}\n",
           early ? "true" : "false", hangs ? "true" : "false",
           hangs ? -1 : (long)(shared->end - shared->start),
           hangs || early ? -1 : (long)(shared->end - released), shared->cpu_ms,
           writes || hangs ? "nothing" : whose(shared->bytes, odd),
           hangs ? "unknown" : whose(now_there, odd));
    return 0;
}
