/* Two processes take strict turns on one file: every call after every other, with no race at all.
 *
 * For each size to begin with and each pair of calls: the first process makes the one, the second
 * the other, the first its own once more; then both look at all bytes. Each has opened the file
 * before, so each may know things of it that the other has changed since. One line for each pair
 * and size: what the calls answered, and a hash of what each of the two sees. The same line must
 * come from a plain file.
 *
 * usage: turns DIR
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { UNIT = 4096, ROOM = 8 * UNIT, CALLS = 25 };

static const char *names[CALLS] = {
    "a unit at 0",
    "a unit at 8192",
    "98 bytes to 8190",
    "7 bytes at 4096",
    "100 bytes at the offset",
    "33 bytes appended",
    "a unit appended",
    "cut to 5000",
    "cut to 4096",
    "cut to 0",
    "truncate to 8200",
    "allocate 50 at 9000",
    "punch a unit",
    "punch 100 to 4200",
    "read a unit",
    "read two units at 4096",
    "seek to the end",
    "fstat",
    "read 300",
    "open with O_TRUNC",
    "pieces at 4090",
    "two units at 4096",
    "seek to 4096",
    "cut to 8189",
    "read the unit at 4096",
};

struct board {
    int call, size;
    char answer[160];
};

static struct board *board;
static const char *path;
static int fd, appending;

static void die(const char *what)
{
    fprintf(stderr, "turns: %s: %s\n", what, strerror(errno));
    exit(2);
}

static uint64_t hash(const unsigned char *bytes, long n)
{
    uint64_t x = 1469598103934665603u;
    for (long i = 0; i < n; i++)
        x = (x ^ bytes[i]) * 1099511628211u;
    return x;
}

static const unsigned char *text(long n, int by)
{
    static unsigned char bytes[ROOM];
    for (long i = 0; i < n; i++)
        bytes[i] = 1 + (i * 7 + by * 31) % 255;
    return bytes;
}

static void open_file(void)
{
    fd = open(path, O_RDWR);
    appending = open(path, O_RDWR | O_APPEND);
    if (fd < 0 || appending < 0)
        die("open");
}

static void close_file(void)
{
    close(fd);
    close(appending);
}

static long punch(long at, long len)
{
    return fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, at, len);
}

static long make_call(int call, int by, unsigned char *back, long *got)
{
    struct stat st;
    struct iovec parts[3] = {
        {(void *)text(60, by), 3}, {(void *)text(60, by), 16}, {(void *)text(60, by), 41}};
    switch (call) {
    case 0: return pwrite(fd, text(UNIT, by), UNIT, 0);
    case 1: return pwrite(fd, text(UNIT, by), UNIT, 2 * UNIT);
    case 2: return pwrite(fd, text(98, by), 98, 8190 - 98);
    case 3: return pwrite(fd, text(7, by), 7, UNIT);
    case 4: return write(fd, text(100, by), 100);
    case 5: return write(appending, text(33, by), 33);
    case 6: return write(appending, text(UNIT, by), UNIT);
    case 7: return ftruncate(fd, 5000);
    case 8: return ftruncate(fd, UNIT);
    case 9: return ftruncate(fd, 0);
    case 10: return truncate(path, 8200);
    case 11: return fallocate(fd, 0, 9000, 50);
    case 12: return punch(0, UNIT);
    case 13: return punch(100, 4100);
    case 14: return *got = pread(fd, back, UNIT, 0);
    case 15: return *got = pread(fd, back, 2 * UNIT, UNIT);
    case 16: return lseek(fd, 0, SEEK_END);
    case 17: return fstat(fd, &st) < 0 ? -1 : st.st_size;
    case 18: return *got = read(fd, back, 300);
    case 19: {
        int other = open(path, O_RDWR | O_TRUNC);
        return other < 0 ? -1 : close(other);
    }
    case 20: return pwritev(fd, parts, 3, 4090);
    case 21: return pwrite(fd, text(2 * UNIT, by), 2 * UNIT, UNIT);
    case 22: return lseek(fd, UNIT, SEEK_SET);
    case 23: return ftruncate(fd, 8189);
    }
    return *got = pread(fd, back, UNIT, UNIT);
}

/* One turn: a call, or (CALLS) a look at everything. */
static void take_turn(int call, int by, char *answer, size_t room)
{
    static unsigned char back[ROOM];
    long got = 0, result;
    errno = 0;
    if (call == CALLS)
        result = got = pread(fd, back, ROOM, 0);
    else
        result = make_call(call, by, back, &got);
    snprintf(answer, room, " %ld", result);
    if (result < 0)
        snprintf(answer, room, " errno %d", errno);
    if (got > 0)
        snprintf(answer, room, " %ld:%08x", result, (unsigned)hash(back, got));
}

/* The second process does what it is told, when it is told. */
static void obey(int from, int to)
{
    char word;
    while (read(from, &word, 1) == 1) {
        if (word == 'o')
            open_file();
        else if (word == 'c')
            close_file();
        else
            take_turn(board->call, 2, board->answer, sizeof board->answer);
        if (write(to, "!", 1) != 1)
            die("answer");
    }
    _exit(0);
}

static void tell(int to, int from, char word, int call)
{
    char answer;
    board->call = call;
    if (write(to, &word, 1) != 1 || read(from, &answer, 1) != 1)
        die("the second process is gone");
}

int main(int argc, char **argv)
{
    static const int sizes[] = {0, 100, UNIT, 2 * UNIT, 8190, 5008};
    int there[2], back[2];
    char file[4096], mine[160];
    if (argc != 2 || pipe(there) < 0 || pipe(back) < 0)
        return 2;
    snprintf(file, sizeof file, "%s/16384", argv[1]);
    path = file;
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t second = fork();
    if (second == 0) {
        close(there[1]);
        close(back[0]);
        obey(there[0], back[1]);
    }
    close(there[0]);
    close(back[1]);
    for (int size = 0; size < (int)(sizeof sizes / sizeof *sizes); size++)
        for (int pair = 0; pair < CALLS * CALLS; pair++) {
            unlink(path);
            int made = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
            if (made < 0 || write(made, text(sizes[size], 0), sizes[size]) != sizes[size])
                die("make the file");
            open_file();
            tell(there[1], back[0], 'o', 0);
            printf("%d bytes; %s; then %s; again:", sizes[size], names[pair / CALLS],
                   names[pair % CALLS]);
            for (int turn = 0; turn < 5; turn++) {
                int call = turn > 2 ? CALLS : turn % 2 ? pair % CALLS : pair / CALLS;
                if (turn % 2)
                    tell(there[1], back[0], 't', call);
                else
                    take_turn(call, 1, mine, sizeof mine);
                printf("%s", turn % 2 ? board->answer : mine);
            }
            printf("\n");
            close_file();
            close(made);
            tell(there[1], back[0], 'c', 0);
        }
    close(there[1]);
    int status;
    return waitpid(second, &status, 0) == second && status == 0 ? 0 : 2;
}
