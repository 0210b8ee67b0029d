/* stdout and stderr moved to a sealed file, by dup2 and by freopen, and back: what printf, puts,
 * write and perror write lands where the descriptor points at the flush. */
#include "twin.h"
#include <err.h>

int main(int argc, char **argv)
{
    start(argc, argv);
    report_fd = fcntl(1, F_DUPFD_CLOEXEC, 100);
    program_invocation_short_name = "twin";
    int saved = dup(1), saved_error = dup(2);
    int fd = open("out", O_RDWR | O_CREAT, 0644);
    show("dup2", dup2(fd, 1));
    show("printf", printf(MARKER " by printf %d\n", 1));
    show("puts", puts(MARKER " by puts") >= 0);
    show("putchar", putchar('c'));
    show("fwrite", fwrite("fwrite\n", 1, 7, stdout));
    show("fflush", fflush(stdout));
    show("write", write(1, MARKER " by write\n", 23));
    show("dprintf", dprintf(1, MARKER " by %s\n", "dprintf"));
    show_file("out");
    show("printf", printf(MARKER " before dup2 back\n"));
    show("fflush", fflush(stdout));
    show("dup2 back", dup2(saved, 1));
    printf("this goes to the first stdout again\n");
    fflush(stdout);
    show_file("out");

    show("dup2 of stderr", dup2(fd, 2));
    show("fprintf", fprintf(stderr, MARKER " to stderr %d\n", 2));
    errno = ENOENT;
    perror(MARKER " perror");
    errno = ENOENT;
    warn(MARKER " %s", "warn");
    show("dup2 back", dup2(saved_error, 2));
    show_file("out");

    show("freopen", freopen("again", "w", stdout) == stdout);
    say("descriptor %d", fileno(stdout));
    show("printf", printf(MARKER " after freopen\n"));
    show("write", write(1, "unbuffered\n", 11));
    show("fflush", fflush(stdout));
    show_file("again");
    show("freopen to append", freopen("again", "a", stdout) == stdout);
    show("puts", puts(MARKER " appended") >= 0);
    show("fflush", fflush(stdout));
    show_file("again");
    show("dup2 back", dup2(saved, 1));
    printf("and this goes to the first stdout at last\n");
    fflush(stdout);

    /* stdin from a sealed file. */
    fd = open("again", O_RDONLY);
    char line[100];
    show("dup2", dup2(fd, 0));
    show("scanf", scanf("%99s", line));
    say("%s", line);
    show("getchar", getchar());
    show_pointer("fgets", fgets(line, sizeof line, stdin));
    show_bytes("line", line, strlen(line));

    /* A stream that is flushed at exit only. */
    show("dup2", dup2(open("at-exit", O_WRONLY | O_CREAT, 0644), 1));
    pid_t child = fork();
    if (child == 0) {
        printf(MARKER " flushed at exit");
        exit(0);
    }
    show_end("child", child);
    show_file("at-exit");
    return 0;
}
