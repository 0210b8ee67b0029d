/*
 * calls DIRECTORY: the calls that calls.rs measures. An order "NAME COUNT" makes a call COUNT times
 * and answers with nanoseconds of CPU for one; "prepare MIB" makes the files, the cold one of MIB.
 *
 * A first eighth of the calls is not counted: another process ran before, and the caches are its.
 */
#include "block.h"

static const char pages_path[] = "base/5/16384", cold_path[] = "base/5/16385";
static const char log_path[] = "log/postgresql.log", wal_path[] = "pg_wal/00000001";
/* Of class bytes, as MariaDB's redo log is. */
static const char redo_path[] = "log/ib_logfile0";

enum { HOT = 16, WARM = 1024 };
static long cold;
/* Of the pages, the cold file, a file that is written at its end, and the same with O_APPEND; WAL,
 * and a file that is written past the page cache. */
static int file, cold_file, log_file, append_file, wal, redo;

static off_t place(long i, long pages, long step) { return i * step % pages * PAGE; }

static void read_at(int fd, off_t at) { need(pread(fd, page, PAGE, at) == PAGE, "pread"); }
static void write_at(int fd, off_t at, size_t len)
{
    need(pwrite(fd, page, len, at) == (ssize_t)len, "pwrite");
}

/* The step across the cold file is longer than any prefetcher looks, and comes by each page. */
enum { FAR = 52711, NEAR = 97 };
static void read_hot(long i) { read_at(file, place(i, HOT, 1)); }
static void read_warm(long i) { read_at(file, place(i, WARM, NEAR)); }
static void read_cold(long i) { read_at(cold_file, place(i, cold, FAR)); }
static void write_hot(long i) { write_at(file, place(i, HOT, 1), PAGE); }
static void write_warm(long i) { write_at(file, place(i, WARM, NEAR), PAGE); }
static void write_cold(long i) { write_at(cold_file, place(i, cold, FAR), PAGE); }

static void open_and_close(long i)
{
    (void)i;
    int fd = open(pages_path, O_RDONLY | O_CLOEXEC);
    need(fd >= 0 && !close(fd), "open and close");
}

static void write_within(long i) { write_at(file, place(i, WARM, NEAR) + 1237, 100); }
static void write_block(long i) { write_at(file, i * 512 % (WARM * PAGE), 512); }
static void write_block_directly(long i) { write_at(redo, i * 512 % (WARM * PAGE), 512); }
static void write_block_at_end(long i) { write_at(wal, i * 512, 512); }

static void ask(long i)
{
    struct stat found;
    (void)i;
    need(!fstat(file, &found) && found.st_size == WARM * PAGE, "fstat");
}

static void write_on(long i)
{
    (void)i;
    need(write(log_file, page, 120) == 120, "write");
}

static void append(long i)
{
    (void)i;
    need(write(append_file, page, 120) == 120, "write");
}

static void empty_wal(void) { need(!ftruncate(wal, 0), "ftruncate"); }
static void empty_log(void)
{
    need(!ftruncate(log_file, 0) && lseek(log_file, 0, SEEK_SET) == 0, "ftruncate");
}

static const struct { const char *name; void (*call)(long i); void (*before)(void); } calls[] = {
    {"read-hot", read_hot, 0},
    {"read-warm", read_warm, 0},
    {"read-cold", read_cold, 0},
    {"write-hot", write_hot, 0},
    {"write-warm", write_warm, 0},
    {"write-cold", write_cold, 0},
    {"open-close", open_and_close, 0},
    {"write-within", write_within, 0},
    {"block-within", write_block, 0},
    {"block-at-end", write_block_at_end, empty_wal},
    {"block-direct", write_block_directly, 0},
    {"append", append, empty_log},
    {"write-on", write_on, empty_log},
    {"fstat", ask, 0},
};

static int made(const char *path, int flags)
{
    int fd = open(path, flags | O_CREAT | O_CLOEXEC, 0600);
    need(fd >= 0, path);
    return fd;
}

/* The cold file stays from start to start. */
static void fill_cold(void)
{
    struct stat found;
    need(!fstat(cold_file, &found), cold_path);
    if (found.st_size == cold * PAGE)
        return;
    for (long i = 0; i < cold; i++) {
        fill_page(i);
        write_at(cold_file, i * PAGE, PAGE);
    }
    need(!fsync(cold_file), cold_path);
}

static void prepare(long mib)
{
    make_dir("base"), make_dir("base/5"), make_dir("log"), make_dir("pg_wal");
    unlink(pages_path), unlink(log_path), unlink(wal_path), unlink(redo_path);
    cold = mib * (1 << 20) / PAGE;
    file = made(pages_path, O_RDWR), cold_file = made(cold_path, O_RDWR);
    log_file = made(log_path, O_WRONLY), append_file = made(log_path, O_WRONLY | O_APPEND);
    wal = made(wal_path, O_RDWR), redo = made(redo_path, O_RDWR | O_DIRECT);
    for (long i = 0; i < WARM; i++) {
        fill_page(i);
        write_at(file, i * PAGE, PAGE), write_at(redo, i * PAGE, PAGE);
    }
    fill_cold();
}

static double measure(const char *name, long count)
{
    /* Where the walk across the cold file goes on. */
    static long walked;
    for (size_t which = 0; which < sizeof calls / sizeof *calls; which++) {
        if (strcmp(name, calls[which].name))
            continue;
        if (calls[which].before)
            calls[which].before();
        long i = strstr(name, "-cold") ? walked : 0, first = i + count / 8;
        while (i < first)
            calls[which].call(i++);
        double begin = used();
        while (i < first + count)
            calls[which].call(i++);
        double ns = used() - begin;
        walked = strstr(name, "-cold") ? i : walked;
        return ns / count;
    }
    fprintf(stderr, "no call %s\n", name);
    exit(1);
}

int main(int argc, char **argv)
{
    char order[64];
    long count;
    need(argc == 2 && !chdir(argv[1]), "the directory");
    while (scanf("%63s %ld", order, &count) == 2) {
        if (strcmp(order, "prepare"))
            printf("%.2f\n", measure(order, count));
        else
            prepare(count), puts("0");
        fflush(stdout);
    }
    return 0;
}
