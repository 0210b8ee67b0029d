/* A protected directory whose keys this program does not have: nothing can be sealed there, so
 * nothing is written, made or moved there. Reading, and directories, are free. */
#include "twin.h"

static void put(const char *path, int flags, const char *text)
{
    int fd = open(path, flags, 0644);
    show_ok(path, fd);
    if (fd >= 0)
        show("  write", write(fd, text, strlen(text)));
    close(fd);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    show("mkdir", mkdir("../b", 0755));
    put("../b/before", O_WRONLY | O_CREAT, MARKER " before");
    show("mkdir", mkdir("../b/sub", 0755));
    put("../b/sub/before", O_WRONLY | O_CREAT, MARKER " before");
    /* This is what makes it one. */
    show("mkdir", mkdir("../b/.tidelock", 0700));
    put("../b/made", O_WRONLY | O_CREAT, MARKER " made");
    put("../b/before", O_WRONLY, MARKER " written");
    put("../b/before", O_RDWR | O_APPEND, MARKER " appended");
    put("../b/./sub/../sub/made", O_RDWR | O_CREAT | O_EXCL, MARKER " made");
    show("truncate", truncate("../b/before", 5));
    show_file("../b/before");
    put("../moved", O_WRONLY | O_CREAT, MARKER " moved");
    show("rename", rename("../moved", "../b/moved"));
    show("link", link("../moved", "../b/linked"));
    show("exchange", renameat2(AT_FDCWD, "../moved", AT_FDCWD, "../b/before", RENAME_EXCHANGE));
    show("O_TMPFILE", open("../b/sub", O_TMPFILE | O_RDWR, 0600) < 0 ? -1 : 0);
    char name[] = "../b/tmp-XXXXXX";
    show("mkstemp", mkstemp(name) < 0 ? -1 : 0);
    show_pointer("fopen", fopen("../b/stream", "w"));
    show("chdir", chdir("../b/sub"));
    put("made_from_here", O_WRONLY | O_CREAT, MARKER " made");
    show("chdir", chdir("../.."));
    static const char *const left[] = {
        "before", "made",       "moved",    "linked",
        "stream", "sub/before", "sub/made", "sub/made_from_here",
    };
    for (size_t i = 0; i < sizeof left / sizeof left[0]; i++) {
        char path[64];
        snprintf(path, sizeof path, "b/%s", left[i]);
        unlink(path);
    }
    unlink(name + strlen("../"));
    unlink("moved");
    show("rmdir", rmdir("b/.tidelock") | rmdir("b/sub") | rmdir("b"));
    return 0;
}
