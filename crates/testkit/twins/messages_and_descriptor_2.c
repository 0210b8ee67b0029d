/* A message of the library goes to standard error, and to nothing else that has its number: not
 * into a file or a socket that was opened after 2 was closed. What is in a name cannot play with a
 * terminal. */
#include "twin.h"
#include "direct.h"
#include <sys/socket.h>

static char name[] = "plain\033[31m\nerror: \302\233\177x";

/* Has the library say something, and reports what arrived at `from`. */
static void provoke(const char *what, int from)
{
    char got[3000];
    show(what, open(name, O_RDONLY) < 0 ? 0 : 1);
    fcntl(from, F_SETFL, O_NONBLOCK);
    long n = read(from, got, sizeof got - 1);
    got[n < 0 ? 0 : n] = 0;
    int bad = 0;
    for (long i = 0; i < n - 1; i++)
        bad += got[i] < 32 || got[i] > 126;
    say("  %s, told of %d, letters that play %d", n > 0 ? "something" : "nothing",
        strstr(got, "plain\\x1b[31m\\x0aerror: \\xc2\\x9b\\x7fx: ") != NULL, bad);
}

int main(int argc, char **argv)
{
    static char plain[6000];
    int ends[2];
    start(argc, argv);
    memset(plain, 'p', sizeof plain);
    /* Past the library: a file that is plain where a sealed one belongs. */
    long past = direct(SYS_openat, AT_FDCWD, (long)name, O_WRONLY | O_CREAT, 0600, 0, 0);
    direct(SYS_write, past, (long)plain, sizeof plain, 0, 0, 0);
    direct(SYS_close, past, 0, 0, 0, 0, 0);

    if (pipe(ends) < 0)
        return 1;
    show("dup2", dup2(ends[1], 2));
    provoke("a pipe", ends[0]);
    close(2);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0)
        return 1;
    show("dup2", dup2(ends[0], 2));
    provoke("a socket", ends[1]);
    close(2);
    char template[] = "/tmp/descriptor-2-XXXXXX";
    int data = mkstemp(template);
    show("a data file elsewhere", data == 2 ? 0 : 1);
    provoke("a data file", data);
    show_size("its size", data);
    close(2);
    unlink(template);
    show("a sealed file", open("sealed", O_RDWR | O_CREAT, 0600) == 2 ? 0 : 1);
    provoke("a sealed file", 2);
    show_size("its size", 2);
    close(2);
    int log = open(template, O_RDWR | O_CREAT | O_APPEND, 0600);
    show("a log", log == 2 ? 0 : 1);
    int reader = open(template, O_RDONLY);
    provoke("a log", reader);
    unlink(template);
    show("unlink", unlink(name));
    return 0;
}
