/* The differential model's words: operations, who does them, and the memory that all processes
 * share.
 *
 * Decides nothing: draw.h makes operations, act.h carries them out, shadow.h judges.
 */
#ifndef PLAN_H
#define PLAN_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { UNIT = 4096, BLOCK = 16, AREA = 65536 };
/* No file ends behind LIMIT, no call has more than LONGEST bytes. */
enum { LIMIT = 3 * AREA + 2 * UNIT, LONGEST = 3 * UNIT + 64 };
enum { PROCESSES = 3, THREADS = 3, WORKERS = PROCESSES * THREADS };
/* Two files of each class: paged, log, bytes. Each has two names, of which one is there. */
enum { FILES = 6, NAMES = 2 };
/* Open file descriptions of a file, by their flags; each is one for all processes or one a process.
 */
enum { ORDINARY, APPENDING, DATA_SYNCED, SYNCED, FLAVOURS, DESCRIPTIONS = FLAVOURS * PROCESSES };
/* Operations of one worker and of one file in a round; and questions for offsets after it, one a
 * description. */
enum { EACH = 2, MOST = 5, ASKED = MOST, TOGETHER = MOST + ASKED };

enum kind {
    WRITE, PWRITE, WRITEV, PWRITEV,         /* bytes */
    READ, PREAD, READV, PREADV,
    SEEK, FSTAT, STAT,                      /* offsets and sizes */
    FTRUNCATE, TRUNCATE, OPEN_TRUNC,        /* cuts and growth */
    ALLOCATE, KEEP_SIZE, PUNCH,
    RENAME, REOPEN,
};

/* Through which descriptor: the worker's, a duplicate made for it, or that of a forked child. */
enum by { ITSELF, DUPLICATE, CHILD };

struct op {
    int kind, by, file, flavour, name, whence, worker;
    int asks;          /* only where an offset stands, after the round */
    int zeros;         /* writes zeros, as servers do */
    unsigned number;   /* decides the bytes */
    unsigned delay;    /* turns between the barrier and the call */
    unsigned residue;  /* the buffer's address modulo 64 */
    long at, len;
    /* What became of it. */
    _Atomic int stage; /* 0 not begun, 1 called, 2 returned */
    int error;
    long result;
    uint64_t start, end;
};

struct slot {
    _Atomic uint32_t go; /* a worker sleeps on it */
    int first, count;    /* what it shall do now */
    int turn;            /* on which processor */
    struct op ops[EACH + ASKED];
    unsigned char room[EACH][LONGEST + 64] __attribute__((aligned(64)));
};

struct shared {
    _Atomic uint32_t opened;       /* processes that have opened their files */
    _Atomic uint32_t left;         /* workers that have not ended; the one who draws sleeps on it */
    _Atomic uint32_t ready, wanted;
    _Atomic int over;
    struct slot slots[WORKERS];
};

static struct shared *shared;
static const char *directory;
/* Of each flavour: open to all by a fork, or opened by each process for itself. */
static int inherited[FLAVOURS];
/* This process's descriptors. */
static int fds[FILES][FLAVOURS];

static void die(const char *what)
{
    fprintf(stderr, "differential: %s: %s\n", what, strerror(errno));
    exit(2);
}

static uint64_t now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000ull + at.tv_nsec;
}

static long doze(_Atomic uint32_t *word, uint32_t seen, long ns)
{
    struct timespec at = {ns / 1000000000, ns % 1000000000};
    return syscall(SYS_futex, word, FUTEX_WAIT, seen, &at, NULL, 0);
}

static void wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* What this operation writes: no byte is zero, unless all of them are. */
static void fill(const struct op *op, unsigned char *to)
{
    uint64_t first = mix(op->number) >> 8;
    for (long i = 0; i < op->len; i++)
        to[i] = op->zeros ? 0 : 1 + (first + i * 7 + i / 251) % 255;
}

static int is_write(const struct op *op) { return op->kind <= PWRITEV; }
static int is_read(const struct op *op) { return op->kind >= READ && op->kind <= PREADV; }
/* Uses and moves the offset. */
static int is_offset(const struct op *op)
{
    return op->kind == WRITE || op->kind == WRITEV || op->kind == READ || op->kind == READV ||
           op->kind == SEEK;
}
static int is_append(const struct op *op)
{
    return is_write(op) && (op->flavour == APPENDING || op->flavour == SYNCED);
}
static int has_path(const struct op *op)
{
    return op->kind == STAT || op->kind == TRUNCATE || op->kind == OPEN_TRUNC;
}

static int flags_of(int flavour)
{
    static const int flags[] = {0, O_APPEND, O_DSYNC, O_APPEND | O_SYNC};
    return O_RDWR | flags[flavour];
}

/* Which description the operation goes through. */
static int description(const struct op *op)
{
    int process = inherited[op->flavour] ? 0 : op->worker / THREADS;
    return op->flavour * PROCESSES + process;
}

static const char *class_of(int file)
{
    static const char *names[] = {"paged", "log", "bytes"};
    return names[file / 2];
}

static const char *path_of(int file, int name)
{
    static _Thread_local char path[4096];
    static const char *forms[] = {"%s/base/1/1638%d", "%s/pg_wal/00000001000000000000000%d",
                                  "%s/loose/file%d"};
    snprintf(path, sizeof path, forms[file / 2], directory, file % 2 * NAMES + name);
    return path;
}
#endif
