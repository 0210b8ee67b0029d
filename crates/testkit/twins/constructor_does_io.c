/* A library's constructor opens, writes and reads files before main, perhaps before the preloaded
 * library's own constructor ran. */
#include "twin.h"

extern char early_report[];
extern int early_fd;

int main(int argc, char **argv)
{
    char back[64];
    start(argc, argv);
    say("%s", early_report);
    show_read("what it left open", pread(early_fd, back, 50, 0), back);
    show("write", pwrite(early_fd, MARKER " in main", 21, 100));
    show_file("early");
    show_file("early-stream");
    return 0;
}
