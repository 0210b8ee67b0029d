/*
 * A timer fires every 100 microseconds; its handler writes and reads one file while the main loop
 * is anywhere inside the same calls on another. Each checks every byte. The handler's file holds
 * the same bytes at the end of each run, since it writes the same text round after round.
 */
#include "twin.h"
#include <signal.h>
#include <sys/time.h>
#include <time.h>

enum { SLOTS = 64, FIRES = 4000 };

static int storm_fd, storm_size;
static volatile sig_atomic_t fires, bad_in_handler;

static void on_timer(int signal)
{
    static char text[8192], back[8192];
    int kept = errno;
    long at = (long)(fires % SLOTS) * storm_size;
    (void)signal;
    fill(text, storm_size, 1, at);
    if (pwrite(storm_fd, text, storm_size, at) != storm_size ||
        pread(storm_fd, back, storm_size, at) != storm_size || memcmp(text, back, storm_size))
        bad_in_handler++;
    fires++;
    errno = kept;
}

static void storm(const char *name, int size, int slow_calls)
{
    char path[60];
    static char text[8192], back[8192];
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    int bad = 0;
    snprintf(path, sizeof path, "%s-handler", name);
    storm_fd = make_file(path, 9, SLOTS * size);
    storm_size = size;
    fires = bad_in_handler = 0;
    snprintf(path, sizeof path, "%s-main", name);
    int fd = make_file(path, 8, SLOTS * size);
    struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    time_t end = time(NULL) + 30;
    for (long i = 0; fires < FIRES && time(NULL) < end; i++) {
        long at = i % SLOTS * size;
        fill(text, size, 2, at);
        bad += pwrite(fd, text, size, at) != size;
        bad += pread(fd, back, size, at) != size || memcmp(text, back, size);
        if (slow_calls && i % 16 == 0) {
            struct stat st;
            int other = open(path, O_RDONLY);
            bad += other < 0 || fstat(other, &st) < 0 || st.st_size != (long)SLOTS * size;
            bad += close(other) != 0;
            FILE *file = fopen(path, "r");
            bad += !file || fseek(file, at, SEEK_SET) || fgetc(file) != (unsigned char)text[0];
            if (file)
                fclose(file);
        }
    }
    setitimer(ITIMER_REAL, &never, NULL);
    for (long at = 0; at < (long)SLOTS * size; at += size) {
        fill(text, size, 2, at);
        bad += pwrite(fd, text, size, at) != size;
    }
    close(fd);
    close(storm_fd);
    say("%s: bad %d, in the handler %d, fired enough %d", name, bad, (int)bad_in_handler,
        fires >= FIRES);
    show_file(path);
}
