/*
 * step OUTPUT PROGRAM ARGUMENTS: runs the program and counts every instruction that its first
 * thread executes between its marks, one step of the processor after the other (ptrace(2)).
 *
 * A mark is a write to descriptor -1: "begin NAME" and "end". OUTPUT gets the memory map of the
 * program at its first mark ("map LINE"), and for each section "begin NAME", then "ADDRESS COUNT"
 * for each instruction. What the kernel does for a system call is one instruction. So is a string
 * instruction (rep movsb), whose steps are as many as its bytes.
 *
 * Nothing depends on the speed of the machine, and no counter of the processor is needed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 1 << 16 };
static struct { unsigned long at, count; } seen[SLOTS];
static FILE *out;

static void fail(const char *what)
{
    fprintf(stderr, "step: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void saw(unsigned long at)
{
    unsigned long slot = at * 0x9e3779b97f4a7c15ul >> 48;
    for (int tried = 0; tried < SLOTS; tried++, slot = (slot + 1) % SLOTS) {
        if (seen[slot].count && seen[slot].at != at)
            continue;
        seen[slot].at = at;
        seen[slot].count++;
        return;
    }
    fprintf(stderr, "step: more than %d addresses\n", SLOTS);
    exit(1);
}

static void write_section(void)
{
    for (int slot = 0; slot < SLOTS; slot++)
        if (seen[slot].count)
            fprintf(out, "%lx %lu\n", seen[slot].at, seen[slot].count);
    memset(seen, 0, sizeof seen);
}

static void write_map(pid_t pid)
{
    static int written;
    char path[64], line[4096];
    if (written++)
        return;
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *map = fopen(path, "r");
    if (!map)
        fail(path);
    while (fgets(line, sizeof line, map))
        fprintf(out, "map %s", line);
    fclose(map);
}

static struct user_regs_struct registers(pid_t pid)
{
    struct user_regs_struct now;
    if (ptrace(PTRACE_GETREGS, pid, 0, &now))
        fail("reading registers");
    return now;
}

/* The text of a mark, if the program is about to write one. */
static int is_mark(pid_t pid, long call, const struct user_regs_struct *now, char *text,
                   size_t room)
{
    if (call != SYS_write || (int)now->rdi != -1 || now->rdx >= room)
        return 0;
    struct iovec here = {text, now->rdx}, there = {(void *)now->rsi, now->rdx};
    if (process_vm_readv(pid, &here, 1, &there, 1, 0) != (ssize_t)now->rdx)
        return 0;
    text[now->rdx] = 0;
    return 1;
}

/* Lets the program go on, with the signal that it got, until its next stop. */
static int go_on(pid_t pid, enum __ptrace_request how, int signal)
{
    int status;
    if (ptrace(how, pid, 0, signal))
        fail("going on");
    if (waitpid(pid, &status, __WALL) != pid)
        fail("waiting");
    return status;
}

static int ended(int status)
{
    return WIFEXITED(status) || WIFSIGNALED(status);
}

static int is_syscall(pid_t pid, unsigned long at)
{
    errno = 0;
    long word = ptrace(PTRACE_PEEKTEXT, pid, at, 0);
    return !errno && (word & 0xffff) == 0x050f;
}

/* Steps from the end of the call that began the section to the call that ends it. */
static int count(pid_t pid)
{
    char text[128];
    unsigned long last = 0;
    int status = 0, signal = 0;
    for (;;) {
        struct user_regs_struct now = registers(pid);
        if (now.rax == SYS_write && (int)now.rdi == -1 && is_syscall(pid, now.rip) &&
            is_mark(pid, now.rax, &now, text, sizeof text))
            return status;
        /* A string instruction stops after each of its elements. */
        if (now.rip != last)
            saw(now.rip);
        last = now.rip;
        status = go_on(pid, PTRACE_SINGLESTEP, signal);
        if (ended(status))
            return status;
        signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
    }
}

int main(int argc, char **argv)
{
    char text[128];
    if (argc < 3) {
        fprintf(stderr, "usage: step OUTPUT PROGRAM ARGUMENTS\n");
        return 2;
    }
    out = fopen(argv[1], "w");
    if (!out)
        fail(argv[1]);
    /* Both take turns: on one processor neither waits until the other wakes up. */
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    pid_t pid = fork();
    if (pid < 0)
        fail("fork");
    if (!pid) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    int status, entering = 0, signal = 0;
    if (waitpid(pid, &status, 0) != pid)
        fail("waiting");
    if (ended(status))
        return 1;
    if (ptrace(PTRACE_SETOPTIONS, pid, 0,
               PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL))
        fail("setting options");
    while (status = go_on(pid, PTRACE_SYSCALL, signal), !ended(status)) {
        signal = 0;
        if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
            /* A program that was started: its call has ended already. */
            if (status >> 8 != (SIGTRAP | PTRACE_EVENT_EXEC << 8) && WSTOPSIG(status) != SIGTRAP)
                signal = WSTOPSIG(status);
            continue;
        }
        entering = !entering;
        struct user_regs_struct now = registers(pid);
        if (!entering || !is_mark(pid, now.orig_rax, &now, text, sizeof text))
            continue;
        if (strncmp(text, "begin ", 6))
            continue;
        write_map(pid);
        fprintf(out, "%s\n", text);
        status = go_on(pid, PTRACE_SYSCALL, 0);
        entering = 0;
        if (ended(status))
            break;
        status = count(pid);
        write_section();
        if (ended(status))
            break;
    }
    if (fclose(out))
        fail(argv[1]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
