/* dup2 closes what the number held before: sealed over sealed, sealed over pipe, pipe over sealed.
 * A stale entry would read one file with the key of another. */
#include "twin.h"
#include <sys/resource.h>

int main(int argc, char **argv)
{
    char back[64];
    int pipes[2];
    start(argc, argv);
    int a = make_file("a", 1, 1000), b = make_file("b", 2, 2000);
    show("dup2 a over b", dup2(a, b) == b);
    show_read("read", read(b, back, 40), back);
    show_size("now a", b);
    show("dup2 to itself", dup2(a, a) == a);
    show("dup3 to itself", dup3(a, a, 0));
    show("dup2 of a closed one", dup2(55, a));
    show_read("a is still there", read(a, back, 40), back);
    show("dup2 to -1", dup2(a, -1));
    show("dup3 with bad flags", dup3(a, 30, O_APPEND));
    show("F_DUPFD -1", fcntl(a, F_DUPFD, -1));

    show("pipe", pipe(pipes));
    show("write into the pipe", write(pipes[1], "through the pipe", 16));
    show("dup2 pipe over b", dup2(pipes[0], b) == b);
    show_read("read", read(b, back, 40), back);
    show("lseek", lseek(b, 0, SEEK_CUR));
    show("dup2 a over the pipe", dup2(a, pipes[1]) == pipes[1]);
    show("write", write(pipes[1], MARKER " over the pipe", 27));
    show("lseek", lseek(pipes[1], 0, SEEK_CUR));

    /* The number comes back for another file: nothing of the old one may stick to it. */
    int number = open("b", O_RDWR);
    show_read("read b", read(number, back, 40), back);
    close(number);
    int again = open("/dev/null", O_RDWR);
    say("the same number: %d", again == number);
    show("read of /dev/null", read(again, back, 40));
    show("write to /dev/null", write(again, back, 40));
    show("dup2 b over it", dup2(open("b", O_RDONLY), again) == again);
    show_read("read", pread(again, back, 40, 100), back);
    show("write is refused", write(again, back, 40));

    /* A number that the limit has left behind: the kernel refuses, and the file stays. */
    int high = fcntl(a, F_DUPFD, 200);
    int plain = open("/dev/null", O_RDWR);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 100;
    show("setrlimit", setrlimit(RLIMIT_NOFILE, &limit));
    show("dup2 onto a number above the limit", dup2(plain, high));
    show("write", pwrite(high, MARKER, sizeof MARKER - 1, 300));
    show_read("read", pread(high, back, 40, 300), back);
    show_file("a");
    show_file("b");
    return 0;
}
