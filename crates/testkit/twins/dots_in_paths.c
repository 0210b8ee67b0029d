/* Dots, doubled slashes and detours through the parent lead to the same file. */
#include "twin.h"

int main(int argc, char **argv)
{
    char home[4096], path[9000];
    start(argc, argv);
    show_pointer("getcwd", getcwd(home, sizeof home));
    const char *base = strrchr(home, '/') + 1;
    show("mkdir", mkdir("a", 0755) | mkdir("a/b", 0755));
    close(make_file("a/b/file", 1, 4099));
    close(make_file("file", 2, 33));
    show("a/b/file", open("a/b/file", O_RDONLY) >= 0);
    show_file("./a/./b/./file");
    show_file("a//b///file");
    show_file("a/b/../../file");
    show_file("a/../a/b/../b/file");
    snprintf(path, sizeof path, "../%s/file", base);
    show("up and back", open(path, O_RDONLY) >= 0);
    snprintf(path, sizeof path, "%s/a/../../%s/a/b/file", home, base);
    show("absolute detour", open(path, O_RDWR) >= 0);
    snprintf(path, sizeof path, "/../../%s/./file", home);
    show("above the root", open(path, O_RDONLY) >= 0);
    snprintf(path, sizeof path, "a/b/../../../%s/created", base);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
    show_ok("create by detour", fd);
    show("write", write(fd, MARKER " detour", 20));
    show_file("created");
    show("through nothing", open("none/../file", O_RDONLY));
    show("through a file", open("file/../file", O_RDONLY));
    show("ends in dots", open("a/b/..", O_RDWR));
    char *resolved = realpath("a/b/../../file", NULL);
    say("realpath: %d", resolved && strcmp(resolved + strlen(home), "/file") == 0);
    free(resolved);
    resolved = canonicalize_file_name("a/../file");
    say("canonicalize_file_name: %d", resolved && strlen(resolved) == strlen(home) + 5);
    free(resolved);
    /* A path close to PATH_MAX. */
    size_t n = strlen(strcpy(path, home));
    while (n < 4096 - 20)
        n += strlen(strcat(path + n, "/."));
    strcat(path, "/file");
    show("long path", open(path, O_RDONLY) >= 0);
    memset(path, '/', 5000);
    path[5000] = 0;
    show("too long", open(path, O_RDONLY));
    return 0;
}
