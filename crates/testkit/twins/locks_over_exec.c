/* exec with a lock: a program that would lose one by it goes on as it is (plain, it becomes the
 * other program, which holds the lock); a child whose parent holds it becomes what it likes. */
#include "twin.h"
#include <sys/file.h>

static char *const words[] = {"true", NULL};

/* How a child ends that takes a lock, does something and execs. */
static void lock_and_exec(const char *what, int flags, int (*take)(int), int (*then)(int))
{
    pid_t child = fork();
    if (child == 0) {
        int fd = open("lock", O_RDWR | O_CREAT | flags, 0644);
        if (take(fd) || (then && then(fd)))
            _exit(98);
        execv("/bin/true", words);
        _exit(errno == ENOLCK ? 37 : 97);
    }
    show_end(what, child);
}

static int take_flock(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB);
}

static int take_record(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 20};
    return fcntl(fd, F_SETLK, &lock);
}

static int take_none(int fd)
{
    return fd < 0;
}

static int give_flock_back(int fd)
{
    return flock(fd, LOCK_UN);
}

static int give_record_back(int fd)
{
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_SETLK, &lock);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    lock_and_exec("flock", 0, take_flock, NULL);
    lock_and_exec("a record lock", 0, take_record, NULL);
    lock_and_exec("no lock", 0, take_none, NULL);
    lock_and_exec("flock, closed on exec", O_CLOEXEC, take_flock, NULL);
    lock_and_exec("flock, given back", 0, take_flock, give_flock_back);
    lock_and_exec("a record lock, given back", 0, take_record, give_record_back);
    lock_and_exec("flock, closed", 0, take_flock, close);

    /* The parent keeps both. */
    int fd = open("lock", O_RDWR);
    show("flock", take_flock(fd));
    show("fcntl", take_record(fd));
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", "exit $1", "sh", "7", NULL);
        _exit(97);
    }
    show_end("a child", child);
    child = vfork();
    if (child == 0) {
        execlp("sh", "sh", "-c", "exit 8", NULL);
        _exit(97);
    }
    show_end("a child of vfork", child);
    show("system", WEXITSTATUS(system("exit 9")));
    int other = open("lock", O_RDWR);
    show("flock of another", take_flock(other));

    /* All of them, which find their program and its arguments. */
    char *const exit_5[] = {"sh", "-c", "exit $N", NULL}, *const five[] = {"N=5", NULL};
    int shell = open("/bin/sh", O_PATH);
    setenv("N", "5", 1);
    for (int how = 0; how < 9; how++) {
        child = fork();
        if (child == 0) {
            if (how == 0)
                execve("/bin/sh", exit_5, five);
            if (how == 1)
                execv("/bin/sh", exit_5);
            if (how == 2)
                execvp("sh", exit_5);
            if (how == 3)
                execvpe("sh", exit_5, five);
            if (how == 4)
                execl("/bin/sh", "sh", "-c", "exit $7", "a", "b", "c", "d", "e", "f", "g", "5",
                      NULL);
            if (how == 5)
                execlp("sh", "sh", "-c", "exit $7", "a", "b", "c", "d", "e", "f", "g", "5",
                       NULL);
            if (how == 6)
                execle("/bin/sh", "sh", "-c", "exit $((N+$7-5))", "a", "b", "c", "d", "e", "f", "g",
                       "5", NULL, five);
            if (how == 7)
                fexecve(shell, exit_5, five);
            if (how == 8)
                execveat(shell, "", exit_5, five, AT_EMPTY_PATH);
            _exit(97);
        }
        show_end("exec", child);
    }
    child = fork();
    if (child == 0) {
        int done = execl("/none/there", "there", NULL);
        say("of nothing = %d %s", done, errno_name(errno));
        _exit(1);
    }
    show_end("exec", child);
    return 0;
}
