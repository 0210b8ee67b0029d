/* The stat family as programs call it that were built before glibc 2.33, and getc as before 2.0's
 * end: the symbols that such a program imports. */
#include "twin.h"

__asm__(".symver old_stat,__xstat@GLIBC_2.2.5");
__asm__(".symver old_lstat,__lxstat@GLIBC_2.2.5");
__asm__(".symver old_fstat,__fxstat@GLIBC_2.2.5");
__asm__(".symver old_stat64,__xstat64@GLIBC_2.2.5");
__asm__(".symver old_lstat64,__lxstat64@GLIBC_2.2.5");
__asm__(".symver old_fstat64,__fxstat64@GLIBC_2.2.5");
__asm__(".symver old_fstatat,__fxstatat@GLIBC_2.4");
__asm__(".symver old_fstatat64,__fxstatat64@GLIBC_2.4");
int old_stat(int, const char *, struct stat *);
int old_lstat(int, const char *, struct stat *);
int old_fstat(int, int, struct stat *);
int old_stat64(int, const char *, struct stat64 *);
int old_lstat64(int, const char *, struct stat64 *);
int old_fstat64(int, int, struct stat64 *);
int old_fstatat(int, int, const char *, struct stat *, int);
int old_fstatat64(int, int, const char *, struct stat64 *, int);
int _IO_getc(FILE *);

int main(int argc, char **argv)
{
    struct stat st;
    struct stat64 st64;
    start(argc, argv);
    int fd = make_file("file", 1, 4111);
    show("symlink", symlink("file", "link"));
    for (int version = 0; version < 3; version++) {
        say("version %d", version);
        memset(&st, 0, sizeof st);
        show("__xstat", old_stat(version, "link", &st));
        say("size %ld", (long)st.st_size);
        show("__lxstat", old_lstat(version, "link", &st));
        say("size %ld", (long)st.st_size);
        show("__fxstat", old_fstat(version, fd, &st));
        say("size %ld", (long)st.st_size);
        show("__fxstatat", old_fstatat(version, AT_FDCWD, "file", &st, 0));
        say("size %ld", (long)st.st_size);
        show("__xstat64", old_stat64(version, "link", &st64));
        show("__lxstat64", old_lstat64(version, "file", &st64));
        show("__fxstat64", old_fstat64(version, fd, &st64));
        show("__fxstatat64", old_fstatat64(version, AT_FDCWD, "file", &st64, AT_SYMLINK_NOFOLLOW));
        say("size %ld", (long)st64.st_size);
    }
    FILE *file = fopen("file", "r");
    show("_IO_getc", _IO_getc(file));
    return 0;
}
