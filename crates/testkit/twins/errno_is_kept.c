/* A call that succeeds leaves errno as it was, on fast and slow paths. */
#include "twin.h"

static void keeps(const char *call, long ret)
{
    if (ret < 0)
        show(call, ret);
    else
        say("%s keeps errno: %d", call, errno == 12345);
    errno = 12345;
}

int main(int argc, char **argv)
{
    static char page[8192];
    struct stat st;
    start(argc, argv);
    fill(page, sizeof page, 1, 0);
    errno = 12345;
    int fd = open("file", O_RDWR | O_CREAT, 0644);
    keeps("open", fd);
    keeps("write", write(fd, page, 8192));
    keeps("pwrite", pwrite(fd, page, 8192, 8192));
    keeps("pread", pread(fd, page, 8192, 0));
    keeps("pwrite odd", pwrite(fd, page, 77, 16380));
    keeps("pread odd", pread(fd, page, 77, 16380));
    keeps("read at the end", pread(fd, page, 77, 100000));
    keeps("lseek", lseek(fd, 5, SEEK_SET));
    keeps("write odd", write(fd, page, 5));
    keeps("read odd", read(fd, page, 5));
    keeps("fstat", fstat(fd, &st));
    keeps("stat", stat("file", &st));
    keeps("ftruncate", ftruncate(fd, 1001));
    keeps("ftruncate", ftruncate(fd, 10001));
    keeps("fsync", fsync(fd));
    keeps("F_GETFL", fcntl(fd, F_GETFL));
    int copy = dup(fd);
    keeps("dup", copy);
    keeps("close", close(copy));
    keeps("rename", rename("file", "renamed"));
    keeps("link", link("renamed", "linked"));
    keeps("open", copy = open("linked", O_WRONLY | O_APPEND));
    keeps("append", write(copy, MARKER, 13));
    keeps("unlink", unlink("linked"));
    keeps("access", access("renamed", R_OK));
    keeps("truncate", truncate("renamed", 500));
    keeps("close", close(copy));
    keeps("open", copy = open("/dev/null", O_RDWR));
    keeps("write to /dev/null", write(copy, page, 100));
    show_file("renamed");
    return 0;
}
