/* What open refuses and with which errno: O_EXCL, missing files, directories, links, modes. */
#include "twin.h"

static int try(const char *what, int fd)
{
    show_ok(what, fd);
    if (fd >= 0)
        close(fd);
    return fd;
}

int main(int argc, char **argv)
{
    struct stat st;
    start(argc, argv);
    try("O_EXCL creates", open("once", O_RDWR | O_CREAT | O_EXCL, 0600));
    try("O_EXCL refuses", open("once", O_RDWR | O_CREAT | O_EXCL, 0600));
    try("O_CREAT opens", open("once", O_RDWR | O_CREAT, 0600));
    try("missing", open("missing", O_RDWR));
    try("missing directory", open("none/file", O_RDWR | O_CREAT, 0600));
    try("file as directory", open("once/file", O_RDWR | O_CREAT, 0600));
    try("empty name", open("", O_RDONLY));
    try("trailing slash", open("once/", O_RDONLY));
    show("mkdir", mkdir("folder", 0755));
    try("directory to write", open("folder", O_RDWR));
    try("directory to create", open("folder", O_RDONLY | O_CREAT, 0600));
    try("directory to read", open("folder", O_RDONLY));
    try("O_DIRECTORY", open("folder", O_RDONLY | O_DIRECTORY));
    try("O_DIRECTORY of a file", open("once", O_RDONLY | O_DIRECTORY));
    show("symlink", symlink("once", "link"));
    show("dangling", symlink("nowhere", "dangling"));
    show("loop", symlink("loop", "loop"));
    try("O_NOFOLLOW", open("link", O_RDONLY | O_NOFOLLOW));
    try("link", open("link", O_RDONLY));
    try("O_EXCL of a link", open("link", O_RDONLY | O_CREAT | O_EXCL, 0600));
    try("O_EXCL of a dangling one", open("dangling", O_RDONLY | O_CREAT | O_EXCL, 0600));
    try("loop", open("loop", O_RDONLY));
    show("unlink", unlink("loop"));
    try("dangling", open("dangling", O_RDONLY));
    try("dangling creates", open("dangling", O_RDWR | O_CREAT, 0640));
    show("its target", stat("nowhere", &st));
    say("mode %o size %ld", st.st_mode & 07777, (long)st.st_size);
    char longname[300];
    memset(longname, 'x', 299);
    longname[299] = 0;
    try("long name", open(longname, O_RDWR | O_CREAT, 0600));

    const mode_t modes[] = {0600, 0666, 0777, 0400, 0640};
    for (int i = 0; i < 5; i++) {
        char name[20];
        snprintf(name, sizeof name, "mode-%o", modes[i]);
        int fd = open(name, O_RDWR | O_CREAT, modes[i]);
        show_ok("open", fd);
        show("write", write(fd, MARKER " mode", 18));
        show("fstat", fstat(fd, &st));
        say("%s: %o", name, st.st_mode & 07777);
        close(fd);
    }
    show("open64", close(open64("once", O_RDWR)));
    show("O_CLOEXEC", fcntl(open("once", O_RDONLY | O_CLOEXEC), F_GETFD));
    show("without", fcntl(open("once", O_RDONLY), F_GETFD));
    try("O_PATH", open("once", O_PATH));
    try("O_NOATIME", open("once", O_RDONLY | O_NOATIME));
    try("O_NONBLOCK", open("once", O_RDONLY | O_NONBLOCK));
    try("O_NOCTTY", open("once", O_RDWR | O_NOCTTY | O_LARGEFILE));
    /* open(2) leaves out what it does not know, and all but a few beside O_PATH; openat2(2) refuses
     * both. MySQL passes a mode as flags. */
    try("unknown bits", open("stray", O_RDWR | O_CREAT | O_EXCL | 0x28, 0600));
    try("all unknown bits", open("once", O_RDONLY | 0x28 | (int)0x8e000000));
    try("O_PATH and others", open("mode-600", O_PATH | O_RDWR | O_TRUNC | O_APPEND));
    try("O_PATH and O_CREAT", open("mode-600", O_PATH | O_CREAT, 0644));
    show("stat", stat("mode-600", &st));
    say("size %ld", (long)st.st_size);

    /* To cut what is empty already gives it new times. */
    const struct timespec long_ago[2] = {{1000, 0}, {1000, 0}};
    struct stat now;
    for (int with_header = 0; with_header < 2; with_header++) {
        close(make_file("empty", 1, with_header ? 10 : 0));
        if (with_header)
            show("truncate", truncate("empty", 0));
        show("utimensat", utimensat(AT_FDCWD, "empty", long_ago, 0));
        int fd = show_ok("open", open("empty", O_WRONLY | O_TRUNC));
        show("stat", stat("empty", &now));
        say("size %ld, new times: %d", (long)now.st_size, now.st_mtime > 1000);
        show("close", close(fd));
    }
    return 0;
}
