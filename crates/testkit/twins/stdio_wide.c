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
    /* A stream that is not sealed stays as it is. */
    file = fopen("/dev/null", "w");
    show("fputws", fputws(L"wide", file) >= 0);
    return 0;
}
