/* Are 16-byte blocks atomic between one writer and one reader of the same range of a file?
 *
 * The parent writes, the child reads, both through the page cache with one call each, as fast as
 * they can. Every 16-byte block that the writer hands over holds one 64-bit counter twice. A block
 * whose halves differ was seen half old and half new. Nothing here knows of encryption; under a
 * cipher with 16-byte blocks such a block decrypts to 16 bytes that nobody ever wrote.
 *
 * usage: torn FILE FILE_OFFSET SIZE WRITER READER MILLISECONDS
 * A residue is the address of the buffer modulo 64. "map" in its place takes no system call but one
 * aligned 16-byte load or store a block through a shared map, which is atomic on every CPU with
 * AVX: so the tearing of the other side stands alone. One line of JSON on standard output.
 */
#define _GNU_SOURCE
#include <emmintrin.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct tally {
    _Atomic int stop;
    uint64_t writes, reads, changed_reads, torn_reads, torn_blocks, first, last; /* in a page */
};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* Two sides on one CPU would only meet where the scheduler stops one of them. */
static void stay_on_cpu(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        die("torn: two CPUs are needed: sched_setaffinity");
}

static unsigned char *buffer(size_t size, size_t residue)
{
    unsigned char *at = mmap(NULL, size + 8192, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at == MAP_FAILED)
        die("mmap");
    return at + 4096 + residue;
}

static void fill(unsigned char *at, size_t size, uint64_t counter)
{
    for (size_t i = 0; i < size; i += 8)
        memcpy(at + i, &counter, 8);
}

static uint64_t load(const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

/* One side of the file: a buffer, and the map that replaces the system call if there is one. */
struct side {
    int fd;
    off_t offset;
    size_t size;
    unsigned char *at;
    unsigned char *map;
};

static struct side side(const char *path, off_t offset, size_t size, const char *how)
{
    struct side s = {open(path, O_RDWR | O_CREAT, 0600), offset, size, NULL, NULL};
    int map = strcmp(how, "map") == 0;
    size_t residue = map ? 0 : strtoul(how, NULL, 10);
    if (s.fd < 0)
        die("open");
    if (residue > 63) {
        fprintf(stderr, "torn: a residue is below 64\n");
        exit(2);
    }
    s.at = buffer(size, residue);
    if (map) {
        s.map = mmap(NULL, offset + size, PROT_READ | PROT_WRITE, MAP_SHARED, s.fd, 0);
        if (s.map == MAP_FAILED)
            die("mmap of the file");
        s.map += offset;
    }
    return s;
}

static void take(const struct side *s)
{
    if (s->map)
        for (size_t i = 0; i < s->size; i += 16)
            _mm_store_si128((__m128i *)(s->at + i), *(volatile __m128i *)(s->map + i));
    else if (pread(s->fd, s->at, s->size, s->offset) != (ssize_t)s->size)
        die("pread");
}

static void put(const struct side *s)
{
    if (s->map)
        for (size_t i = 0; i < s->size; i += 16)
            *(volatile __m128i *)(s->map + i) = _mm_load_si128((__m128i *)(s->at + i));
    else if (pwrite(s->fd, s->at, s->size, s->offset) != (ssize_t)s->size)
        die("pwrite");
}

static void reader(const struct side *s, struct tally *t)
{
    unsigned char *at = s->at;
    size_t size = s->size;
    uint64_t before = 0;
    stay_on_cpu(1);
    while (!t->stop) {
        uint64_t torn = 0;
        take(s);
        for (size_t i = 0; i < size; i += 16)
            if (load(at + i) != load(at + i + 8)) {
                torn++;
                t->first += i == 0 || (s->offset + i) % 4096 == 0;
                t->last += i == size - 16 || (s->offset + i) % 4096 == 4080;
            }
        t->reads++;
        t->changed_reads += load(at) != before;
        before = load(at);
        t->torn_reads += torn != 0;
        t->torn_blocks += torn;
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr, "usage: torn FILE FILE_OFFSET SIZE WRITER READER MS\n");
        return 2;
    }
    off_t offset = atoll(argv[2]);
    size_t size = strtoul(argv[3], NULL, 10);
    long ms = atol(argv[6]);
    if (size == 0 || size % 16 || offset % 16) {
        fprintf(stderr, "torn: offset and size are multiples of 16\n");
        return 2;
    }
    struct tally *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                           -1, 0);
    if (t == MAP_FAILED)
        die("mmap");
    /* The range exists before a side maps it. */
    struct side first = side(argv[1], offset, size, "0");
    fill(first.at, size, 0);
    put(&first);
    struct side writes = side(argv[1], offset, size, argv[4]);
    struct side reads = side(argv[1], offset, size, argv[5]);

    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child == 0)
        reader(&reads, t);

    stay_on_cpu(0);
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (uint64_t counter = 1;; counter++) {
        /* Every bit pattern of a byte takes its turn, so no half block can pass for a whole one. */
        fill(writes.at, size, counter * 0x9e3779b97f4a7c15u);
        put(&writes);
        t->writes++;
        if (counter % 256)
            continue;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 >= ms)
            break;
    }
    t->stop = 1;
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "torn: the reader failed\n");
        return 1;
    }
    printf("{\"offset\":%lld,\"size\":%zu,\"writer\":\"%s\",\"reader\":\"%s\",\"writes\":%" PRIu64
           ",\"reads\":%" PRIu64 ",\"changed_reads\":%" PRIu64 ",\"torn_reads\":%" PRIu64
           ",\"torn_blocks\":%" PRIu64 ",\"torn_first\":%" PRIu64 ",\"torn_last\":%" PRIu64 "}\n",
           (long long)offset, size, argv[4], argv[5], t->writes, t->reads,
           t->changed_reads, t->torn_reads, t->torn_blocks, t->first,
           t->last);
    return 0;
}
