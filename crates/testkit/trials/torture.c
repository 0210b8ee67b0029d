/* No garbage byte: writers and readers of one file agree, whatever the buffers' addresses.
 *
 * The file is made of 16-byte blocks of two kinds, by place:
 *
 *   marked   a number and its mark, 8 bytes each: a block is one that was written, or it is "half"
 *   partly   a prefix of 1 to 15 bytes that every write repeats, then bytes that change: if it
 *            is ever seen otherwise, that is "garbage", for these bytes never changed
 *
 * An untouched kernel copies bytes, so it shows no garbage, but half blocks on ext4 (decision 3).
 * Under a cipher of 16-byte blocks a half-seen block is 16 bytes of garbage, and so both kinds of
 * block must be whole. Two writers own runs
 * of blocks, and between them lie blocks that nobody writes: those must stay as they were
 * ("unsteady" if not), although they share lines, pages and units with the busy ones. Half of the
 * pages belong to one writer as a whole, as a server's pages do; one of each writer is hot at a
 * time: that is where readers and writers really meet.
 *
 * usage: torture FILE SECONDS [SEED]
 * One line of JSON. Exit code 1 if there was garbage or an unsteady block; half blocks are counted.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 16, FILE_SIZE = 256 * 1024, BLOCKS = FILE_SIZE / BLOCK, LONGEST = 20000 };
enum { WRITERS = 2, READERS = 2 };
enum { PAGE = 8192, PAGE_BLOCKS = PAGE / BLOCK, PAGES = FILE_SIZE / PAGE, HOT_WRITES = 4096 };

struct tally {
    _Atomic int stop;
    _Atomic uint64_t turn[WRITERS];
    _Atomic uint64_t writes, reads, blocks, changed, half, garbage, unsteady, short_calls;
    _Atomic uint64_t first_place, first_residue, first_size, first_low, first_high;
};

static struct tally *tally;
static uint64_t state;

static void die(const char *what)
{
    fprintf(stderr, "torture: %s: %s\n", what, strerror(errno));
    exit(2);
}

static uint64_t any(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

/* The second half of a block with number n at this place. */
static uint64_t seal(uint64_t n, uint64_t place)
{
    uint64_t x = (n ^ (place << 40)) + 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The bytes of each place that do not change. */
static uint64_t fixed[BLOCKS][2];

/* How many bytes of the block never change; 0 for a marked block. Pages of 4096 bytes begin with
 * either kind by turns: the first block of a page is the one that the kernel tears most. */
static size_t prefix(uint64_t place)
{
    return (place ^ place >> 8) % 2 ? 1 + place / 2 % 15 : 0;
}

static void put(unsigned char *at, uint64_t n, uint64_t place)
{
    uint64_t words[2] = {n, seal(n, place)};
    memcpy(at, words, BLOCK);
    memcpy(at, fixed[place], prefix(place));
}

/* Every second page has one owner; in the others, runs of 1 to 7 blocks change hands: writer 0,
 * nobody, writer 1, nobody, and so on. */
static int owner(uint64_t place)
{
    if (place / PAGE_BLOCKS % 2)
        return place / PAGE_BLOCKS % 4 / 2;
    static const signed char pattern[] = {0, -1, 0, 0, -1, -1, 1, -1, 1, 1, 1, -1, -1, -1,
                                          0, 0, 0, 0, 0, -1, 1, 1, 1, 1, 1, 1, 1, -1, 0};
    return pattern[place % sizeof pattern];
}

static unsigned char *buffer(void)
{
    unsigned char *at = mmap(NULL, LONGEST + 2 * PAGE, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at == MAP_FAILED)
        die("mmap");
    return at;
}

/* The page of this writer that is busy now. */
static uint64_t hot_page(int self)
{
    return tally->turn[self] / HOT_WRITES * 4 % PAGES + 1 + 2 * self;
}

/* Two images of the hot page by turns, so that most of the time goes into the writes. */
static void write_hot(int fd, int self, uint64_t n, unsigned char *room)
{
    unsigned char *images[2] = {room + any(64), room + PAGE + 64 + any(64)};
    uint64_t page = hot_page(self);
    for (int image = 0; image < 2; image++)
        for (uint64_t block = 0; block < PAGE_BLOCKS; block++)
            put(images[image] + block * BLOCK, n + image, page * PAGE_BLOCKS + block);
    for (int turn = 0; turn < 64 && !tally->stop; turn++) {
        ssize_t done = pwrite(fd, images[turn % 2], PAGE, page * PAGE);
        if (done < 0)
            die("write a page");
        tally->short_calls += done != PAGE;
        tally->writes++;
        tally->turn[self]++;
    }
}

/* A writer rewrites one run of its own blocks at a time, from a buffer at any address; some calls
 * in two pieces, some with uneven edges, which leave out only bytes that say nothing of a whole
 * block. */
static void write_for_ever(int fd, int self)
{
    unsigned char *room = buffer();
    uint64_t *last = calloc(BLOCKS, sizeof *last);
    for (uint64_t n = 1; !tally->stop; n += 2) {
        if (any(8) == 0)
            write_hot(fd, self, n << 20, room);
        uint64_t from = any(BLOCKS), to;
        while (from < BLOCKS && owner(from) != self)
            from++;
        for (to = from; to < BLOCKS && to - from < 8 && owner(to) == self; to++)
            last[to]++;
        if (from == to)
            continue;
        size_t size = (to - from) * BLOCK;
        unsigned char *at = room + any(64);
        for (uint64_t place = from; place < to; place++)
            put(at + (place - from) * BLOCK, last[place], place);
        off_t offset = from * BLOCK;
        if (prefix(to - 1) && any(4) == 0)
            size -= any(BLOCK - prefix(to - 1) + 1);
        if (prefix(from) && size > BLOCK && any(4) == 0) {
            size_t skip = any(prefix(from) + 1);
            at += skip;
            offset += skip;
            size -= skip;
        }
        ssize_t done;
        if (size > 1 && any(4) == 0) {
            size_t head = 1 + any(size - 1);
            uint64_t cut = (offset + head) / BLOCK;
            if (!prefix(cut)) /* not through a marked block: two pieces may be two writes */
                head = cut * BLOCK > (uint64_t)offset ? cut * BLOCK - offset : BLOCK;
            struct iovec two[] = {{at, head}, {at + head, size - head}};
            done = pwritev(fd, two, 2, offset);
        } else {
            done = pwrite(fd, at, size, offset);
        }
        if (done < 0)
            die("write");
        tally->short_calls += (size_t)done != size;
        tally->writes++;
    }
    _exit(0);
}

static void garbage(uint64_t place, size_t residue, size_t size, const unsigned char *at)
{
    if (tally->garbage++ != 0)
        return;
    uint64_t halves[2];
    memcpy(halves, at, BLOCK);
    tally->first_place = place;
    tally->first_residue = residue;
    tally->first_size = size;
    tally->first_low = halves[0];
    tally->first_high = halves[1];
}

static void check(uint64_t place, size_t residue, size_t size, const unsigned char *at)
{
    unsigned char should[BLOCK];
    uint64_t n, mark;
    memcpy(&n, at, 8);
    memcpy(&mark, at + 8, 8);
    put(should, 0, place);
    if (owner(place) < 0)
        tally->unsteady += memcmp(at, should, BLOCK) != 0;
    else if (prefix(place) && memcmp(at, should, prefix(place)) != 0)
        garbage(place, residue, size, at);
    else if (!prefix(place))
        tally->half += mark != seal(n, place);
    tally->changed += memcmp(at, should, BLOCK) != 0;
    tally->blocks++;
}

/* A reader takes ranges of any place, length and alignment, some beginning or ending in a block. */
static void read_for_ever(int fd)
{
    unsigned char *room = buffer();
    static const size_t sizes[] = {16, 48, 64, 512, 4096, 8192, 16384};
    for (uint64_t turn = 0; !tally->stop; turn++) {
        size_t residue = turn % 64, size = sizes[any(7)];
        uint64_t offset = any(FILE_SIZE - LONGEST) / BLOCK * BLOCK;
        switch (any(8)) {
        default:
            size = any(4) ? PAGE : PAGE / 2;
            offset = hot_page(any(WRITERS)) * PAGE + any(PAGE / size) * size;
            break;
        case 2:
        case 3:
            break;
        case 0:
            offset = offset / 8192 * 8192;
            break;
        case 1:
            offset += any(BLOCK);
            size += any(BLOCK);
            break;
        }
        unsigned char *at = room + residue;
        ssize_t done = pread(fd, at, size, offset);
        if (done < 0)
            die("read");
        tally->short_calls += (size_t)done != size;
        uint64_t place = (offset + BLOCK - 1) / BLOCK;
        for (; (place + 1) * BLOCK <= offset + done; place++)
            check(place, residue, size, at + (place * BLOCK - offset));
        tally->reads++;
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: torture FILE SECONDS [SEED]\n");
        return 2;
    }
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tally == MAP_FAILED)
        die("mmap");
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0)
        die("open");
    for (uint64_t place = 0; place < BLOCKS; place++)
        for (uint64_t half = 0; half < 2; half++)
            fixed[place][half] = seal(half, place);
    unsigned char *all = malloc(FILE_SIZE);
    for (uint64_t place = 0; place < BLOCKS; place++)
        put(all + place * BLOCK, 0, place);
    if (pwrite(fd, all, FILE_SIZE, 0) != FILE_SIZE)
        die("first write");
    for (int process = 0; process < WRITERS + READERS; process++) {
        pid_t child = fork();
        if (child < 0)
            die("fork");
        if (child != 0)
            continue;
        /* A description of its own, as another process of a server would have. */
        int own = open(argv[1], process < WRITERS ? O_RDWR : O_RDONLY);
        if (own < 0)
            die("open in a child");
        state = (seed * 131 + process + 1) * 0x9e3779b97f4a7c15u;
        if (process < WRITERS)
            write_for_ever(own, process);
        else
            read_for_ever(own);
    }
    sleep(atoi(argv[2]));
    tally->stop = 1;
    int status, failed = 0;
    while (wait(&status) > 0)
        failed |= status != 0;
    printf("{\"writes\":%" PRIu64 ",\"reads\":%" PRIu64 ",\"blocks\":%" PRIu64
           ",\"changed\":%" PRIu64 ",\"half\":%" PRIu64 ",\"garbage\":%" PRIu64
           ",\"unsteady\":%" PRIu64 ",\"short_calls\":%" PRIu64,
           tally->writes, tally->reads, tally->blocks, tally->changed, tally->half,
           tally->garbage, tally->unsteady, tally->short_calls);
    if (tally->garbage)
        printf(",\"first\":{\"place\":%" PRIu64 ",\"residue\":%" PRIu64 ",\"size\":%" PRIu64
               ",\"low\":\"%016" PRIx64 "\",\"high\":\"%016" PRIx64 "\"}",
               tally->first_place, tally->first_residue, tally->first_size, tally->first_low,
               tally->first_high);
    printf("}\n");
    return failed ? 2 : tally->garbage || tally->unsteady ? 1 : 0;
}
