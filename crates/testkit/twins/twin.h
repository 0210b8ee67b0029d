/*
 * Prints what each file call answered, so that two runs of one program can be compared.
 *
 * Every report is written by a raw system call to a descriptor that is never sealed: the reports do
 * not pass through what is being tested. Nothing that differs between two plain runs is printed: no
 * times, inode numbers, process ids or absolute paths.
 */
#ifndef TWIN_H
#define TWIN_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* Every byte that a program writes comes from records with this word, so that one leaked record is
 * found by searching the protected directory. */
#define MARKER "tidelock-twin"

/* Sizes on and beside the edges of the 16-byte block and of the 4096-byte unit. */
static const long edges[] = {0, 1, 15, 16, 17, 4095, 4096, 4097, 8191, 8192, 8193};
enum { EDGES = sizeof edges / sizeof edges[0] };

/* Programs that redirect descriptor 1 move the reports elsewhere first. */
static int report_fd = 1;

__attribute__((format(printf, 1, 2))) static inline void say(const char *format, ...)
{
    char line[1024];
    va_list args;
    int kept = errno;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (n > (int)sizeof line - 2)
        n = sizeof line - 2;
    line[n++] = '\n';
    if (syscall(SYS_write, report_fd, line, n) != n)
        _exit(99);
    errno = kept;
}

static inline const char *errno_name(int number)
{
#if __GLIBC_PREREQ(2, 32)
    const char *name = strerrorname_np(number);
    if (name)
        return name;
#endif
    return strerror(number);
}

/* Reports a return value, with errno when it is negative, and hands it on. */
static inline long show(const char *call, long ret)
{
    int kept = errno;
    if (ret < 0)
        say("%s = %ld %s", call, ret, errno_name(kept));
    else
        say("%s = %ld", call, ret);
    errno = kept;
    return ret;
}

/* For calls that are not compared: they succeed. */
static inline void must(long ret)
{
    if (ret < 0)
        say("unexpected: %s", errno_name(errno));
}

/* As show, for calls whose good answer is a number that nobody should depend on. */
static inline long show_ok(const char *call, long ret)
{
    if (ret >= 0)
        say("%s = ok", call);
    else
        show(call, ret);
    return ret;
}

/* As show, for calls that answer a pointer. */
static inline void *show_pointer(const char *call, void *ret)
{
    if (ret)
        say("%s = ok", call);
    else
        say("%s = NULL %s", call, errno_name(errno));
    return ret;
}

static inline uint64_t hash_bytes(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint64_t h = 14695981039346656037u;
    while (n--)
        h = (h ^ *p++) * 1099511628211u;
    return h;
}

/* Reports n bytes: their number, their FNV-1a hash, and the first ones for people. */
static inline void show_bytes(const char *what, const void *bytes, long n)
{
    char text[25];
    long i;
    const unsigned char *p = bytes;
    if (n < 0) {
        show(what, n);
        return;
    }
    for (i = 0; i < n && i < 24; i++)
        text[i] = p[i] >= 32 && p[i] < 127 ? (char)p[i] : '.';
    text[i] = 0;
    say("%s: %ld bytes %016lx \"%s\"", what, n, (unsigned long)hash_bytes(bytes, n), text);
}

/* Reads through a call that was just made: its answer and the bytes that it put there. */
static inline long show_read(const char *call, long ret, const void *bytes)
{
    show(call, ret);
    if (ret > 0)
        show_bytes("  got", bytes, ret);
    return ret;
}

/* The n bytes that belong at offset `at` of the endless text numbered `seed`: records of 32. */
static inline void fill(void *bytes, size_t n, unsigned seed, long at)
{
    char record[64];
    char *p = bytes;
    long have = -1;
    for (size_t i = 0; i < n; i++) {
        long number = (at + (long)i) / 32;
        if (number != have) {
            snprintf(record, sizeof record, MARKER " %08x/%08x\n", seed, (unsigned)number);
            have = number;
        }
        p[i] = record[(at + (long)i) % 32];
    }
}

/* A generator whose numbers are the same everywhere (Knuth's MMIX). */
static inline unsigned next_random(uint64_t *state, unsigned below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((*state >> 33) % below);
}

static inline void show_size(const char *what, int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        show(what, -1);
    else
        say("%s: size %ld", what, (long)st.st_size);
}

/* Opens a file for itself and reports its size and every byte of it, by its path from here. */
static inline void show_file(const char *path)
{
    const char *name = path[0] == '/' ? "by absolute path" : path;
    struct stat st;
    int fd = open(path, O_RDONLY);
    if (fd < 0) {
        show(name, -1);
        return;
    }
    if (fstat(fd, &st) < 0) {
        show(name, -1);
        close(fd);
        return;
    }
    char *all = malloc(st.st_size + 4096);
    long n = 0, got;
    while ((got = read(fd, all + n, st.st_size + 4096 - n)) > 0)
        n += got;
    if (got < 0)
        show("  read", got);
    if (n != st.st_size)
        say("  fstat says %ld bytes and read gave %ld", (long)st.st_size, n);
    show_bytes(name, all, n);
    free(all);
    close(fd);
}

/* Makes a file with the first n bytes of text `seed`, as setting for what follows. */
static inline int make_file(const char *path, unsigned seed, long n)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    char *text = malloc(n + 1);
    fill(text, n, seed, 0);
    if (fd < 0 || write(fd, text, n) != n || lseek(fd, 0, SEEK_SET) != 0) {
        show(path, -1);
        _exit(98);
    }
    free(text);
    return fd;
}

/* Waits for a child and reports how it ended. */
static inline void show_end(const char *what, pid_t child)
{
    int status = 0;
    if (waitpid(child, &status, 0) != child)
        show("waitpid", -1);
    else if (WIFEXITED(status))
        say("%s: exit %d", what, WEXITSTATUS(status));
    else
        say("%s: signal %d", what, WTERMSIG(status));
}

/* Each program works in the directory that its one argument names. */
static inline void start(int argc, char **argv)
{
    if (argc != 2 || chdir(argv[1]) < 0) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        exit(97);
    }
    umask(022);
}

#endif
