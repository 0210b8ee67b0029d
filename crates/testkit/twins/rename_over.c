/* rename over a file, in one directory and across directories: a descriptor of the old file keeps
 * the old bytes, the name gives the new ones, and keys never depend on names. */
#include "twin.h"

int main(int argc, char **argv)
{
    char back[64];
    start(argc, argv);
    int a = make_file("a", 1, 5000), b = make_file("b", 2, 3000);
    show("rename", rename("a", "b"));
    show_read("old a", read(a, back, 40), back);
    show_read("old b", read(b, back, 40), back);
    show("write to the replaced", pwrite(b, MARKER " replaced", 22, 3000));
    show_file("b");
    show("a is gone", access("a", F_OK));
    show("write to the renamed", pwrite(a, MARKER " renamed", 21, 5000));
    show_file("b");
    show("rename to itself", rename("b", "b"));
    show("rename of the missing", rename("a", "c"));

    show("mkdir", mkdir("one", 0755));
    show("mkdir", mkdir("two", 0755));
    int c = make_file("one/c", 3, 4097);
    show("across", rename("one/c", "two/d"));
    show_file("two/d");
    show("write", write(c, MARKER " across", 20));
    show_file("two/d");
    show("up", rename("two/d", "d"));
    show("down by path with dots", rename("./two/../d", "one/./e"));
    show_file("one/e");
    show("directory", rename("one", "three"));
    show_file("three/e");
    show("directory to a new name with a slash", rename("three", "four/"));
    show("and back with two", rename("four", "three//"));
    show("file to a name with a slash", rename("b", "five/"));
    show_file("three/e");
    show("directory into itself", rename("three", "three/x"));
    show("file over directory", rename("b", "two"));
    show("directory over file", rename("two", "b"));
    close(make_file("two/full", 4, 10));
    show("over a full directory", rename("three", "two"));

    show("RENAME_NOREPLACE", renameat2(AT_FDCWD, "b", AT_FDCWD, "three/e", RENAME_NOREPLACE));
    show("RENAME_NOREPLACE", renameat2(AT_FDCWD, "b", AT_FDCWD, "f", RENAME_NOREPLACE));
    show("RENAME_EXCHANGE", renameat2(AT_FDCWD, "f", AT_FDCWD, "three/e", RENAME_EXCHANGE));
    show_file("f");
    show_file("three/e");
    show("durable", fsync(open("three", O_RDONLY | O_DIRECTORY)));

    /* What databases do: write a temporary file, sync it, rename it over the old one. */
    for (int i = 0; i < 5; i++) {
        int fd = make_file("state.tmp", 10 + i, 1000 * i + 7);
        show("fsync", fsync(fd));
        close(fd);
        show("rename", rename("state.tmp", "state"));
        show_file("state");
    }
    return 0;
}
