/* From every size beside an edge to every other, down and up: what was cut never comes back, what
 * stayed is unchanged, what grew is zeros, and a write at the new end lands right. */
#include "twin.h"

int main(int argc, char **argv)
{
    char text[64];
    start(argc, argv);
    fill(text, sizeof text, 2, 0);
    int kept = 0;
    for (int i = 0; i < EDGES; i++) {
        for (int j = 0; j < EDGES; j++) {
            char name[60];
            snprintf(name, sizeof name, "cut-%ld-%ld", edges[i], edges[j]);
            int fd = make_file(name, i + 1, edges[i]);
            if (ftruncate(fd, edges[j]) < 0)
                show("ftruncate", -1);
            show_size(name, fd);
            show_file(name);
            /* Up again over the cut: zeros, not the old bytes. */
            if (ftruncate(fd, 8193) < 0)
                show("ftruncate", -1);
            show_file(name);
            if (ftruncate(fd, edges[j]) < 0)
                show("ftruncate", -1);
            if (pwrite(fd, text, 21, edges[j]) != 21)
                show("pwrite", -1);
            show_file(name);
            close(fd);
            if (++kept % 7)
                unlink(name);
        }
    }
    return 0;
}
