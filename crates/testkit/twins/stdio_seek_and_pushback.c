/* fseek, ftell, rewind, fgetpos and ungetc on one update stream; the descriptor's offset after
 * fflush and fclose; switching between reading and writing. */
#include "twin.h"

int main(int argc, char **argv)
{
    char back[9000];
    fpos_t place;
    start(argc, argv);
    close(make_file("file", 1, 10001));
    FILE *file = fopen("file", "rb+");
    int fd = dup(fileno(file));
    show("fgetc", fgetc(file));
    show("ftell", ftell(file));
    show("ungetc", ungetc('Z', file));
    show("ftell", ftell(file));
    show("fgetc", fgetc(file));
    show("ungetc the same", ungetc('t', file));
    show("fseek drops it", fseek(file, 4090, SEEK_SET));
    show_read("fread", fread(back, 1, 20, file), back);
    show("fgetpos", fgetpos(file, &place));
    show("fseek back", fseek(file, -15, SEEK_CUR));
    show_read("fread", fread(back, 1, 10, file), back);
    show("fseek from the end", fseek(file, -5, SEEK_END));
    show("ftello", ftello(file));
    show_read("fread", fread(back, 1, 20, file), back);
    say("eof %d error %d", !!feof(file), !!ferror(file));
    show("fseek clears", fseek(file, 0, SEEK_END));
    say("eof %d", !!feof(file));
    show("fsetpos", fsetpos(file, &place));
    show("ftell", ftell(file));
    show("write after a seek", fwrite("WRITTEN HERE", 1, 12, file));
    show("ftell", ftell(file));
    show("fseeko", fseeko(file, 4100, SEEK_SET));
    show_read("fread", fread(back, 1, 30, file), back);
    show("fflush while reading", fflush(file));
    show("offset of the descriptor", lseek(fd, 0, SEEK_CUR));
    rewind(file);
    show_read("fread", fread(back, 1, 5, file), back);
    show("fseek negative", fseek(file, -1, SEEK_SET));
    show("ftell", ftell(file));
    show("fseek nowhere", fseek(file, 0, 77));
    show("fseeko64", fseeko64(file, 9999, SEEK_SET));
    show("fputs over the end", fputs(MARKER " over the end", file) >= 0);
    show("ftello64", ftello64(file));
    show_size("before the flush", fd);
    show("fflush", fflush(file));
    show_size("after the flush", fd);
    show("fseek past the end", fseek(file, 12345, SEEK_SET));
    show("fputc", fputc('!', file));
    rewind(file);
    show_read("fread", fread(back, 1, 100, file), back);
    show("fclose", fclose(file));
    show_file("file");

    /* Large reads by a stream in odd steps equal the file. */
    file = fopen("file", "r");
    uint64_t random = 5;
    long total = 0;
    for (;;) {
        size_t n = fread(back, 1, 1 + next_random(&random, 5000), file);
        if (n == 0)
            break;
        total += n;
        show_bytes("step", back, n);
    }
    show("total", total);
    show("fclose", fclose(file));
    return 0;
}
