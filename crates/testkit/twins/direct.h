/* A system call by the instruction itself: no library stands in its way. */
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

static long direct(long number, long a, long b, long c, long d, long e, long f)
{
#ifdef __x86_64__
    long ret;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
#else
    long ret = syscall(number, a, b, c, d, e, f);
    ret = ret < 0 ? -errno : ret;
#endif
    if (ret >= 0 || ret < -4095)
        return ret;
    errno = (int)-ret;
    return -1;
}
