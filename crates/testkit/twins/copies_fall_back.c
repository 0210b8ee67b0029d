/* copy_file_range, sendfile, splice and FICLONE move bytes inside the kernel, where sealed files
 * have sealed bytes. They may be carried out or refused with an errno that makes callers copy by
 * hand; in both cases the copy has the plain bytes, and never others. */
#include "twin.h"
#include <sys/ioctl.h>
#include <linux/fs.h>
#include <sys/sendfile.h>

static int may_fall_back(int number)
{
    return number == EXDEV || number == EINVAL || number == ENOSYS || number == EOPNOTSUPP ||
           number == ENOTTY;
}

static void copy_by_hand(int from, int to)
{
    char text[3000];
    long n;
    lseek(from, 0, SEEK_SET);
    lseek(to, 0, SEEK_SET);
    while ((n = read(from, text, sizeof text)) > 0)
        if (write(to, text, n) != n)
            show("write", -1);
}

/* Copies all bytes with one of the calls, or by hand after its first refusal. */
static void copy(const char *what, int from, int to, int how)
{
    long n = 1, total = 0;
    int pipes[2];
    if (pipe(pipes) < 0)
        return;
    while (n > 0) {
        if (how == 0)
            n = copy_file_range(from, NULL, to, NULL, 1 << 20, 0);
        else if (how == 1)
            n = sendfile(to, from, NULL, 1 << 20);
        else if (how == 2) {
            n = ioctl(to, FICLONE, from);
        } else {
            n = splice(from, NULL, pipes[1], NULL, 60000, 0);
            if (n > 0)
                n = splice(pipes[0], NULL, to, NULL, n, 0);
        }
        if (n > 0)
            total += n;
    }
    if (n < 0 && total == 0 && may_fall_back(errno))
        copy_by_hand(from, to);
    else if (n < 0)
        show(what, n);
    close(pipes[0]);
    close(pipes[1]);
    say("%s", what);
}

int main(int argc, char **argv)
{
    const char *names[] = {"copy_file_range", "sendfile", "ficlone", "splice"};
    char outside[] = "/tmp/twin-XXXXXX", back[100];
    start(argc, argv);
    int from = make_file("from", 1, 12345);
    int plain = mkstemp(outside);
    for (int how = 0; how < 4; how++) {
        int to = open(names[how], O_RDWR | O_CREAT, 0644);
        show("lseek", lseek(from, 0, SEEK_SET));
        copy(names[how], from, to, how);
        close(to);
        show_file(names[how]);
        /* To a plain file and back. */
        show("lseek", lseek(from, 0, SEEK_SET) | lseek(plain, 0, SEEK_SET) | ftruncate(plain, 0));
        copy("to a plain file", from, plain, how);
        show_file(outside);
        char name[40];
        snprintf(name, sizeof name, "%s-back", names[how]);
        to = open(name, O_RDWR | O_CREAT, 0644);
        show("lseek", lseek(plain, 0, SEEK_SET));
        copy("from a plain file", plain, to, how);
        close(to);
        show_file(name);
    }
    unlink(outside);

    /* Into a pipe, where no hand copy can follow but a read. */
    int pipes[2];
    show("pipe", pipe(pipes));
    show("lseek", lseek(from, 0, SEEK_SET));
    long n = sendfile(pipes[1], from, NULL, 100);
    if (n < 0 && may_fall_back(errno))
        n = read(from, back, 100), n = write(pipes[1], back, n);
    show_read("through the pipe", read(pipes[0], back, 100), back);
    return 0;
}
