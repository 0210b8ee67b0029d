/* What other programs see of a file that this one wrote. */
#include "twin.h"

static void child_says(const char *what, const char *command)
{
    char line[200] = "";
    FILE *pipe = popen(command, "r");
    if (!fgets(line, sizeof line, pipe))
        line[0] = 0;
    line[strcspn(line, "\n")] = 0;
    say("%s: \"%s\", exit %d", what, line, WEXITSTATUS(pclose(pipe)));
}

int main(int argc, char **argv)
{
    start(argc, argv);
    close(make_file("file", 1, 10000));
    child_says("lines with the marker", "grep -c " MARKER " file");
    child_says("by redirection", "grep -c " MARKER " < file");
    child_says("a copy holds them", "cp file copy && grep -c " MARKER " copy; rm copy");
    show_file("file");
    return 0;
}
