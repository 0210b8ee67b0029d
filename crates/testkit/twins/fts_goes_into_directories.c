/* fts goes into each directory within libc: relative paths are those of the directory that it is
 * in, in the program's own directory and elsewhere. */
#include "twin.h"
#include <fts.h>

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* Visits the files below, opens each by its name where the walk is, and makes one beside it. */
static void walk(const char *top, int options)
{
    char *tops[] = {(char *)top, NULL};
    FTS *fts = fts_open(tops, FTS_PHYSICAL | options, by_name);
    FTSENT *entry;
    show_pointer("fts_open", fts);
    while ((entry = fts_read(fts))) {
        struct stat st;
        if (!strcmp(entry->fts_name, ".tidelock")) {
            fts_set(fts, entry, FTS_SKIP);
            continue;
        }
        say("%s is a %d", entry->fts_level ? entry->fts_name : "the top", entry->fts_info);
        if (entry->fts_info == FTS_D && entry->fts_level == 1) {
            FTSENT *child = fts_children(fts, 0);
            for (; child; child = child->fts_link)
                say("  a child %s", child->fts_name);
        }
        if (entry->fts_info != FTS_F || strstr(entry->fts_name, "made"))
            continue;
        show("stat", stat(entry->fts_accpath, &st));
        say("size %ld", (long)st.st_size);
        int fd = open(entry->fts_accpath, O_RDONLY);
        char back[40] = "";
        show_read("read", read(fd, back, sizeof back), back);
        close(fd);
        if (!(options & FTS_NOCHDIR))
            close(make_file("made", 7, 4099));
    }
    show("the end", errno);
    show("fts_close", fts_close(fts));
}

int main(int argc, char **argv)
{
    struct stat st;
    char away[] = "/tmp/twin-XXXXXX", path[100];
    start(argc, argv);
    show("mkdir", mkdir("folder", 0755));
    show("mkdir", mkdir("folder/deeper", 0755));
    close(make_file("folder/deeper/a", 1, 17));
    close(make_file("folder/b", 2, 4097));
    walk("folder", 0);
    walk("folder", FTS_NOCHDIR);
    show_file("folder/made");
    show_file("folder/deeper/made");

    show_pointer("mkdtemp", mkdtemp(away));
    snprintf(path, sizeof path, "%s/c", away);
    close(make_file(path, 3, 100));
    walk(away, 0);
    close(make_file("here", 4, 4096));
    show_file("here");
    show("unlink", unlink(path));
    snprintf(path, sizeof path, "%s/made", away);
    show("stat", stat(path, &st));
    say("size elsewhere %ld", (long)st.st_size);
    show("unlink", unlink(path));
    show("rmdir", rmdir(away));
    return 0;
}
