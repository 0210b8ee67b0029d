/* Wide-oriented streams: letters of one to four bytes, lines, formats, errors that ferror shows.
 * What fails on sealed files: stdio_wide_fails.c. */
#include "twin.h"
#include <locale.h>
#include <wchar.h>

static void show_errors(const char *what, FILE *file)
{
    say("%s: eof %d error %d", what, !!feof(file), !!ferror(file));
}

int main(int argc, char **argv)
{
    start(argc, argv);
    wchar_t line[40], long_line[3000];
    char bytes[80];
    show_pointer("setlocale", setlocale(LC_ALL, "C.UTF-8"));
    FILE *file = fopen("wide", "w+");
    say("fwide = %d", fwide(file, 0));
    say("fwide = %d", fwide(file, 1) > 0);
    say("fwide = %d", fwide(file, -1) > 0);
    show("fputws", fputws(L"" MARKER " \u00e4\u20ac\U0001f600\n", file) >= 0);
    show("fputwc", fputwc(L'w', file));
    show("putwc", putwc(L'\u00df', file));
    show("fputwc_unlocked", fputwc_unlocked(L'x', file));
    show("putwc_unlocked", putwc_unlocked(L'\n', file));
    show("fputws_unlocked", fputws_unlocked(L"unlocked\n", file) >= 0);
    show("fwprintf", fwprintf(file, L"%d %ls %s %.2f %d %d %d %d %.1f %c\n", 7, L"\u00fc", "n", 1.5,
                              1, 2, 3, 4, 0.5, 'z'));
    for (int i = 0; i < 2999; i++)
        long_line[i] = L'a' + i % 26;
    long_line[2999] = 0;
    show("fwprintf", fwprintf(file, L"%ls\n", long_line));
    show("fflush", fflush(file));
    show_errors("written", file);
    rewind(file);
    show("fgetwc", fgetwc(file));
    show("ungetwc", ungetwc(L'\u20ac', file));
    show("getwc", getwc(file));
    show("getwc_unlocked", getwc_unlocked(file));
    show_pointer("fgetws", fgetws(line, 5, file));
    show_bytes("line", bytes, wcstombs(bytes, line, sizeof bytes));
    show_pointer("fgetws", fgetws(line, 40, file));
    show_bytes("line", bytes, wcstombs(bytes, line, sizeof bytes));
    show_pointer("fgetws of one", fgetws(line, 1, file));
    show("its length", wcslen(line));
    int letters = 0;
    uint64_t sum = 0;
    for (wint_t letter; (letter = fgetwc_unlocked(file)) != WEOF; letters++)
        sum = sum * 31 + letter;
    say("%d letters %016lx", letters, (unsigned long)sum);
    show_errors("read", file);
    show_pointer("fgetws at the end", fgetws(line, 40, file));
    show("fclose", fclose(file));
    show_file("wide");

    /* A last line without an end, and half a letter there. */
    file = fopen("half", "w");
    show("fputs", fputs("last\xe2\x82", file) >= 0);
    show("fclose", fclose(file));
    file = fopen("half", "r");
    letters = 0;
    while (fgetwc(file) != WEOF)
        letters++;
    say("%d letters, error %d %s", letters, !!ferror(file), errno_name(errno));
    fclose(file);
    file = fopen("half", "r");
    show_pointer("fgetws", fgetws(line, 5, file));
    show_pointer("fgetws of half a letter", fgetws(line, 40, file));
    fclose(file);

    /* What may not be written shows an error, and closing tells. */
    file = fopen("wide", "r");
    show("fputwc to a reader", fputwc(L'w', file) == WEOF);
    show_errors("reader", file);
    show("fputws to a reader", fputws(L"w", file) < 0);
    show("fwprintf to a reader", fwprintf(file, L"%d", 1) < 0);
    fclose(file);

    /* Standard streams. */
    show("dup", (report_fd = fcntl(1, F_DUPFD_CLOEXEC, 100)) > 0);
    show("dup2", dup2(open("out", O_RDWR | O_CREAT, 0644), 1));
    show("putwchar", putwchar(L'\u00e4'));
    show("putwchar_unlocked", putwchar_unlocked(L'w'));
    show("wprintf", wprintf(L"%d %.1f\n", 5, 2.5));
    show("fflush", fflush(stdout));
    show_file("out");
    show("dup2", dup2(open("out", O_RDONLY), 0));
    show("getwchar", getwchar());
    show("getwchar_unlocked", getwchar_unlocked());
    /* A stream that is not sealed stays as it is. */
    file = fopen("/dev/null", "w");
    show("fputws", fputws(L"wide", file) >= 0);
    show("fwprintf", fwprintf(file, L"%d %.2f", 7, 1.5));
    return 0;
}
