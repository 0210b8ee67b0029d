/* Functions by which libc, or the kernel, opens a file of the program's choice within itself. */
#include "twin.h"
#include <dlfcn.h>
#include <signal.h>
#include <spawn.h>
#include <sys/fanotify.h>
#include <sys/syscall.h>
#include <utmp.h>
#include <utmpx.h>

extern char **environ;

/* A child that prints to a file that it is born with. */
static void spawned(const char *what, const char *path, int flags)
{
    posix_spawn_file_actions_t actions;
    char *words[] = {"echo", MARKER, NULL};
    pid_t child;
    posix_spawn_file_actions_init(&actions);
    int added = posix_spawn_file_actions_addopen(&actions, 1, path, flags, 0600);
    say("%s: addopen = %s", what, added ? errno_name(added) : "ok");
    if (!added && posix_spawn(&child, "/bin/echo", &actions, NULL, words, environ) == 0)
        show_end("echo", child);
    posix_spawn_file_actions_destroy(&actions);
}

/* The same, when the child changes its directory first. */
static void spawned_elsewhere(void)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    int moved = posix_spawn_file_actions_addchdir_np(&actions, "directory");
    say("addchdir_np = %s", moved ? errno_name(moved) : "ok");
    int added =
        posix_spawn_file_actions_addopen(&actions, 1, "relative", O_WRONLY | O_CREAT, 0600);
    say("a relative path: addopen = %s", added ? errno_name(added) : "ok");
    added = posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    say("an absolute path: addopen = %s", added ? errno_name(added) : "ok");
    posix_spawn_file_actions_destroy(&actions);
}

static void accounted(const struct utmp *entry)
{
    errno = 0;
    updwtmp("wtmp", entry);
    say("updwtmp: %s", errno ? errno_name(errno) : "ok");
    errno = 0;
    updwtmpx("wtmp", (const struct utmpx *)entry);
    say("updwtmpx: %s", errno ? errno_name(errno) : "ok");
    show("utmpname", utmpname("utmp"));
    show("utmpxname", utmpxname("utmp"));
    show("utmpname elsewhere", utmpname("/dev/null"));
}

/* What libstdc++ of the last century opened files by. */
static void opened_by_old_machinery(void)
{
    FILE *(*reopen)(FILE *, const char *, const char *, int) =
        (FILE * (*)(FILE *, const char *, const char *, int)) dlsym(RTLD_DEFAULT, "_IO_file_fopen");
    int (*close_it)(FILE *) = (int (*)(FILE *))dlsym(RTLD_DEFAULT, "_IO_file_close_it");
    FILE *stream = fopen("/dev/null", "r");
    show("_IO_file_close_it", close_it(stream));
    if (show_pointer("_IO_file_fopen", reopen(stream, "by-file-fopen", "w", 0)))
        fputs(MARKER "\n", stream);
    fflush(stream);
}

int main(int argc, char **argv)
{
    struct utmp entry;
    start(argc, argv);
    memset(&entry, 0, sizeof entry);
    entry.ut_type = USER_PROCESS;
    memcpy(entry.ut_user, MARKER, sizeof MARKER);
    close(make_file("wtmp", 1, 0));
    close(make_file("utmp", 1, 0));
    mkdir("directory", 0755);

    spawned("a new file", "new", O_WRONLY | O_CREAT);
    spawned("a file that is there", "wtmp", O_WRONLY | O_APPEND);
    spawned("a file elsewhere", "/dev/null", O_WRONLY);
    spawned_elsewhere();
    accounted(&entry);
    opened_by_old_machinery();

    /* A descriptor out of another process, here itself. */
    int fd = open("wtmp", O_RDWR), pid = syscall(434, getpid(), 0);
    show_ok("pidfd_getfd", syscall(438, pid, fd, 0));
    show_ok("fanotify_init that writes", fanotify_init(FAN_CLASS_CONTENT, O_RDWR));
    show("openat2 by number", syscall(437, AT_FDCWD, "wtmp", NULL, 0L));
    show_size("wtmp", fd);
    return 0;
}
