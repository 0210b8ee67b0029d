/* The directory by another way: bind mounts of it and of a directory in it, /proc/self/root and
 * /proc/self/cwd. The way makes no difference to what lies on the disk. Needs root, for the mounts.
 * */
#include "twin.h"
#include <sched.h>
#include <sys/mount.h>

static char here[300], other[] = "/tmp/twin-XXXXXX", below[] = "/tmp/twin-XXXXXX";

static const char *at(const char *directory, const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static void write_all(const char *what, const char *path, int flags, unsigned seed, long n)
{
    char *text = malloc(n);
    fill(text, n, seed, 0);
    int fd = open(path, flags, 0644);
    show_ok(what, fd);
    show("  write", write(fd, text, n));
    show("  close", close(fd));
    free(text);
}

static void ways(void)
{
    write_all("create", at(other, "made"), O_WRONLY | O_CREAT | O_EXCL, 1, 5000);
    show_file("made");
    write_all("append", at(other, "made"), O_WRONLY | O_APPEND, 2, 33);
    show_file("made");
    write_all("create below", at(below, "made"), O_RDWR | O_CREAT, 3, 4097);
    show_file("sub/made");
    write_all("truncate", at(below, "made"), O_WRONLY | O_TRUNC, 4, 100);
    show_file("sub/made");
    show("mkdir", mkdir(at(other, "deep"), 0755));
    write_all("create deep", at(other, "deep/made"), O_WRONLY | O_CREAT, 5, 777);
    show_file("deep/made");
    int directory = open(other, O_RDONLY | O_DIRECTORY);
    int fd = openat(directory, "by_directory", O_RDWR | O_CREAT, 0644);
    show("write by openat", write(fd, MARKER " by openat", 23));
    show_file("by_directory");
    FILE *stream = fopen(at(other, "by_stream"), "w");
    show_pointer("fopen", stream);
    fputs(MARKER " by a stream", stream);
    fclose(stream);
    show_file("by_stream");
    show_pointer("freopen", freopen(at(other, "by_freopen"), "w", stdin));
    fputs(MARKER " by freopen", stdin);
    show("fclose", fclose(stdin));
    show_file("by_freopen");
    show("truncate by path", truncate(at(other, "made"), 4099));
    show_file("made");
    show("rename", renameat(directory, "made", directory, "moved"));
    show_file("moved");
    show("link", linkat(directory, "moved", directory, "linked", 0));
    show_file("linked");
    close(fd);
    close(directory);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    if (!getcwd(here, sizeof here) || !mkdtemp(other) || !mkdtemp(below))
        return 1;
    show("mkdir", mkdir("sub", 0755));
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        fprintf(stderr, "mounts of one's own need root, and a root directory that is a mount\n");
        return 2;
    }
    show("bind", mount(here, other, NULL, MS_BIND, NULL));
    show("bind below", mount(at(here, "sub"), below, NULL, MS_BIND, NULL));
    ways();
    show("chdir", chdir(other));
    write_all("create from here", "from_there", O_WRONLY | O_CREAT, 6, 50);
    show_file("from_there");
    show("chdir", chdir(here));
    show_file("from_there");
    char path[600];
    snprintf(path, sizeof path, "/proc/self/root%s/by_root", here);
    write_all("/proc/self/root", path, O_WRONLY | O_CREAT, 7, 60);
    show_file("by_root");
    write_all("/proc/self/cwd", "/proc/self/cwd/by_cwd", O_WRONLY | O_CREAT, 8, 70);
    show_file("by_cwd");
    show("umount", umount(below));
    show("umount", umount(other));
    write_all("no mount any more", at(other, "plain"), O_WRONLY | O_CREAT, 9, 80);
    show_file(at(other, "plain"));
    show("unlink", unlink(at(other, "plain")));
    show("rmdir", rmdir(other) | rmdir(below));
    return 0;
}
