/* A file without a name lives until its last descriptor closes; the name may come back for another.
 */
#include "twin.h"

int main(int argc, char **argv)
{
    char back[64], text[5000];
    struct stat st;
    start(argc, argv);
    int fd = make_file("gone", 1, 5000);
    show("unlink", unlink("gone"));
    show("open", open("gone", O_RDONLY));
    show("stat", stat("gone", &st));
    show("fstat", fstat(fd, &st));
    say("links %ld size %ld", (long)st.st_nlink, (long)st.st_size);
    show_read("read", read(fd, back, 50), back);
    int new = make_file("gone", 2, 100);
    fill(text, sizeof text, 3, 0);
    show("write", pwrite(fd, text, 5000, 4000));
    show_file("gone");
    show_size("the unnamed", fd);
    show_read("read", pread(fd, back, 50, 8970), back);
    show("ftruncate", ftruncate(fd, 4001));
    show_read("read", pread(fd, back, 50, 3990), back);
    show("write to the new", pwrite(new, text, 10, 95));
    show("close", close(fd));
    show_file("gone");
    show("unlink twice", unlink("gone") | unlink("gone"));
    show("unlink a directory", unlink("."));
    show("remove", remove("none"));
    show("rmdir", rmdir("none"));
    show("mkdir", mkdir("folder", 0700));
    close(make_file("folder/in", 4, 50));
    show("rmdir of a full one", rmdir("folder"));
    show("unlinkat", unlinkat(open("folder", O_RDONLY), "in", 0));
    show("rmdir", rmdir("folder"));
    int last = open("kept", O_RDWR | O_CREAT, 0600);
    show("write", write(last, text, 1000));
    show_file("kept");
    return 0;
}
