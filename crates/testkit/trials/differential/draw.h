/* Draws the operations of a round: places, lengths and calls, most of them where edges meet.
 *
 * One episode begins with empty files and has ROUNDS rounds; all that is drawn follows from its
 * seed and from what the files have become.
 */
#ifndef DRAW_H
#define DRAW_H
#include "shadow.h"

enum { ROUNDS = 96 };

/* What a round is about: writes side by side, one offset, the end of the file; anything. */
enum theme { NEIGHBOURS, OFFSETS, ENDS, ANYTHING, THEMES };
static const char *themes[THEMES] = {"neighbours", "offsets", "ends", "anything"};
static int only_theme = -1;

static uint64_t random_state;
static unsigned operations_drawn;
/* In this episode files are busy around this place: the beginning, or where an area of the
 * library's words ends. */
static long base;

static long any(long below)
{
    random_state += 0x9e3779b97f4a7c15u;
    return (long)(mix(random_state) % (uint64_t)below);
}

static long within(long value, long least, long most)
{
    return value < least ? least : value > most ? most : value;
}

static long some_length(void)
{
    static const int edges[] = {
        0,        1,    7,        15,           16,       17,           98,      300,
        UNIT - 1, UNIT, UNIT + 1, 2 * UNIT - 1, 2 * UNIT, 2 * UNIT + 1, 3 * UNIT};
    switch (any(4)) {
    case 0:
        return 1 + any(200);
    case 1:
        return any(16) == 0 ? any(LONGEST) : 1 + any(2 * UNIT);
    default:
        return edges[any(sizeof edges / sizeof *edges)];
    }
}

static long some_place(const struct known *known)
{
    long size = known->image.size;
    static const int beside[] = {0, 0, 0, -1, 1, -15, 15, -16, 16, -17, 17, -98, 3967};
    long offset = beside[any(sizeof beside / sizeof *beside)];
    switch (any(6)) {
    case 0:
        return base + any(6) * UNIT + offset;
    case 1:
        return size - size % UNIT + any(3) * UNIT + offset;
    case 2:
        return size - any(300);
    case 3:
        return base + any(size > base ? size - base + 500 : 500);
    default:
        return size + offset;
    }
}

/* Positional writes side by side at one edge: whole units, odd ends, completed units. */
static void draw_neighbour(struct op *op, long edge, int i)
{
    op->kind = any(4) ? PWRITE : PWRITEV;
    op->flavour = any(40) ? ORDINARY : DATA_SYNCED;
    if (i % 2 == 0) {
        op->at = edge;
        op->len = any(3) ? UNIT * (1 + any(2)) : some_length();
    } else {
        long gap = any(2) ? any(4) : 0;
        op->len = 1 + (any(2) ? any(130) : any(UNIT + 20));
        op->at = edge - gap - op->len;
    }
    if (any(6) == 0)
        op->kind = PREAD, op->at = edge - any(2 * UNIT), op->len = any(4 * UNIT);
    if (i > 1)
        op->at += (any(2) ? 2 : -2) * UNIT;
}

static void draw_offset(struct op *op, const struct known *known, int flavour)
{
    static const int kinds[] = {WRITE, WRITE, WRITE, WRITEV, READ, READ,
                                READV, SEEK,  SEEK,  SEEK,   SEEK};
    static const int whence[] = {SEEK_SET, SEEK_CUR, SEEK_END, SEEK_END};
    op->kind = kinds[any(sizeof kinds / sizeof *kinds)];
    op->flavour = flavour;
    op->len = any(3) ? 1 + any(200) : some_length();
    if (op->kind != SEEK)
        return;
    op->whence = whence[any(4)];
    op->at = op->whence == SEEK_SET ? some_place(known) : any(2) ? 0 : any(200) - 100;
    if (op->whence == SEEK_END && any(2))
        op->at = 0;
}

static void draw_end(struct op *op, const struct known *known)
{
    static const int kinds[] = {WRITE,      PWRITE,   WRITEV, PWRITE,   FTRUNCATE, FTRUNCATE,
                                TRUNCATE,   ALLOCATE, PUNCH,  FSTAT,    STAT,      SEEK,
                                OPEN_TRUNC, PREAD,    PWRITE, KEEP_SIZE};
    op->kind = kinds[any(sizeof kinds / sizeof *kinds)];
    op->flavour = any(3) ? ORDINARY : APPENDING;
    op->at = some_place(known);
    op->len = some_length();
    op->whence = SEEK_END;
    if (op->kind == SEEK)
        op->at = 0;
    if (op->kind == OPEN_TRUNC && any(2))
        op->kind = FSTAT;
}

static void draw_anything(struct op *op, const struct known *known)
{
    op->kind = any(RENAME);
    op->flavour = any(12) ? any(2) : any(FLAVOURS);
    op->at = some_place(known);
    op->len = some_length();
    op->whence = any(3);
    if (op->kind == SEEK && op->whence != SEEK_SET)
        op->at = any(200) - 100;
}

/* What is drawn begins in a room of ROOM bytes behind the base; offsets and ends creep up from
 * there. */
enum { ROOM = 30000 };

static int is_full(const struct known *known)
{
    long most = known->image.size;
    for (int i = 0; i < DESCRIPTIONS; i++)
        most = known->places.offsets[i] > most ? known->places.offsets[i] : most;
    return most > base + ROOM;
}

/* Keeps within the longest call and, whatever the order, within the largest file: a full one grows
 * by no more than MOST * 97 bytes a round. */
static void bound(struct op *op, const struct known *known)
{
    op->len = within(op->len, op->kind >= ALLOCATE, LONGEST);
    if (is_full(known) && op->len > 97)
        op->len = 1 + op->len % 97;
    if (op->kind != SEEK || op->whence == SEEK_SET)
        op->at = within(op->at, 0, base + ROOM);
    if ((op->kind == PREAD || op->kind == PREADV) && any(3) == 0) {
        op->at -= op->at % UNIT;
        op->len = any(2) ? UNIT : 2 * UNIT;
    }
}

static void draw_file(int file, struct known *known, const int *workers, int count)
{
    enum theme drawn = any(THEMES), theme = only_theme < 0 ? drawn : (enum theme)only_theme;
    int renames = 0, flavour = any(8) ? any(2) : any(FLAVOURS);
    long size = known->image.size;
    long edge = (any(2) ? size : base + any(5) * UNIT) / UNIT * UNIT + any(2) * UNIT;
    for (int i = 0, done = 0; i < count; i++) {
        struct slot *slot = &shared->slots[workers[i]];
        slot->first = 0;
        slot->count = done + (count - i) < MOST && any(4) == 0 ? EACH : 1;
        for (int each = 0; each < slot->count; each++, done++) {
            struct op *op = &slot->ops[each];
            memset(op, 0, sizeof *op);
            op->number = ++operations_drawn;
            op->file = file;
            op->worker = workers[i];
            op->name = known->places.name;
            op->zeros = any(24) == 0;
            op->residue = any(2) ? 0 : any(64);
            op->delay = any(2) ? 0 : any(2) ? any(60) : any(1000);
            op->by = any(300) == 0 ? CHILD : any(40) == 0 ? DUPLICATE : ITSELF;
            if (theme == NEIGHBOURS)
                draw_neighbour(op, edge, done);
            else if (theme == OFFSETS)
                draw_offset(op, known, flavour);
            else if (theme == ENDS)
                draw_end(op, known);
            else
                draw_anything(op, known);
            if (has_path(op) && any(4) == 0)
                op->name = !op->name;
            if (theme != NEIGHBOURS && !renames && any(24) == 0)
                op->kind = RENAME, op->name = !known->places.name, renames = 1;
            if (count == 1 && !renames && any(8) == 0 && !inherited[op->flavour])
                op->kind = REOPEN, op->by = ITSELF, op->name = known->places.name;
            bound(op, known);
        }
    }
    if (known->image.size > base + ROOM) {
        struct op *op = &shared->slots[workers[0]].ops[0];
        op->kind = FTRUNCATE;
        op->at = any(2) ? 0 : base;
    }
}

/* Chooses who works on which file; returns the files as a set. */
static unsigned draw(struct known *known, int only)
{
    int order[WORKERS], from = 0;
    unsigned files = 0;
    for (int i = 0; i < WORKERS; i++) {
        int other = any(i + 1);
        order[i] = order[other];
        order[other] = i;
        shared->slots[i].count = 0;
    }
    int groups = any(3) ? 1 : 2 + any(2);
    for (int group = 0; group < groups; group++) {
        static const int sizes[] = {1, 2, 2, 2, 2, 2, 3, 4};
        int size = within(sizes[any(8)], 1, WORKERS - from),
            file = only < 0 ? any(FILES) : only + any(2);
        if (files >> file & 1)
            continue;
        files |= 1u << file;
        draw_file(file, &known[file], order + from, size);
        from += size;
    }
    return files;
}
#endif
