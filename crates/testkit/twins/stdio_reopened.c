/* freopen: another file, another mode of the same, to files that are not sealed and back; fdopen at
 * an offset and in modes that do not fit. */
#include "twin.h"

int main(int argc, char **argv)
{
    char line[100];
    start(argc, argv);
    close(make_file("a", 1, 1000));
    close(make_file("b", 2, 2000));
    FILE *file = fopen("a", "r");
    show_read("fread", fread(line, 1, 40, file), line);
    int number = fileno(file);
    show("freopen b", freopen("b", "r+", file) == file);
    say("the same number: %d", fileno(file) == number);
    show("ftell", ftell(file));
    show_read("fread", fread(line, 1, 40, file), line);
    show("fseek", fseek(file, 0, SEEK_END));
    show("fputs", fputs(MARKER " after freopen", file) >= 0);
    show("freopen a to append", freopen("a", "a", file) == file);
    show_file("b");
    show("fputs", fputs(MARKER " appended", file) >= 0);
    show("freopen of nothing", freopen("none", "r", file) == NULL);
    show_file("a");

    file = fopen("c", "w");
    show("fputs", fputs(MARKER " to c", file) >= 0);
    show("freopen /dev/null", freopen("/dev/null", "w", file) == file);
    show("fputs", fputs("nowhere", file) >= 0);
    show("freopen d", freopen("d", "w", file) == file);
    show("fputs", fputs(MARKER " to d", file) >= 0);
    show("fclose", fclose(file));
    show_file("c");
    show_file("d");
    file = fopen("a", "r");
    show_read("fread", fread(line, 1, 40, file), line);
    show("freopen64", freopen64("b", "r", file) == file);
    show_read("fread", fread(line, 1, 40, file), line);
    show("fclose", fclose(file));

    int fd = open("a", O_RDWR);
    show("lseek", lseek(fd, 100, SEEK_SET));
    file = show_pointer("fdopen", fdopen(fd, "r+"));
    show("fileno", fileno(file) == fd);
    show("ftell", ftell(file));
    show_read("fread", fread(line, 1, 33, file), line);
    show("fseek", fseek(file, 0, SEEK_CUR));
    show("fputs", fputs(MARKER " by fdopen", file) >= 0);
    show("fflush", fflush(file));
    show("offset", lseek(fd, 0, SEEK_CUR));
    show("fclose", fclose(file));
    show("closed", lseek(fd, 0, SEEK_CUR));
    show_file("a");
    fd = open("a", O_RDONLY);
    show_pointer("fdopen to write", fdopen(fd, "w"));
    show_pointer("fdopen in a bad mode", fdopen(fd, "z"));
    show_pointer("fdopen of nothing", fdopen(300, "r"));
    fd = open("a", O_RDWR);
    file = show_pointer("fdopen w does not cut", fdopen(fd, "w"));
    show_size("a", fd);
    show("fputs", fputs("start", file) >= 0);
    show("fclose", fclose(file));
    fd = open("a", O_RDWR);
    file = show_pointer("fdopen a", fdopen(fd, "a"));
    say("append is set: %d", !!(fcntl(fd, F_GETFL) & O_APPEND));
    show("fputs", fputs("finish", file) >= 0);
    show("fclose", fclose(file));
    show_file("a");

    /* Two streams on duplicates of one descriptor. */
    fd = open("both", O_RDWR | O_CREAT, 0644);
    FILE *one = fdopen(fd, "w"), *two = fdopen(dup(fd), "r");
    show("fputs", fputs(MARKER " one writes, two reads\n", one) >= 0);
    show("fflush", fflush(one));
    show("rewind", lseek(fd, 0, SEEK_SET));
    show_pointer("fgets", fgets(line, sizeof line, two));
    show_bytes("line", line, strlen(line));
    show("fclose", fclose(two) | fclose(one));
    return 0;
}
