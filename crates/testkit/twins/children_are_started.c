/* fork, vfork, posix_spawn, system, popen and exec: children run, end with their code, and what
 * they close or move before exec is theirs alone. None of them touches a sealed file. */
#include "twin.h"
#include <spawn.h>

extern char **environ;

int main(int argc, char **argv)
{
    char back[64], line[100];
    start(argc, argv);
    int fd = make_file("file", 1, 1000), number = fd + 5;
    pid_t child = vfork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", "exit 7", NULL);
        _exit(1);
    }
    show_end("vfork and exec", child);
    child = vfork();
    if (child == 0) {
        close(fd);
        dup2(1, number);
        execl("/nonexistent", "none", NULL);
        _exit(9);
    }
    show_end("vfork, close, failing exec", child);
    show_read("still open here", pread(fd, back, 40, 0), back);
    show("not open here", fcntl(number, F_GETFD));

    char *args[] = {"sh", "-c", "exit 5", NULL};
    show("posix_spawn", posix_spawn(&child, "/bin/sh", NULL, NULL, args, environ));
    show_end("posix_spawn", child);
    posix_spawn_file_actions_t actions;
    show("init", posix_spawn_file_actions_init(&actions));
    show("addclose", posix_spawn_file_actions_addclose(&actions, fd));
    show("addopen", posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0));
    args[2] = "cat | wc -c | grep -q '^ *0$' && exit 4";
    show("posix_spawnp", posix_spawnp(&child, "sh", &actions, NULL, args, environ));
    show_end("posix_spawnp", child);
    show_read("still open here", pread(fd, back, 40, 8), back);

    show("system", WEXITSTATUS(system("exit 3")));
    FILE *pipe = show_pointer("popen", popen("echo from the child; exit 2", "r"));
    show_pointer("fgets", fgets(line, sizeof line, pipe));
    say("%s", strtok(line, "\n"));
    show("pclose", WEXITSTATUS(pclose(pipe)));
    pipe = show_pointer("popen to write", popen("read x; test \"$x\" = word", "w"));
    show("fputs", fputs("word\n", pipe) >= 0);
    show("pclose", pclose(pipe));
    show("a program that is missing", posix_spawn(&child, "/none", NULL, NULL, args, environ));

    /* A child that works on the file and forks itself, while the parent does the same. */
    child = fork();
    if (child == 0) {
        show("child", system("true"));
        show("child writes", pwrite(fd, MARKER " child", 19, 990));
        _exit(0);
    }
    show_end("fork", child);
    show_file("file");
    return 0;
}
