/* Through O_WRONLY: every start and length inside three 16-byte blocks, and across a unit's edge.
 * What lies around each write must stay. */
#include "twin.h"

int main(int argc, char **argv)
{
    char text[64];
    start(argc, argv);
    for (int base = 0; base <= 4080; base += 4080) {
        for (int at = 0; at < 33; at += 1 + (at > 17)) {
            for (int n = 1; n < 34; n = n * 2 + (at & 1)) {
                char name[40];
                snprintf(name, sizeof name, "partial-%d", base);
                close(make_file(name, 1, 5003));
                int fd = open(name, O_WRONLY);
                fill(text, n, 2, base + at);
                if (pwrite(fd, text, n, base + at) != n)
                    show("pwrite", -1);
                show_size(name, fd);
                close(fd);
                show_file(name);
            }
        }
    }
    /* The same at the end, which moves, without O_TRUNC in between. */
    int fd = open("growing", O_WRONLY | O_CREAT, 0644);
    long at = 0;
    for (int i = 0; i < 200; i++) {
        int n = i % 37 + 1;
        fill(text, n, 3, at);
        if (write(fd, text, n) != n)
            show("write", -1);
        at += n;
        if (i % 20 == 0)
            show_file("growing");
    }
    show_file("growing");
    return 0;
}
