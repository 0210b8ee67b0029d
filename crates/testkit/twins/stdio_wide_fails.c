/* What wide streams of sealed files do not do; ferror shows it. */
#include "twin.h"
#include <locale.h>
#include <wchar.h>

int main(int argc, char **argv)
{
    start(argc, argv);
    /* A letter that the locale does not know: an error now or, plain, when it is written. */
    FILE *file = fopen("ascii", "w");
    int done = fputwc(L'\u20ac', file) != WEOF && fflush(file) == 0;
    say("an unknown letter is written: %d, error %d", done, !!ferror(file));
    fclose(file);
    show_file("ascii");
    setlocale(LC_ALL, "C.UTF-8");

    /* By a format nothing is read. */
    int number = 0;
    file = fopen("number", "w");
    show("fputws", fputws(L"17 18\n", file) >= 0);
    show("fclose", fclose(file));
    file = fopen("number", "r");
    show("fwscanf", fwscanf(file, L"%d", &number));
    say("%d, error %d", number, !!ferror(file));
    fclose(file);

    /* A stream that is not sealed stays as it is. */
    file = fopen("/dev/null", "r");
    show("fwscanf", fwscanf(file, L"%d", &number));
    say("error %d", !!ferror(file));
    return 0;
}
