/* readdir, scandir, glob, ftw and nftw list the program's own files and nothing else; .tidelock can
 * be neither opened, nor removed, nor replaced by its name. */
#include "twin.h"
#include <dirent.h>
#include <ftw.h>
#include <glob.h>

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void list(const char *path)
{
    struct dirent **entries;
    int n = scandir(path, &entries, NULL, by_name);
    say("scandir %s: %d", path, n);
    for (int i = 0; i < n; i++) {
        say("  %s type %d", entries[i]->d_name, entries[i]->d_type);
        free(entries[i]);
    }
}

static int count(DIR *dir)
{
    int n = 0;
    while (readdir(dir))
        n++;
    return n;
}

static int walked;

static int walk(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)at;
    walked++;
    if (type == FTW_F && st->st_size > 4096)
        say("  nftw %s size %ld", strrchr(path, '/') ? strrchr(path, '/') + 1 : path,
            (long)st->st_size);
    return 0;
}

int main(int argc, char **argv)
{
    struct stat st;
    struct dirent64 *entry64;
    start(argc, argv);
    list(".");
    show("mkdir", mkdir("folder", 0755));
    close(make_file("a", 1, 17));
    close(make_file("folder/b", 2, 4097));
    close(make_file(".hidden", 3, 5));
    show("symlink", symlink("a", "link"));
    list(".");
    list("folder");

    DIR *dir = opendir(".");
    show("readdir", count(dir));
    rewinddir(dir);
    show("after rewinddir", count(dir));
    rewinddir(dir);
    int n = 0;
    long place = telldir(dir);
    while ((entry64 = readdir64((DIR *)dir)))
        n++;
    show("readdir64", n);
    seekdir(dir, place);
    show("after seekdir", count(dir));
    show("dirfd", fstat(dirfd(dir), &st));
    show("closedir", closedir(dir));
    dir = fdopendir(open(".", O_RDONLY | O_DIRECTORY));
    show("fdopendir", count(dir));
    show("closedir", closedir(dir));
    show_pointer("opendir of a file", opendir("a"));
    show_pointer("opendir of nothing", opendir("none"));
    glob_t found;
    show("glob", glob("*", 0, NULL, &found));
    for (size_t i = 0; i < found.gl_pathc; i++)
        say("  %s", found.gl_pathv[i]);
    globfree(&found);
    show("glob", glob(".*", 0, NULL, &found));
    for (size_t i = 0; i < found.gl_pathc; i++)
        say("  %s", found.gl_pathv[i]);
    globfree(&found);
    show("nftw", nftw("folder", walk, 8, FTW_PHYS));
    show("nftw of it all", nftw(".", walk, 8, FTW_PHYS | FTW_DEPTH) * 0);
    say("walked %d", walked);
    show_file("folder/b");
    return 0;
}
