/* Formatted and line-wise reading and writing through sealed streams. */
#include "twin.h"

int main(int argc, char **argv)
{
    char line[300], word[40], *grown = NULL;
    size_t room = 0;
    int a, b;
    double d;
    long n;
    start(argc, argv);
    FILE *file = fopen("lines", "w");
    for (int i = 0; i < 300; i++) {
        if (fprintf(file, MARKER " %d %x word%d %.3f\n", i, i * 77, i, i / 7.0) < 0)
            show("fprintf", -1);
        if (i % 50 == 0) {
            show("fputs", fputs("a line by fputs\n", file) >= 0);
            show("fputc", fputc('c', file));
            show("putc", putc('\n', file));
            show("puts to stdout is elsewhere", 0);
        }
    }
    show("fprintf wide", fprintf(file, "%*d|%-30s|\n", 5000, 7, "left"));
    show("fwrite", fwrite("the end, no newline", 1, 19, file));
    show("ftell", ftell(file));
    show("fclose", fclose(file));
    show_file("lines");

    file = fopen("lines", "r");
    show("fscanf", fscanf(file, "%39s %d %x", word, &a, (unsigned *)&b));
    say("%s %d %d", word, a, b);
    show("fscanf", fscanf(file, " %39s %lf", word, &d));
    say("%s %.3f", word, d);
    show("fgetc", fgetc(file));
    show_pointer("fgets", fgets(line, sizeof line, file));
    show_bytes("line", line, strlen(line));
    show_pointer("fgets short", fgets(line, 8, file));
    show_bytes("line", line, strlen(line));
    show("getline", getline(&grown, &room, file));
    show_bytes("line", grown, strlen(grown));
    int lines = 0;
    while ((n = getline(&grown, &room, file)) >= 0) {
        lines++;
        if (n > 1000 || lines % 60 == 0)
            show_bytes("line", grown, n);
    }
    say("%d lines, eof %d error %d", lines, !!feof(file), !!ferror(file));
    show_bytes("the last", grown, strlen(grown));
    rewind(file);
    show("getdelim", getdelim(&grown, &room, 'w', file));
    show_bytes("till w", grown, strlen(grown));
    show("getc", getc(file));
    show("ungetc", ungetc('#', file));
    show("fscanf", fscanf(file, "%39s", word));
    say("%s", word);
    show("getw", getw(file));
    show("fgetc at the end", fseek(file, 0, SEEK_END) | fgetc(file));
    say("eof %d", !!feof(file));
    show("fputs to a reader", fputs("no", file));
    say("error %d %s", !!ferror(file), errno_name(errno));
    clearerr(file);
    say("error %d", !!ferror(file));
    show("fclose", fclose(file));

    /* The unlocked forms. */
    file = fopen("unlocked", "w+");
    flockfile(file);
    show("ftrylockfile", ftrylockfile(file));
    funlockfile(file);
    show("putc_unlocked", putc_unlocked('p', file));
    show("fputc_unlocked", fputc_unlocked('q', file));
    show("fputs_unlocked", fputs_unlocked(MARKER " unlocked\n", file) >= 0);
    show("fwrite_unlocked", fwrite_unlocked("bytes", 1, 5, file));
    show("fflush_unlocked", fflush_unlocked(file));
    funlockfile(file);
    rewind(file);
    show("getc_unlocked", getc_unlocked(file));
    show("fgetc_unlocked", fgetc_unlocked(file));
    show_read("fread_unlocked", fread_unlocked(line, 1, 100, file), line);
    say("eof %d error %d", !!feof_unlocked(file), !!ferror_unlocked(file));
    clearerr_unlocked(file);
    show("fileno_unlocked", fileno_unlocked(file) == fileno(file));
    show("putw", putw(0x64656c69, file));
    show("fclose", fclose(file));
    show_file("unlocked");
    free(grown);
    return 0;
}
