/* Says what a round was, so that a person can follow it. */
#ifndef TELL_H
#define TELL_H
#include "shadow.h"

static void tell_op(const struct op *op, uint64_t zero)
{
    static const char *kinds[] = {"write",
                                  "pwrite",
                                  "writev",
                                  "pwritev",
                                  "read",
                                  "pread",
                                  "readv",
                                  "preadv",
                                  "lseek",
                                  "fstat",
                                  "stat",
                                  "ftruncate",
                                  "truncate",
                                  "open(O_TRUNC)",
                                  "fallocate",
                                  "fallocate(KEEP_SIZE)",
                                  "fallocate(PUNCH_HOLE)",
                                  "rename",
                                  "reopen"};
    static const char *flavours[] = {"ordinary", "O_APPEND", "O_DSYNC", "O_APPEND|O_SYNC"};
    static const char *by[] = {"", " by a duplicate", " by a forked child"};
    static const char *whence[] = {"SET", "CUR", "END"};
    printf("  %s %u: process %d thread %d, %s, %s%s%s: ", op->asks ? "afterwards" : "operation",
           op->number, op->worker / THREADS, op->worker % THREADS, flavours[op->flavour],
           kinds[op->kind], by[op->by], op->zeros && is_write(op) ? " of zeros" : "");
    if (op->kind == SEEK)
        printf("%ld SEEK_%s", op->at, whence[op->whence]);
    else if (op->kind == RENAME || has_path(op))
        printf("name %d, %ld", op->name, op->at);
    else if (op->kind == FSTAT || op->kind == REOPEN)
        printf("now");
    else if (op->kind == FTRUNCATE)
        printf("to %ld", op->at);
    else if (is_offset(op) || is_append(op))
        printf("%ld bytes", op->len);
    else
        printf("%ld bytes at %ld", op->len, op->at);
    if (op->stage == 2)
        printf(" = %ld%s%s; from %" PRIu64 " to %" PRIu64 " ns", op->result, op->error ? " " : "",
               op->error ? strerror(op->error) : "", op->start - zero, op->end - zero);
    else
        printf(op->stage ? "; has not returned" : "; has not begun");
    printf("\n");
}

static void tell_round(int file, const struct known *known, struct op **ops, int count)
{
    uint64_t zero = UINT64_MAX;
    for (int i = 0; i < count; i++)
        if (ops[i]->stage && ops[i]->start < zero)
            zero = ops[i]->start;
    printf("file %s (%s), size before %ld\n", path_of(file, known->places.name), class_of(file),
           known->image.size);
    for (int i = 0; i < count; i++)
        tell_op(ops[i], zero);
}
#endif
