/* Makes and grows files that begin with a 4096-byte header, until the power is cut.
 *
 * Three processes work on files of their own and one calls syncfs now and then, until a call fails,
 * which is the cut. Standard output says what was done: "made NAME", and "synced NAME SIZE" once
 * fsync has returned. The name tells how the file is written, KIND-WAY-PROCESS-NUMBER:
 *
 *   together  header and first data in one pwritev, then growth by 8192 bytes a write
 *   apart     header in one write, first data in the next, then the same growth
 *   reserved  as together, but grown by posix_fallocate before it is written, at any block
 *   sparse    as together, but grown by ftruncate before it is written, at any block
 *
 *   calm      flushed only by fsync of the file and by syncfs
 *   flushed   sync_file_range after some writes, of just the bytes written, as PostgreSQL's
 *             checkpoint_flush_after, bgwriter_flush_after and backend_flush_after have it
 *   guarded   as flushed, but sync_file_range of the header page comes before that of the data
 *
 * usage: headers DIRECTORY SEED
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HEADER = 4096, COPY = 256, SECOND_COPY = 512, BLOCK = 8192, BLOCKS = 16, OPEN = 24 };

struct file {
    int fd, kind, way, blocks, reserved;
    char name[64];
};

static const char *const kinds[] = {"together", "apart", "reserved", "sparse"};
static const char *const ways[] = {"calm", "flushed", "guarded"};
static unsigned char header[HEADER], data[BLOCK];
static unsigned state;

static unsigned any(unsigned below)
{
    state = state * 1664525u + 1013904223u;
    return (unsigned)(((unsigned long long)state * below) >> 32);
}

/* Every failure is the cut. */
static void must(int done)
{
    if (!done)
        _exit(errno == ENOSPC ? 3 : 0);
}

static void tell(const char *format, const struct file *f, long size)
{
    char line[128];
    int length = snprintf(line, sizeof line, format, f->name, size);
    must(write(1, line, length) == length);
}

static void write_block(struct file *f, int block)
{
    off_t at = HEADER + (off_t)block * BLOCK;
    must(pwrite(f->fd, data, BLOCK, at) == BLOCK);
    if (f->way == 0 || any(3) != 0)
        return;
    if (f->way == 2)
        must(sync_file_range(f->fd, 0, HEADER, SYNC_FILE_RANGE_WRITE) == 0);
    must(sync_file_range(f->fd, at, BLOCK, SYNC_FILE_RANGE_WRITE) == 0);
}

static void make(struct file *f, int process, int number)
{
    f->kind = any(4);
    f->way = any(3);
    f->blocks = f->reserved = 1;
    snprintf(f->name, sizeof f->name, "%s-%s-%d-%d", kinds[f->kind], ways[f->way], process,
             number);
    f->fd = open(f->name, O_RDWR | O_CREAT | O_EXCL, 0600);
    must(f->fd >= 0);
    if (f->kind == 1) {
        must(pwrite(f->fd, header, HEADER, 0) == HEADER);
        must(pwrite(f->fd, data, BLOCK, HEADER) == BLOCK);
    } else {
        struct iovec both[] = {{header, HEADER}, {data, BLOCK}};
        must(pwritev(f->fd, both, 2, 0) == HEADER + BLOCK);
    }
    tell("made %s\n", f, 0);
}

static void grow(struct file *f)
{
    if (f->blocks >= BLOCKS)
        return;
    if (f->kind < 2) {
        write_block(f, f->blocks++);
        return;
    }
    if (f->reserved == 1) {
        f->reserved = BLOCKS;
        off_t end = HEADER + (off_t)BLOCKS * BLOCK;
        must(f->kind == 2 ? posix_fallocate(f->fd, 0, end) == 0 : ftruncate(f->fd, end) == 0);
        return;
    }
    f->blocks++;
    write_block(f, 1 + any(BLOCKS - 1));
}

static void work(int process)
{
    struct file files[OPEN];
    for (int i = 0; i < OPEN; i++)
        files[i].fd = -1;
    for (int number = 0;; usleep(150)) {
        struct file *f = &files[any(OPEN)];
        unsigned act = any(32);
        if (f->fd < 0 || act < 3) {
            if (f->fd >= 0)
                close(f->fd);
            make(f, process, number++);
        } else if (act == 3) {
            off_t size = lseek(f->fd, 0, SEEK_END);
            must(fsync(f->fd) == 0);
            tell("synced %s %ld\n", f, (long)size);
        } else {
            grow(f);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 3 || chdir(argv[1]) != 0) {
        fprintf(stderr, "usage: headers DIRECTORY SEED\n");
        return 2;
    }
    memset(header, 0xa1, COPY);
    memset(header + SECOND_COPY, 0xb2, COPY);
    memset(data, 0xd3, sizeof data);
    for (int process = 0; process < 3; process++) {
        state = (unsigned)atoi(argv[2]) * 7919u + process * 104729u;
        if (fork() == 0)
            work(process);
    }
    state = (unsigned)atoi(argv[2]) * 31u + 17;
    int directory = open(".", O_RDONLY | O_DIRECTORY);
    for (;;) {
        usleep(100000 + any(400000));
        if (syncfs(directory) != 0)
            break;
    }
    int status, code = 0;
    while (wait(&status) > 0)
        if (status != 0)
            code = 3;
    return code;
}
