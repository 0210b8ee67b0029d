/* Carries operations out, by libc's functions, as an ordinary program would; and the workers' life.
 *
 * Knows nothing of what is right. `--spoil` makes it do one thing wrongly, as a library that is not
 * careful would: the harness so proves on a plain directory that the shadow sees it.
 */
#ifndef ACT_H
#define ACT_H
#include "plan.h"

static const char *spoiled = "";

static int spoil(const char *what) { return strcmp(spoiled, what) == 0; }

static void spin(unsigned turns)
{
    for (unsigned turn = 0; turn < turns; turn++)
        __asm__ volatile("pause" ::: "memory");
}

/* A write as by a cipher of whole units that takes no lock. */
static long write_units(int fd, const unsigned char *from, long len, long at)
{
    static _Thread_local unsigned char image[LONGEST + 2 * UNIT];
    struct stat st;
    long first = at - at % UNIT, last = (at + len + UNIT - 1) / UNIT * UNIT;
    if (len == 0 || fstat(fd, &st) < 0)
        return len;
    memset(image, 0, last - first);
    if (pread(fd, image, last - first, first) < 0)
        return -1;
    memcpy(image + (at - first), from, len);
    long end = at + len > st.st_size ? at + len : st.st_size < last ? st.st_size : last;
    return pwrite(fd, image, end - first, first) < 0 ? -1 : len;
}

/* The end goes to where this writer believes it, as if the size were told by a cut behind a write.
 */
static long write_then_cut(int fd, const unsigned char *from, long len, long at)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -1;
    long done = pwrite(fd, from, len, at), end = at + len;
    return end > st.st_size && len > 0 && ftruncate(fd, end) < 0 ? -1 : done;
}

static long seek_by_two(int fd, long at)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || lseek(fd, UNIT, SEEK_END) < 0)
        return -1;
    return lseek(fd, st.st_size + at, SEEK_SET);
}

/* The size is what this process saw last, if that was more. */
static long read_by_memory(int fd, const struct op *op, unsigned char *into)
{
    static _Atomic long sizes[FILES];
    long done = pread(fd, into, op->len, op->at), known = sizes[op->file];
    if (done < 0)
        return done;
    if (op->at + done > known)
        sizes[op->file] = op->at + done;
    long left = known - op->at < op->len ? known - op->at : op->len;
    if (left > done) {
        memset(into + done, 0, left - done);
        done = left;
    }
    return done;
}

static long write_bytes(int fd, const struct op *op, const unsigned char *from)
{
    long a = op->len / 3, b = op->len / 2;
    struct iovec parts[3] = {{(void *)from, a}, {(void *)(from + a), b},
                             {(void *)(from + a + b), op->len - a - b}};
    if (is_append(op) && spoil("append")) {
        struct stat st;
        if (fstat(fd, &st) < 0)
            return -1;
        long done = pwrite(fds[op->file][ORDINARY], from, op->len, st.st_size);
        if (is_offset(op) && op->len > 0)
            lseek(fd, st.st_size + op->len, SEEK_SET);
        return done;
    }
    switch (op->kind) {
    case WRITE:
        return write(fd, from, op->len);
    case WRITEV:
        return writev(fd, parts, 3);
    case PWRITEV:
        return pwritev(fd, parts, 3, op->at);
    }
    if (!is_append(op) && spoil("units"))
        return write_units(fd, from, op->len, op->at);
    if (!is_append(op) && spoil("cut"))
        return write_then_cut(fd, from, op->len, op->at);
    return pwrite(fd, from, op->len, op->at);
}

static long read_bytes(int fd, const struct op *op, unsigned char *into)
{
    long a = op->len / 4;
    struct iovec parts[2] = {{into, a}, {into + a, op->len - a}};
    switch (op->kind) {
    case READ:
        return read(fd, into, op->len);
    case READV:
        return readv(fd, parts, 2);
    case PREADV:
        return preadv(fd, parts, 2, op->at);
    }
    return spoil("stale") ? read_by_memory(fd, op, into) : pread(fd, into, op->len, op->at);
}

static long call(int fd, struct op *op, unsigned char *room)
{
    struct stat st;
    if (is_write(op))
        return write_bytes(fd, op, room);
    if (is_read(op))
        return read_bytes(fd, op, room);
    switch (op->kind) {
    case SEEK:
        if (op->whence == SEEK_END && spoil("end"))
            return seek_by_two(fd, op->at);
        return lseek(fd, op->at, op->whence);
    case FSTAT:
        return fstat(fd, &st) < 0 ? -1 : st.st_size;
    case STAT:
        return stat(path_of(op->file, op->name), &st) < 0 ? -1 : st.st_size;
    case FTRUNCATE:
        return ftruncate(fd, op->at);
    case TRUNCATE:
        return truncate(path_of(op->file, op->name), op->at);
    case OPEN_TRUNC: {
        int other = open(path_of(op->file, op->name), O_RDWR | O_TRUNC);
        return other < 0 ? -1 : close(other);
    }
    case ALLOCATE:
        return fallocate(fd, 0, op->at, op->len);
    case KEEP_SIZE:
        return fallocate(fd, FALLOC_FL_KEEP_SIZE, op->at, op->len);
    case PUNCH:
        return fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, op->at, op->len);
    case RENAME: {
        char from[4096];
        snprintf(from, sizeof from, "%s", path_of(op->file, !op->name));
        return rename(from, path_of(op->file, op->name));
    }
    case REOPEN:
        if (close(fd) < 0)
            return -1;
        fds[op->file][op->flavour] = open(path_of(op->file, op->name), flags_of(op->flavour));
        return fds[op->file][op->flavour] < 0 ? -1 : 0;
    }
    return -1;
}

static void timed(int fd, struct op *op, unsigned char *room)
{
    spin(op->delay);
    atomic_store(&op->stage, 1);
    op->start = now();
    errno = 0;
    long result = call(fd, op, room);
    op->error = result < 0 ? errno : 0;
    op->end = now();
    op->result = result;
    atomic_store(&op->stage, 2);
}

static void act(struct op *op, unsigned char *room)
{
    int fd = fds[op->file][op->flavour];
    room += op->residue;
    if (op->by == DUPLICATE) {
        int copy = dup(fd);
        timed(copy, op, room);
        close(copy);
    } else if (op->by == CHILD) {
        pid_t child = fork();
        if (child == 0) {
            timed(fd, op, room);
            _exit(0);
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            die("a forked child");
    } else {
        timed(fd, op, room);
    }
}

/* Two that wait for each other on one processor never overlap. */
static void go_to(int turn)
{
    static cpu_set_t all;
    static _Thread_local int last = -1;
    cpu_set_t one;
    if (CPU_COUNT(&all) == 0)
        sched_getaffinity(0, sizeof all, &all);
    int cpu = 0;
    for (int skip = turn % CPU_COUNT(&all); skip >= 0; cpu++)
        skip -= CPU_ISSET(cpu, &all) != 0;
    CPU_ZERO(&one);
    CPU_SET(cpu - 1, &one);
    if (last != cpu)
        sched_setaffinity(0, sizeof one, &one);
    last = cpu;
}

/* Those of a round begin together: they sleep until they are called, and then wait for each other
 * awake. */
static void *work(void *argument)
{
    int self = (int)(long)argument;
    struct slot *slot = &shared->slots[self];
    for (uint32_t round = 0;;) {
        while (atomic_load(&slot->go) == round && !shared->over)
            doze(&slot->go, round, 100000000);
        if (shared->over)
            return NULL;
        round = atomic_load(&slot->go);
        int first = slot->first, behind = first + slot->count;
        for (int i = first; i < behind; i++)
            if (is_write(&slot->ops[i]))
                fill(&slot->ops[i], slot->room[i] + slot->ops[i].residue);
        go_to(slot->turn);
        atomic_fetch_add(&shared->ready, 1);
        for (unsigned turn = 0; atomic_load(&shared->ready) < shared->wanted; turn++) {
            spin(1);
            if (turn % 2000 == 1999)
                sched_yield();
        }
        for (int i = first; i < behind; i++)
            act(&slot->ops[i], slot->room[i < EACH ? i : 0]);
        if (atomic_fetch_sub(&shared->left, 1) == 1)
            wake(&shared->left);
    }
}

static void open_flavour(int flavour)
{
    for (int file = 0; file < FILES; file++) {
        fds[file][flavour] = open(path_of(file, 0), flags_of(flavour));
        if (fds[file][flavour] < 0)
            die("open");
    }
}

static void work_as_process(int process)
{
    pthread_t threads[THREADS];
    for (int flavour = 0; flavour < FLAVOURS; flavour++)
        if (!inherited[flavour])
            open_flavour(flavour);
    atomic_fetch_add(&shared->opened, 1);
    wake(&shared->opened);
    for (long thread = 0; thread < THREADS; thread++)
        if (pthread_create(&threads[thread], NULL, work, (void *)(process * THREADS + thread)))
            die("a thread");
    for (int thread = 0; thread < THREADS; thread++)
        pthread_join(threads[thread], NULL);
    _exit(0);
}
#endif
