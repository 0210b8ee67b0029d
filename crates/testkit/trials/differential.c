/* A random differential model: processes times threads call at one time whatever changes bytes,
 * sizes or offsets of files, and a shadow knows all that plain files may then be
 * (differential/shadow.h says what that is).
 *
 *   episode    empty files, three processes of three threads; some descriptions are shared by a
 * fork round    draw.h gives some of the workers one or two operations; they begin together act.h
 * each does its own shadow.h   one order must explain all answers and what the files are now
 *
 * The same program runs plain, where it must never fail, and under the library. With `--spoil` one
 * thing is done wrongly on purpose, and it must fail.
 *
 * usage: differential DIR SECONDS [--seed N] [--episode N] [--share own|fork] [--class NAME]
 * [--theme NAME]
 *                               [--spoil WHAT] [--allow pieces|blocks]
 * One line of JSON; exit code 1 and the round if something had no explanation. With `--episode`
 * that one is repeated: it begins with the same draws, and goes on with them as far as the same
 * call wins each race.
 */
#include "differential/plan.h"
#include "differential/act.h"
#include "differential/draw.h"
#include "differential/shadow.h"
#include "differential/tell.h"

/* A call that takes so many seconds hangs. */
enum { PATIENCE = 30 };

static uint64_t seed, rounds, episodes, operations, overlaps, overlapping_changes, other_orders;
static uint64_t current_episode;
static int round_number, only_file = -1, share = -1;
static pid_t children[PROCESSES];
static int watch[FILES];
static struct known known[FILES];
static struct found found;

static void end_children(void)
{
    for (int process = 0; process < PROCESSES; process++)
        if (children[process] > 0)
            kill(children[process], SIGKILL);
}

static void fail(const char *why)
{
    printf("%s\nseed %" PRIu64 ", episode %" PRIu64 ", round %d; descriptions by fork: %d%d%d%d\n"
           "again: --seed %" PRIu64 " --episode %" PRIu64 "\n",
           why, seed, current_episode, round_number, inherited[0], inherited[1], inherited[2],
           inherited[3], seed, current_episode);
    fflush(stdout);
    end_children();
    _exit(1);
}

/* The operations of one file in this round, those that ended first in front. */
static int gather(int file, struct op **ops)
{
    int count = 0;
    for (int worker = 0; worker < WORKERS; worker++) {
        struct slot *slot = &shared->slots[worker];
        for (int i = 0; i < EACH + ASKED; i++) {
            struct op *op = &slot->ops[i];
            if (op->number == 0 || op->file != file)
                continue;
            int at = count++;
            for (; at > 0 && ops[at - 1]->end > op->end; at--)
                ops[at] = ops[at - 1];
            ops[at] = op;
        }
    }
    return count;
}

static void explain_hang(const char *why)
{
    struct op *ops[TOGETHER];
    for (int file = 0; file < FILES; file++) {
        int count = gather(file, ops);
        if (count)
            tell_round(file, &known[file], ops, count);
    }
    fail(why);
}

/* Lets the workers that have something to do begin, and waits for them. */
static void run(void)
{
    int active = 0, turn = 0;
    for (int worker = 0; worker < WORKERS; worker++)
        active += shared->slots[worker].count > 0;
    if (active == 0)
        return;
    shared->ready = 0;
    shared->wanted = active;
    shared->left = active;
    for (int worker = 0; worker < WORKERS; worker++)
        if (shared->slots[worker].count > 0) {
            shared->slots[worker].turn = turn++;
            atomic_fetch_add(&shared->slots[worker].go, 1);
            wake(&shared->slots[worker].go);
        }
    uint64_t until = now() + PATIENCE * 1000000000ull;
    for (uint32_t left; (left = atomic_load(&shared->left)) != 0;) {
        doze(&shared->left, left, 200000000);
        int status;
        for (int process = 0; process < PROCESSES && shared->left; process++)
            if (waitpid(children[process], &status, WNOHANG) > 0)
                explain_hang("a process died in its calls");
        if (now() > until)
            explain_hang("a call hangs");
    }
}

/* Where the offsets stand now that were used: who has the description asks. */
static void ask(unsigned files)
{
    struct op *ops[TOGETHER], *used[FILES * MOST];
    int count = 0;
    for (int file = 0; file < FILES; file++) {
        int gathered = files >> file & 1 ? gather(file, ops) : 0;
        for (int i = 0; i < gathered; i++) {
            int known_already = !is_offset(ops[i]);
            for (int j = 0; j < count && !known_already; j++)
                known_already =
                    used[j]->file == file && description(used[j]) == description(ops[i]);
            if (!known_already)
                used[count++] = ops[i];
        }
    }
    for (int worker = 0; worker < WORKERS; worker++) {
        shared->slots[worker].first = EACH;
        shared->slots[worker].count = 0;
    }
    for (int i = 0; i < count; i++) {
        struct slot *slot = &shared->slots[used[i]->worker];
        slot->ops[EACH + slot->count++] = (struct op){.kind = SEEK, .whence = SEEK_CUR, .asks = 1,
            .file = used[i]->file, .flavour = used[i]->flavour, .worker = used[i]->worker,
            .number = ++operations_drawn};
    }
    run();
}

/* What the file is now: by a descriptor of old, or by a new one. */
static void look(int file, int name)
{
    int fd = any(4) ? watch[file] : open(path_of(file, name), O_RDONLY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        die("look at a file");
    long got = 0, more;
    while ((more = pread(fd, found.bytes + got, sizeof found.bytes - got, got)) > 0)
        got += more;
    found.size = st.st_size;
    if (fd != watch[file])
        close(fd);
    if (got == st.st_size)
        return;
    printf("file %s has %ld bytes to read, and a size of %ld\n", path_of(file, name), got,
           (long)st.st_size);
    found.size = got;
}

static int name_now(int file, struct op **ops, int count)
{
    for (int i = 0; i < count; i++)
        if (ops[i]->kind == RENAME && ops[i]->result == 0)
            return ops[i]->name;
    return known[file].places.name;
}

static void count_overlaps(struct op **ops, int count)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            if (ops[i]->worker != ops[j]->worker && meet(ops[i], ops[j])) {
                overlaps++;
                overlapping_changes += is_change(ops[i]) && is_change(ops[j]);
            }
}

static void check(unsigned files)
{
    for (int file = 0; file < FILES; file++) {
        struct op *ops[TOGETHER];
        static struct search search;
        if (!(files >> file & 1))
            continue;
        int count = gather(file, ops);
        look(file, name_now(file, ops, count));
        count_overlaps(ops, count);
        operations += count;
        if (!judge(&search, &known[file], ops, count, &found)) {
            tell_round(file, &known[file], ops, count);
            printf("size after %ld; no order explains it; nearest: %s\n", found.size,
                   search.reason);
            fail("a plain file would not do this");
        }
        other_orders += search.orders > 1;
    }
}

static void begin_episode(uint64_t number)
{
    current_episode = number;
    random_state = mix(seed * 0x9e3779b97f4a7c15u + number);
    operations_drawn = 0;
    base = any(4) ? 0 : AREA - UNIT;
    memset(known, 0, sizeof known);
    memset(shared, 0, offsetof(struct shared, slots));
    for (int worker = 0; worker < WORKERS; worker++)
        memset(&shared->slots[worker], 0, offsetof(struct slot, room));
    for (int file = 0; file < FILES; file++) {
        for (int name = 0; name < NAMES; name++)
            unlink(path_of(file, name));
        int fd = open(path_of(file, 0), O_RDWR | O_CREAT | O_EXCL, 0600);
        watch[file] = open(path_of(file, 0), O_RDONLY);
        if (fd < 0 || watch[file] < 0 || close(fd) < 0)
            die("make a file");
    }
    for (int flavour = 0; flavour < FLAVOURS; flavour++) {
        inherited[flavour] = share < 0 ? any(2) : share;
        if (inherited[flavour])
            open_flavour(flavour);
    }
    for (int process = 0; process < PROCESSES; process++) {
        children[process] = fork();
        if (children[process] < 0)
            die("fork");
        if (children[process] == 0)
            work_as_process(process);
    }
    /* A file may be renamed in the first round. */
    uint64_t until = now() + PATIENCE * 1000000000ull;
    for (uint32_t opened; (opened = atomic_load(&shared->opened)) < PROCESSES && now() < until;)
        doze(&shared->opened, opened, 200000000);
    if (shared->opened < PROCESSES)
        fail("a process cannot open the files");
}

static void end_episode(void)
{
    shared->over = 1;
    for (int worker = 0; worker < WORKERS; worker++)
        wake(&shared->slots[worker].go);
    for (int process = 0; process < PROCESSES; process++) {
        int status;
        if (waitpid(children[process], &status, 0) < 0 || status != 0)
            fail("a process did not end well");
        children[process] = 0;
    }
    for (int file = 0; file < FILES; file++) {
        close(watch[file]);
        for (int flavour = 0; flavour < FLAVOURS; flavour++)
            if (inherited[flavour])
                close(fds[file][flavour]);
    }
}

static void one_round(void)
{
    for (int worker = 0; worker < WORKERS; worker++)
        memset(shared->slots[worker].ops, 0, sizeof shared->slots[worker].ops);
    unsigned files = draw(known, only_file);
    run();
    ask(files);
    check(files);
    rounds++;
}

static void usage(void)
{
    fprintf(stderr, "usage: differential DIR SECONDS [--seed N] [--episode N] [--share own|fork] "
                    "[--class NAME] [--theme NAME] [--spoil WHAT] [--allow pieces|blocks]\n");
    exit(2);
}

static int theme_of(const char *name)
{
    for (int theme = 0; theme < THEMES; theme++)
        if (!strcmp(name, themes[theme]))
            return theme;
    usage();
    return -1;
}

int main(int argc, char **argv)
{
    int64_t episode = -1;
    seed = 1;
    if (argc < 3 || argc % 2 == 0)
        usage();
    for (int i = 3; i < argc; i += 2) {
        const char *value = argv[i + 1];
        if (!strcmp(argv[i], "--seed"))
            seed = strtoull(value, NULL, 10);
        else if (!strcmp(argv[i], "--episode"))
            episode = strtoll(value, NULL, 10);
        else if (!strcmp(argv[i], "--share"))
            share = !strcmp(value, "fork");
        else if (!strcmp(argv[i], "--spoil"))
            spoiled = value;
        else if (!strcmp(argv[i], "--class"))
            only_file = !strcmp(value, "paged") ? 0 : !strcmp(value, "log") ? 2 : 4;
        else if (!strcmp(argv[i], "--theme"))
            only_theme = theme_of(value);
        else if (!strcmp(argv[i], "--allow") && !strcmp(value, "pieces"))
            allows_pieces = 1;
        else if (!strcmp(argv[i], "--allow") && !strcmp(value, "blocks"))
            allows_blocks = 1;
        else
            usage();
    }
    directory = argv[1];
    const char *places[] = {"", "/base", "/base/1", "/pg_wal", "/loose"};
    for (int i = 0; i < 5; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s%s", directory, places[i]);
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
            die(path);
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        die("mmap");
    /* Calls overlap only if two of them have a processor: root is let in front of others. */
    int refused = setpriority(PRIO_PROCESS, 0, -15);
    (void)refused;
    uint64_t begun = now(), until = begun + atoi(argv[2]) * 1000000000ull;
    while (now() < until) {
        begin_episode(episode < 0 ? episodes : (uint64_t)episode);
        for (round_number = 0; round_number < ROUNDS && now() < until; round_number++)
            one_round();
        end_episode();
        episodes++;
    }
    double seconds = (now() - begun) / 1e9;
    printf("{\"seed\":%" PRIu64 ",\"episodes\":%" PRIu64 ",\"rounds\":%" PRIu64
           ",\"operations\":%" PRIu64 ",\"overlaps\":%" PRIu64 ",\"overlapping_changes\":%" PRIu64
           ",\"other_orders\":%" PRIu64 ",\"operations_a_second\":%.0f}\n",
           seed, episodes, rounds, operations, overlaps, overlapping_changes, other_orders,
           operations / seconds);
    return 0;
}
