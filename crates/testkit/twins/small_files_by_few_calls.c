/* What is done to small files, once each between marks that a trace of system calls shows: a write
 * to descriptor -1 that names what follows. The files were used before, so their keys are known. */
#include "twin.h"

enum { PAGE = 8192 };

static void mark(const char *text)
{
    syscall(SYS_write, -1, text, strlen(text));
}

int main(int argc, char **argv)
{
    static char page[PAGE] __attribute__((aligned(4096)));
    struct stat found;
    int bad = 0;
    start(argc, argv);
    show("mkdir", mkdir("base", 0700) | mkdir("base/5", 0700));
    fill(page, PAGE, 1, 0);
    int fd = open("base/5/16384", O_RDWR | O_CREAT | O_EXCL, 0600);
    bad += pwrite(fd, page, PAGE, 0) != PAGE;
    bad += pwrite(fd, page, 100, 1000) != 100;
    close(fd);
    close(open("base/5/16384", O_RDWR));
    mark("begin open and close");
    fd = open("base/5/16384", O_RDWR);
    bad += close(fd) != 0;
    mark("end");
    mark("begin sync");
    fd = open("base/5/16384", O_RDWR);
    bad += fsync(fd) != 0;
    bad += close(fd) != 0;
    mark("end");
    /* Memory that is filled for the first time is looked at. */
    fd = open("base/5/16384", O_RDWR);
    bad += pread(fd, page, PAGE, 0) != PAGE;
    bad += close(fd) != 0;
    fd = open("base/5/16384", O_RDWR);
    mark("begin first read");
    bad += pread(fd, page, PAGE, 0) != PAGE;
    mark("end");
    mark("begin writeback of all");
    bad += sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE) != 0;
    mark("end");
    mark("begin writeback of a later range");
    bad += sync_file_range(fd, 4096, 4096, SYNC_FILE_RANGE_WRITE) != 0;
    mark("end");
    bad += sync_file_range(fd, 0, -1, SYNC_FILE_RANGE_WRITE) != -1 || errno != EINVAL;
    mark("begin fstat");
    bad += fstat(fd, &found) != 0 || found.st_size != PAGE;
    mark("end");
    mark("begin stat");
    bad += stat("base/5/16384", &found) != 0 || found.st_size != PAGE;
    mark("end");
    mark("begin write within a page");
    bad += pwrite(fd, page, 100, 1000) != 100;
    mark("end");
    close(fd);
    /* A server's log: text, appended. */
    fd = open("server.log", O_WRONLY | O_CREAT | O_APPEND, 0600);
    for (int i = 0; i < 3; i++)
        bad += write(fd, page, 100) != 100;
    mark("begin append");
    bad += write(fd, page, 100) != 100;
    mark("end");
    close(fd);
    /* A log that is written on from its own end, by lengths that are whole blocks. */
    fd = open("redo", O_RDWR | O_CREAT, 0600);
    for (int i = 0; i < 3; i++)
        bad += write(fd, page, 512) != 512;
    mark("begin write on");
    bad += write(fd, page, 512) != 512;
    mark("end");
    mark("begin pwrite of blocks");
    bad += pwrite(fd, page, 512, 512) != 512;
    mark("end");
    close(fd);
    /* Pages one after another, as a base backup writes them and a copy reads them. */
    fd = open("base/5/16385", O_RDWR | O_CREAT, 0600);
    for (int i = 0; i < 3; i++)
        bad += write(fd, page, PAGE) != PAGE;
    mark("begin a page by write");
    bad += write(fd, page, PAGE) != PAGE;
    mark("end");
    bad += lseek(fd, 0, SEEK_SET) != 0 || read(fd, page, PAGE) != PAGE;
    mark("begin rewind and read");
    bad += lseek(fd, 0, SEEK_SET) != 0;
    bad += read(fd, page, PAGE) != PAGE;
    bad += lseek(fd, 0, SEEK_CUR) != PAGE;
    mark("end");
    close(fd);
    /* What has been cut is written out at its close by ext4. */
    mark("begin a new file");
    fd = open("base/5/16386", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    mark("end");
    close(fd);
    say("bad %d", bad);
    show_file("base/5/16384");
    show_file("server.log");
    show_file("redo");
    show_file("base/5/16385");
    return 0;
}
