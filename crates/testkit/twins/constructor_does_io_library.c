/* The library of constructor_does_io: glibc hands a constructor the arguments of main. */
#include "twin.h"

char early_report[200];
int early_fd = -1;

__attribute__((constructor)) static void early(int argc, char **argv)
{
    char text[200], back[200], path[4200];
    struct stat st;
    if (argc != 2)
        return;
    snprintf(path, sizeof path, "%s/early", argv[1]);
    fill(text, sizeof text, 1, 0);
    early_fd = open(path, O_RDWR | O_CREAT, 0644);
    long put = write(early_fd, text, sizeof text);
    long got = pread(early_fd, back, sizeof back, 0);
    long size = stat(path, &st) < 0 ? -1 : st.st_size;
    strcat(path, "-stream");
    FILE *file = fopen(path, "w");
    int printed = file ? fprintf(file, MARKER " before main\n") : -1;
    int closed = file ? fclose(file) : -1;
    snprintf(early_report, sizeof early_report, "wrote %ld read %ld same %d size %ld printed %d %d",
             put, got, memcmp(text, back, sizeof text) == 0, size, printed, closed);
}
