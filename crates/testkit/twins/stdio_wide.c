/* Wide-oriented streams. */
#include "twin.h"
#include <wchar.h>

int main(int argc, char **argv)
{
    start(argc, argv);
    FILE *file = fopen("wide", "w+");
    say("fwide = %d", fwide(file, 1) > 0);
    show("fputws", fputws(L"wide\n", file) >= 0);
    show("fputwc", fputwc(L'w', file) == L'w');
    show("fwprintf", fwprintf(file, L"%d", 7) > 0);
    show("fclose", fclose(file));
    file = fopen("wide", "r");
    show("fgetwc", fgetwc(file) != WEOF);
    fclose(file);
    wchar_t line[9];
    file = fopen("wide", "r+");
    show("getwc", getwc(file) != WEOF);
    show("fgetwc_unlocked", fgetwc_unlocked(file) != WEOF);
    show("fgetws", fgetws(line, 9, file) != NULL);
    show("ungetwc", ungetwc(L'u', file) != WEOF);
    rewind(file);
    show("fputwc_unlocked", fputwc_unlocked(L'w', file) != WEOF);
    show("putwc", putwc(L'w', file) != WEOF);
    show("putwc_unlocked", putwc_unlocked(L'w', file) != WEOF);
    show("fclose", fclose(file));
    show("dup", (report_fd = fcntl(1, F_DUPFD_CLOEXEC, 100)) > 0);
    show("dup2", dup2(open("wide", O_WRONLY), 1));
    show("putwchar", putwchar(L'w') != WEOF);
    show("putwchar_unlocked", putwchar_unlocked(L'w') != WEOF);
    show("fputws_unlocked", fputws_unlocked(L"wide", stdout) >= 0);
    /* A stream that is not sealed stays as it is. */
    file = fopen("/dev/null", "w");
    show("fputws", fputws(L"wide", file) >= 0);
    return 0;
}
