/*
 * What the measured programs share: CPU time of a thread, pages, and the end of a program when a
 * call fails. No call is measured that did not succeed.
 */
#ifndef BLOCK_H
#define BLOCK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 8192 };

/* Congruent with the offset in the file, as PostgreSQL's buffers are. */
static __thread char page[PAGE] __attribute__((aligned(4096)));

static inline void need(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

/* Nanoseconds of CPU that this thread has used. */
static inline double used(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

/* xorshift64*: the same places in each arm. */
static inline uint64_t draw(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dull;
}

/* Bytes that no page cache or disk can make smaller. */
static inline void fill_page(uint64_t seed)
{
    seed = seed * 2 + 1;
    for (size_t at = 0; at < PAGE; at += 8) {
        uint64_t word = draw(&seed);
        memcpy(page + at, &word, 8);
    }
}

static inline void make_dir(const char *path)
{
    need(!mkdir(path, 0700) || errno == EEXIST, path);
}

#endif
