/* fopen in every mode: what it creates, cuts, allows to read and to write, and where it starts. */
#include "twin.h"

static void use(const char *mode, int exists)
{
    char name[40], line[80], back[50];
    static int n;
    snprintf(name, sizeof name, "mode-%d", n++);
    if (exists)
        close(make_file(name, n, 100));
    say("mode \"%s\", %s", mode, exists ? "there" : "new");
    FILE *file = show_pointer("fopen", fopen(name, mode));
    if (!file) {
        show("not made", access(name, F_OK));
        return;
    }
    show("fileno", fileno(file) > 2);
    int flags = fcntl(fileno(file), F_GETFL);
    say("access %d append %d cloexec %d", flags & O_ACCMODE, !!(flags & O_APPEND),
        fcntl(fileno(file), F_GETFD));
    show("ftell", ftell(file));
    errno = 0;
    size_t got = fread(back, 1, 50, file);
    say("fread = %zu eof %d error %d %s", got, !!feof(file), !!ferror(file), errno_name(errno));
    clearerr(file);
    show("fseek", fseek(file, 0, SEEK_CUR));
    errno = 0;
    int n_put = snprintf(line, sizeof line, MARKER " by mode %s", mode);
    size_t put = fwrite(line, 1, n_put, file);
    int flushed = fflush(file);
    say("fwrite = %zu fflush %d error %d %s", put, flushed, !!ferror(file), errno_name(errno));
    clearerr(file);
    show("ftell", ftell(file));
    show("fclose", fclose(file));
    show_file(name);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    const char *modes[] = {"r",  "w",   "a",   "r+",  "w+",  "a+", "rb",  "wb", "ab",
                           "r+b", "rb+", "wb+", "ab+", "a+b", "re", "w+e", "wx", "w+x", "rm", "rc"};
    for (unsigned i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        use(modes[i], 1);
        use(modes[i], 0);
    }
    use("q", 1);
    use("", 1);
    show_pointer("in a missing directory", fopen("none/file", "w"));
    show_pointer("a directory to write", fopen(".", "w"));
    show_pointer("fopen64", fopen64("mode-0", "r"));
    FILE *file = fopen(".", "r");
    show_pointer("a directory to read", file);
    show("fgetc", fgetc(file));
    return 0;
}
