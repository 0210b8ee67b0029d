/* setvbuf, setbuf, setlinebuf: when bytes reach the file; fflush of all streams; exit flushes. */
#include "twin.h"

static char big[70000], small[7];

static void write_with(const char *name, char *buffer, int mode, size_t size, int set)
{
    FILE *file = fopen(name, "w+");
    if (set)
        show("setvbuf", setvbuf(file, buffer, mode, size));
    int fd = open(name, O_RDONLY);
    say("%s", name);
    show("fputs", fputs(MARKER " half a line", file) >= 0);
    show_size("after half a line", fd);
    show("fputs", fputs(" and its end\n", file) >= 0);
    show_size("after the line", fd);
    for (int i = 0; i < 100; i++)
        if (fprintf(file, MARKER " line %d\n", i) < 0)
            show("fprintf", -1);
    show("ftell", ftell(file));
    show("fflush", fflush(file));
    show_size("after fflush", fd);
    show("fwrite", fwrite(big, 1, sizeof big, file));
    show("fclose", fclose(file));
    show_size("after fclose", fd);
    close(fd);
    show_file(name);
}

int main(int argc, char **argv)
{
    static char buffer[8192];
    start(argc, argv);
    fill(big, sizeof big, 1, 0);
    write_with("default", NULL, 0, 0, 0);
    write_with("unbuffered", NULL, _IONBF, 0, 1);
    write_with("lines", NULL, _IOLBF, 0, 1);
    write_with("own", buffer, _IOFBF, sizeof buffer, 1);
    write_with("tiny", small, _IOFBF, sizeof small, 1);
    write_with("large", big, _IOFBF, 0, 1);

    FILE *a = fopen("a", "w"), *b = fopen("b", "w");
    setlinebuf(b);
    setbuf(a, NULL);
    show("fputs", fputs("a" MARKER, a) >= 0);
    show("fputs", fputs("b" MARKER "\nrest", b) >= 0);
    show_file("a");
    show_file("b");
    show("fflush of all", fflush(NULL));
    show_file("b");
    show("fputs", fputs(" at fcloseall", b) >= 0);
    show("fcloseall", fcloseall());
    show_file("b");

    /* exit and the end of main flush what is open, _exit does not. */
    for (int how = 0; how < 3; how++) {
        char name[20];
        snprintf(name, sizeof name, "exit-%d", how);
        pid_t child = fork();
        if (child == 0) {
            FILE *file = fopen(name, "w");
            fputs(MARKER " not yet flushed", file);
            if (how == 0)
                exit(0);
            if (how == 1)
                _exit(0);
            return 0;
        }
        show_end("child", child);
        show_file(name);
    }
    return 0;
}
