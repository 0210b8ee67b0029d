/* SEEK_DATA and SEEK_HOLE of files without holes: data begins at once and the only hole is the end.
 * Where a file system puts holes is its own affair, so sparse files are only walked, not compared.
 * */
#include "twin.h"

int main(int argc, char **argv)
{
    start(argc, argv);
    for (int i = 0; i < EDGES; i++) {
        char name[40];
        snprintf(name, sizeof name, "dense-%ld", edges[i]);
        int fd = make_file(name, i + 1, edges[i]);
        say("%s", name);
        show("SEEK_DATA 0", lseek(fd, 0, SEEK_DATA));
        show("SEEK_HOLE 0", lseek(fd, 0, SEEK_HOLE));
        show("SEEK_DATA middle", lseek(fd, edges[i] / 2, SEEK_DATA));
        show("SEEK_HOLE middle", lseek(fd, edges[i] / 2, SEEK_HOLE));
        show("SEEK_DATA end", lseek(fd, edges[i], SEEK_DATA));
        show("SEEK_HOLE end", lseek(fd, edges[i], SEEK_HOLE));
        show("SEEK_DATA behind", lseek(fd, edges[i] + 1, SEEK_DATA));
        close(fd);
    }
    /* Between 1 MiB of hole and the end, the data that was written must be inside a data range. */
    char text[5000];
    fill(text, sizeof text, 50, 0);
    int fd = open("sparse", O_RDWR | O_CREAT, 0644);
    show("pwrite", pwrite(fd, text, sizeof text, 1 << 20));
    show("ftruncate", ftruncate(fd, 3 << 20));
    long data = lseek(fd, 0, SEEK_DATA);
    long hole = lseek(fd, 1 << 20, SEEK_HOLE);
    say("data starts at or before it: %d", data >= 0 && data <= 1 << 20);
    say("no hole inside it: %d", hole >= (1 << 20) + 5000);
    say("no hole behind the end: %d", hole <= 3 << 20);
    show("SEEK_HOLE last", lseek(fd, (3 << 20) - 1, SEEK_HOLE));
    show_file("sparse");
    return 0;
}
