/* login_tty and forkpty put a terminal on 0, 1 and 2 within libc: a sealed file that lay there must
 * not get what is written to the terminal. */
#include "twin.h"
#include <pty.h>
#include <signal.h>
#include <utmp.h>

static int master;

/* What reached the terminal. */
static void show_terminal(const char *what)
{
    char text[200];
    long n = read(master, text, sizeof text - 1);
    text[n < 0 ? 0 : n] = 0;
    say("%s: %s", what, strtok(text, "\r\n"));
}

int main(int argc, char **argv)
{
    int slave;
    start(argc, argv);
    alarm(30);
    report_fd = fcntl(1, F_DUPFD, 50);
    int fd = make_file("file", 1, 100);
    for (int i = 0; i < 3; i++)
        dup2(fd, i);
    close(fd);
    if (openpty(&master, &slave, NULL, NULL, NULL) < 0)
        return 1;
    pid_t child = fork();
    if (!child) {
        show("login_tty", login_tty(slave));
        say("a terminal: %d %d %d", isatty(0), isatty(1), isatty(2));
        show("write", write(1, "to the terminal\n", 16));
        _exit(0);
    }
    show_end("the child", child);
    show_terminal("login_tty");
    close(master);
    close(slave);

    child = forkpty(&master, NULL, NULL, NULL);
    if (!child) {
        say("a terminal: %d %d %d", isatty(0), isatty(1), isatty(2));
        if (write(1, "to the terminal\n", 16) == 16)
            pause(); /* until the other side has read */
        _exit(1);
    }
    show_terminal("forkpty");
    kill(child, SIGKILL);
    show_end("the child", child);
    show("the parent still has the file", write(1, MARKER, 13));
    show_file("file");
    return 0;
}
