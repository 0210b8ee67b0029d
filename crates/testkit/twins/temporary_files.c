/* mkstemp and its forms, and tmpfile. */
#include "twin.h"

static void use(const char *what, int fd)
{
    char text[5000], back[60];
    struct stat st;
    show_ok(what, fd);
    if (fd < 0)
        return;
    fill(text, sizeof text, 1, 0);
    show("write", write(fd, text, 4999));
    show_read("pread", pread(fd, back, 60, 4090), back);
    show("fstat", fstat(fd, &st));
    say("mode %o size %ld cloexec %d", st.st_mode & 0777, (long)st.st_size, fcntl(fd, F_GETFD));
}

int main(int argc, char **argv)
{
    char one[] = "one.XXXXXX", two[] = "two.XXXXXX.end", three[] = "three.XXXXXX", bad[] = "bad";
    char four[] = "four.XXXXXX.end", dir[] = "dir.XXXXXX";
    start(argc, argv);
    use("mkstemp", mkstemp(one));
    use("mkstemps", mkstemps(two, 4));
    use("mkostemp", mkostemp(three, O_CLOEXEC | O_APPEND));
    use("mkostemps", mkostemps(four, 4, O_SYNC));
    show("mkstemp without Xs", mkstemp(bad));
    show("rename", rename(one, "one"));
    show("rename", rename(two, "two"));
    show("rename", rename(three, "three"));
    show("rename", rename(four, "four"));
    show_file("one");
    show_file("three");
    show_pointer("mkdtemp", mkdtemp(dir));
    show("rename", rename(dir, "dir"));
    close(make_file("dir/in", 9, 99));

    FILE *file = show_pointer("tmpfile", tmpfile());
    char back[60];
    show("fprintf", fprintf(file, "%s %d\n", "temporary", 7));
    rewind(file);
    show_pointer("fgets", fgets(back, sizeof back, file));
    show_bytes("line", back, strlen(back));
    show("fclose", fclose(file));
    return 0;
}
