/* Eight processes append lines of odd lengths, each with its own descriptor or all with one that
 * they inherited: no line is lost, torn or out of its writer's order. */
#include "twin.h"

enum { WRITERS = 8, LINES = 150 };

static void append_lines(int fd, int writer)
{
    for (int i = 0; i < LINES; i++) {
        char line[256];
        int n = snprintf(line, sizeof line, MARKER " %d %d ", writer, i);
        int pad = (writer * 31 + i * 7) % 97;
        memset(line + n, 'a' + writer, pad);
        line[n + pad] = '\n';
        n += pad + 1;
        if (write(fd, line, n) != n)
            say("writer %d was cut at line %d", writer, i);
    }
}

static void check(const char *path)
{
    int seen[WRITERS] = {0}, bad = 0;
    char line[256];
    FILE *file = fopen(path, "r");
    while (fgets(line, sizeof line, file)) {
        int writer = -1, i = -1, at = 0;
        if (sscanf(line, MARKER " %d %d %n", &writer, &i, &at) != 2 || writer < 0 ||
            writer >= WRITERS || i != seen[writer]) {
            bad++;
            continue;
        }
        seen[writer]++;
        size_t pad = (writer * 31 + i * 7) % 97, n = strlen(line);
        if (n != at + pad + 1 || strspn(line + at, (char[]){'a' + writer, 0}) != pad)
            bad++;
    }
    fclose(file);
    say("%s: %d bad lines", path, bad);
    for (int w = 0; w < WRITERS; w++)
        say("  writer %d: %d lines", w, seen[w]);
    int fd = open(path, O_RDONLY);
    show_size(path, fd);
    close(fd);
}

static void run(const char *path, int inherited)
{
    int flags = O_WRONLY | O_APPEND | O_CREAT;
    int fd = inherited ? open(path, flags, 0644) : -1;
    pid_t child[WRITERS];
    for (int w = 0; w < WRITERS; w++) {
        child[w] = fork();
        if (child[w] == 0) {
            if (!inherited)
                fd = open(path, flags, 0644);
            append_lines(fd, w);
            _exit(0);
        }
    }
    for (int w = 0; w < WRITERS; w++)
        show_end("writer", child[w]);
    check(path);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    run("own.unordered", 0);
    run("inherited.unordered", 1);
    return 0;
}
