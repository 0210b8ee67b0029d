/*
 * scale DIRECTORY: the work that scale.rs measures, as it is ordered, and answers in nanoseconds of
 * CPU for one call:
 *
 *   size MIB PLACES      reads and writes at random places of a sparse file      read, write
 *   forked N READS       N forked processes read from the same 100 files         fork, open, read
 *   same N CALLS         N threads read and write one file                       read, write, wall
 *   distinct N CALLS     N threads, each with a file of its own                  read, write, wall
 *   fill FROM TO         makes files of one page
 *   files FROM TO        opens each, reads its page and closes it                all three
 *   memory 0 0           of this process, in KiB: resident, private and dirty, locked and there,
 *                        locked as RLIMIT_MEMLOCK counts it, charged for where the kernel does not
 *                        overcommit
 *   faults N 0           N children that end at once: page faults of each
 *
 * Places are drawn from the same seed in each arm.
 */
#include "block.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { SHARED_FILES = 100, SMALL = 128, THREADS = 64, FOLDER = 1000 };

static void read_page(int fd, off_t at) { need(pread(fd, page, PAGE, at) == PAGE, "pread"); }
static void write_page(int fd, off_t at) { need(pwrite(fd, page, PAGE, at) == PAGE, "pwrite"); }

/* The file of this number, with so many pages; it stays from start to start. */
static int pages_file(long number, long pages)
{
    char path[64];
    struct stat found;
    snprintf(path, sizeof path, "base/5/%ld", number);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    need(fd >= 0 && !fstat(fd, &found), path);
    for (long i = found.st_size / PAGE; i < pages; i++) {
        fill_page(number * 1000003 + i);
        write_page(fd, i * PAGE);
    }
    return fd;
}

static void size(long mib, long places)
{
    char path[64];
    struct stat found;
    off_t whole = (off_t)mib << 20;
    snprintf(path, sizeof path, "base/5/1%ld", mib);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    need(fd >= 0 && !fstat(fd, &found), path);
    off_t *at = malloc(places * sizeof *at);
    need(at != 0, "malloc");
    uint64_t seed = 88172645463325252ull;
    for (long i = 0; i < places; i++)
        at[i] = draw(&seed) % (whole / PAGE) * PAGE;
    if (found.st_size != whole) {
        need(!ftruncate(fd, whole), "ftruncate");
        for (long i = 0; i < places; i++) {
            fill_page(i);
            write_page(fd, at[i]);
        }
        need(!fsync(fd), "fsync");
    }
    for (long i = 0; i < places / 8; i++)
        read_page(fd, at[i]);
    double begin = used();
    for (long i = 0; i < places; i++)
        read_page(fd, at[i]);
    double then = used();
    for (long i = 0; i < places; i++)
        write_page(fd, at[i]);
    printf("%.2f %.2f\n", (then - begin) / places, (used() - then) / places);
    free(at);
    need(!close(fd), "close");
}

/* Opens all files and reads a page of each, waits until all others are there, then reads on. */
static void child(double *open_ns, double *read_ns, const int *gate, int ready, long reads)
{
    int fds[SHARED_FILES];
    char byte = 0;
    uint64_t seed = getpid() * 2 + 1;
    double begin = used();
    for (int i = 0; i < SHARED_FILES; i++) {
        char path[64];
        snprintf(path, sizeof path, "base/5/%d", 30000 + i);
        fds[i] = open(path, O_RDWR | O_CLOEXEC);
        need(fds[i] >= 0, path);
        read_page(fds[i], 0);
    }
    *open_ns = (used() - begin) / SHARED_FILES;
    close(gate[1]);
    need(write(ready, &byte, 1) == 1 && read(gate[0], &byte, 1) == 0, "waiting");
    begin = used();
    for (long i = 0; i < reads; i++)
        read_page(fds[draw(&seed) % SHARED_FILES], draw(&seed) % SMALL * PAGE);
    *read_ns = (used() - begin) / reads;
    _exit(0);
}

static double sum(const double *some, long count, long step)
{
    double all = 0;
    for (long i = 0; i < count; i++)
        all += some[i * step];
    return all;
}

static void forked(long processes, long reads)
{
    int gate[2], ready[2];
    char byte;
    double *found = mmap(0, processes * 2 * sizeof *found, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(found != MAP_FAILED && !pipe(gate) && !pipe(ready), "memory and pipes");
    for (int i = 0; i < SHARED_FILES; i++)
        close(pages_file(30000 + i, SMALL));
    double begin = used();
    for (long i = 0; i < processes; i++) {
        pid_t pid = fork();
        need(pid >= 0, "fork");
        if (!pid)
            child(&found[2 * i], &found[2 * i + 1], gate, ready[1], reads);
    }
    double fork_ns = (used() - begin) / processes;
    close(ready[1]);
    for (long i = 0; i < processes; i++)
        need(read(ready[0], &byte, 1) == 1, "a child");
    close(gate[0]), close(gate[1]);
    for (long i = 0; i < processes; i++) {
        int status;
        need(wait(&status) > 0 && !status, "a child");
    }
    close(ready[0]);
    printf("%.2f %.2f %.2f\n", fork_ns, sum(found, processes, 2) / processes,
           sum(found + 1, processes, 2) / processes);
    need(!munmap(found, processes * 2 * sizeof *found), "munmap");
}

struct worker { pthread_t thread; int fd; long calls; uint64_t seed; double read_ns, write_ns; };
static pthread_barrier_t together;

static void *work(void *given)
{
    struct worker *me = given;
    fill_page(me->seed);
    read_page(me->fd, 0);
    write_page(me->fd, 0);
    pthread_barrier_wait(&together);
    double begin = used();
    for (long i = 0; i < me->calls; i++)
        read_page(me->fd, draw(&me->seed) % SMALL * PAGE);
    me->read_ns = used() - begin;
    pthread_barrier_wait(&together);
    begin = used();
    for (long i = 0; i < me->calls; i++)
        write_page(me->fd, draw(&me->seed) % SMALL * PAGE);
    me->write_ns = used() - begin;
    return 0;
}

static double clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static void threads(long count, long calls, int distinct)
{
    static struct worker all[THREADS];
    double read_ns = 0, write_ns = 0;
    need(count <= THREADS && !pthread_barrier_init(&together, 0, count + 1), "threads");
    for (long i = 0; i < count; i++) {
        int fd = distinct || !i ? pages_file(40000 + i, SMALL) : all[0].fd;
        all[i] = (struct worker){0, fd, calls / count, i * 2 + 1, 0, 0};
        need(!pthread_create(&all[i].thread, 0, work, &all[i]), "pthread_create");
    }
    pthread_barrier_wait(&together);
    double begin = clock_ns();
    pthread_barrier_wait(&together);
    for (long i = 0; i < count; i++) {
        need(!pthread_join(all[i].thread, 0), "pthread_join");
        read_ns += all[i].read_ns;
        write_ns += all[i].write_ns;
    }
    double wall = clock_ns() - begin, done = calls / count * count;
    for (long i = 0; i < (distinct ? count : 1); i++)
        need(!close(all[i].fd), "close");
    pthread_barrier_destroy(&together);
    printf("%.2f %.2f %.2f\n", read_ns / done, write_ns / done, wall / (2 * done));
}

static const char *small_file(long number)
{
    static char path[64];
    snprintf(path, sizeof path, "base/%ld/%ld", 100 + number / FOLDER, number % FOLDER);
    return path;
}

static void fill(long from, long to)
{
    for (long i = from; i < to; i++) {
        char folder[64];
        snprintf(folder, sizeof folder, "base/%ld", 100 + i / FOLDER);
        if (i % FOLDER == 0)
            make_dir(folder);
        int fd = open(small_file(i), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        need(fd >= 0, small_file(i));
        fill_page(i);
        write_page(fd, 0);
        need(!close(fd), "close");
    }
    puts("0");
}

static void files(long from, long to)
{
    double begin = used();
    for (long i = from; i < to; i++) {
        int fd = open(small_file(i), O_RDWR | O_CLOEXEC);
        need(fd >= 0, small_file(i));
        read_page(fd, 0);
        need(!close(fd), "close");
    }
    printf("%.2f\n", (used() - begin) / (to - from));
}

/* The number behind a name in a file of /proc/self, in KiB. */
static long kib(const char *path, const char *name)
{
    char line[256];
    long found = -1;
    FILE *lines = fopen(path, "r");
    need(lines != 0, path);
    while (found < 0 && fgets(line, sizeof line, lines))
        if (!strncmp(line, name, strlen(name)))
            found = atol(line + strlen(name));
    fclose(lines);
    need(found >= 0, name);
    return found;
}

static void faults(long children)
{
    struct rusage before, after;
    getrusage(RUSAGE_CHILDREN, &before);
    for (long i = 0; i < children; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        need(child > 0 && waitpid(child, NULL, 0) == child, "fork");
    }
    getrusage(RUSAGE_CHILDREN, &after);
    printf("%.2f\n", (double)(after.ru_minflt - before.ru_minflt) / children);
}

/* The maps that have the flag "accountable". */
static long charged(void)
{
    char line[512];
    long size = 0, sum = 0;
    FILE *maps = fopen("/proc/self/smaps", "r");
    need(maps != NULL, "smaps");
    while (fgets(line, sizeof line, maps)) {
        sscanf(line, "Size: %ld", &size);
        if (!strncmp(line, "VmFlags:", 8) && strstr(line, " ac"))
            sum += size;
    }
    fclose(maps);
    return sum;
}

static void memory(void)
{
    const char *rollup = "/proc/self/smaps_rollup";
    printf("%ld %ld %ld %ld %ld\n", kib(rollup, "Rss:"), kib(rollup, "Private_Dirty:"),
           kib(rollup, "Locked:"), kib("/proc/self/status", "VmLck:"), charged());
}

int main(int argc, char **argv)
{
    char order[16];
    long a, b;
    struct rlimit limit;
    need(argc == 2 && !chdir(argv[1]), "the directory");
    need(!getrlimit(RLIMIT_NOFILE, &limit), "getrlimit");
    limit.rlim_cur = limit.rlim_max;
    need(!setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
    make_dir("base"), make_dir("base/5");
    while (scanf("%15s %ld %ld", order, &a, &b) == 3) {
        if (!strcmp(order, "size"))
            size(a, b);
        else if (!strcmp(order, "forked"))
            forked(a, b);
        else if (!strcmp(order, "same") || !strcmp(order, "distinct"))
            threads(a, b, *order == 'd');
        else if (!strcmp(order, "fill"))
            fill(a, b);
        else if (!strcmp(order, "files"))
            files(a, b);
        else if (!strcmp(order, "memory"))
            memory();
        else if (!strcmp(order, "faults"))
            faults(a);
        else
            return 2;
        fflush(stdout);
    }
    return 0;
}
