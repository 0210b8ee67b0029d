/* O_TRUNC while another descriptor is open: the other sees an empty file and then the new bytes,
 * under the key that it already has. */
#include "twin.h"

int main(int argc, char **argv)
{
    char text[9000], back[9000];
    start(argc, argv);
    int old = make_file("held", 1, 9000);
    show_read("read", read(old, back, 100), back);
    int new = open("held", O_RDWR | O_TRUNC);
    show_size("seen by the old", old);
    show("old reads", read(old, back, 100));
    show("old reads at 0", pread(old, back, 100, 0));
    fill(text, sizeof text, 2, 0);
    show("new writes", write(new, text, 5001));
    show_read("old reads at 0", pread(old, back, 9000, 0), back);
    show_read("old reads on", read(old, back, 9000), back);
    show("old writes behind", pwrite(old, text, 77, 8000));
    show_read("new reads it", pread(new, back, 9000, 4990), back);
    show_size("seen by the new", new);
    for (int i = 0; i < 3; i++) {
        int again = open("held", O_WRONLY | O_TRUNC | O_CREAT, 0600);
        show("written again", write(again, text + 100 * i, 16 * i + 1));
        close(again);
        show_read("old reads", pread(old, back, 9000, 0), back);
    }
    show("ftruncate to nothing", ftruncate(new, 0));
    show("old appends", pwrite(old, text, 4096, 0));
    show("O_RDONLY with O_TRUNC", close(open("held", O_RDONLY)));
    show_file("held");
    int creat_fd = creat("held", 0644);
    show("creat", creat_fd >= 0);
    show("creat is write-only", read(creat_fd, back, 1));
    show_size("after creat", old);
    show("write", write(creat_fd, text, 1234));
    show_file("held");
    return 0;
}
