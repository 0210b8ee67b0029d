/* A program that is not listed inherits a descriptor of a sealed file: it can neither read nor
 * write through it. */
#include "twin.h"

int main(int argc, char **argv)
{
    start(argc, argv);
    int fd = make_file("file", 1, 100);
    char command[300];
    snprintf(command, sizeof command, "echo " MARKER " leaked 2>/dev/null >&%d", fd);
    say("echo into it: %s", system(command) == 0 ? "done" : "failed");
    snprintf(command, sizeof command, "head -c 10 <&%d 2>/dev/null | grep -q . ", fd);
    say("reading it: %s", system(command) == 0 ? "bytes" : "nothing");
    show_file("file");
    return 0;
}
