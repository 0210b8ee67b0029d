/* 5,000 calls at random, each checked against a model in memory: reads and writes of 0 to 70,000
 * bytes at odd offsets, vectors, seeks, ftruncate, duplicates, reopening, O_TRUNC, append, a second
 * descriptor. The first difference is named with its call. */
#include "twin.h"
#include <sys/uio.h>

enum { CALLS = 5000, LIMIT = 400000, MOST = 70000 };

static unsigned char model[LIMIT + MOST], text[MOST], back[MOST];
static long size, offset;
static int fd, append, calls;

static void fail(const char *what, long is, long should)
{
    say("call %d: %s: is %ld, should be %ld (size %ld offset %ld append %d)", calls, what, is,
        should, size, offset, append);
    exit(1);
}

static void expect(const char *what, long is, long should)
{
    if (is != should)
        fail(what, is, should);
}

static void expect_bytes(const char *what, const unsigned char *is, long at, long n)
{
    for (long i = 0; i < n; i++)
        if (is[i] != model[at + i])
            fail(what, at + i, is[i]);
}

static void model_write(long at, long n)
{
    memcpy(model + at, text, n);
    if (n > 0 && at + n > size)
        size = at + n;
}

static void reopen(int flags)
{
    close(fd);
    fd = open("model", O_RDWR | flags);
    expect("open", fd >= 0, 1);
    append = !!(flags & O_APPEND);
    offset = 0;
    if (flags & O_TRUNC) {
        memset(model, 0, sizeof model);
        size = 0;
    }
}

static void one_call(uint64_t *random)
{
    long n = next_random(random, 8) ? next_random(random, 300) : next_random(random, MOST);
    long at = next_random(random, 4) ? next_random(random, size + 500) : next_random(random, LIMIT);
    if (next_random(random, 3) == 0)
        at &= ~15L;
    if (next_random(random, 5) == 0)
        at &= ~4095L, n = (n + 4095) & ~4095L;
    if (n > MOST)
        n = MOST;
    if (size + n > LIMIT || at > LIMIT)
        at = 0, n = n > size ? size : n;
    fill(text, n, calls, at);
    if (next_random(random, 10) == 0)
        memset(text, 0, n);
    long left = at < size ? size - at : 0;
    struct iovec iov[3] = {
        {text, n / 3}, {text + n / 3, n / 2}, {text + n / 3 + n / 2, n - n / 3 - n / 2}};
    switch (next_random(random, 20)) {
    case 0: case 1: case 2: case 3:
        expect("pwrite", pwrite(fd, text, n, at), n);
        model_write(append ? size : at, n);
        break;
    case 4: case 5: case 6:
        expect("pread", pread(fd, back, n, at), n < left ? n : left);
        expect_bytes("pread", back, at, n < left ? n : left);
        break;
    case 7: case 8: {
        long start = append ? size : offset;
        if (start + n > LIMIT)
            break;
        expect("write", write(fd, text, n), n);
        model_write(start, n);
        /* A write of nothing does not even move to the end. */
        if (n > 0)
            offset = start + n;
        break;
    }
    case 9: case 10:
        left = offset < size ? size - offset : 0;
        expect("read", read(fd, back, n), n < left ? n : left);
        expect_bytes("read", back, offset, n < left ? n : left);
        offset += n < left ? n : left;
        break;
    case 11:
        expect("lseek", lseek(fd, at, SEEK_SET), at);
        offset = at;
        break;
    case 12: {
        at = next_random(random, 2) ? at : size / 2 + n % 40;
        expect("ftruncate", ftruncate(fd, at), 0);
        if (at < size)
            memset(model + at, 0, size - at);
        size = at;
        break;
    }
    case 13: {
        int copy = dup(fd);
        expect("close", close(fd), 0);
        fd = copy;
        break;
    }
    case 14:
        reopen(next_random(random, 4) ? 0 : next_random(random, 2) ? O_APPEND : O_TRUNC);
        break;
    case 15:
        if (append)
            break;
        expect("pwritev", pwritev(fd, iov, 3, at), n);
        model_write(at, n);
        break;
    case 16: {
        int other = open("model", O_WRONLY);
        expect("pwrite by another", pwrite(other, text, n, at), n);
        model_write(at, n);
        close(other);
        break;
    }
    case 17: {
        struct iovec into[2] = {{back, n / 2}, {back + n / 2, n - n / 2}};
        expect("preadv", preadv(fd, into, 2, at), n < left ? n : left);
        expect_bytes("preadv", back, at, n < left ? n : left);
        break;
    }
    case 18:
        expect("seek to the end", lseek(fd, 0, SEEK_END), size);
        offset = size;
        break;
    case 19:
        expect("truncate", truncate("model", size), 0);
        break;
    }
    struct stat st;
    expect("fstat", fstat(fd, &st) < 0 ? -1 : st.st_size, size);
    expect("stat", stat("model", &st) < 0 ? -1 : st.st_size, size);
    expect("offset", lseek(fd, 0, SEEK_CUR), offset);
}

int main(int argc, char **argv)
{
    uint64_t random = 20240917;
    start(argc, argv);
    fd = open("model", O_RDWR | O_CREAT, 0644);
    for (calls = 0; calls < CALLS; calls++) {
        one_call(&random);
        if (calls % 100 == 0) {
            int whole = open("model", O_RDONLY);
            long n = 0, got;
            while ((got = read(whole, back, MOST)) > 0) {
                expect_bytes("the whole file", back, n, got);
                n += got;
            }
            expect("the whole file's size", n, size);
            close(whole);
            say("call %d: size %ld %016lx", calls, size, (unsigned long)hash_bytes(model, size));
        }
    }
    fill(text, 5000, 1, 0);
    show("pwrite", pwrite(fd, text, 5000, 0));
    show_file("model");
    return 0;
}
