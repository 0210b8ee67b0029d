/* freopen of a stream that was opened on something else: of the standard three it works, the
 * variable is replaced; a stream that the program keeps in a variable of its own cannot become
 * another one. */
#include "twin.h"

int main(int argc, char **argv)
{
    char line[100];
    start(argc, argv);
    close(make_file("a", 1, 1000));
    show("stdin", freopen("a", "r", stdin) == stdin);
    show_read("fread", fread(line, 1, 40, stdin), line);
    show("fileno", fileno(stdin));
    FILE *file = fopen("/dev/zero", "r");
    show("freopen", freopen("a", "r", file) == NULL ? -1 : 0);
    return 0;
}
