/* The shadow: what a plain file may be, and may have answered, after calls that ran at one time.
 *
 * A round passes if there is one order of its calls that explains everything: every value that was
 * returned, every byte that was read, and the size, the bytes, the offsets and the name that are
 * left. An order is looked at if it keeps to time: what returned before another was called comes
 * before it.
 *
 * What Linux does on ext4, XFS and tmpfs, and so what "explains" means:
 *
 *   changes   writes of any length, appends, cuts, growth, fallocate and holes exclude each other
 * (the inode's lock): each is whole. An append begins at the size of its place in the order. Bytes
 * of a gap, and bytes that a cut took away, are zeros. offsets   read, write and lseek on one
 * description exclude each other (the offset's lock). So each starts where its place in the order
 * says. sizes     lseek(SEEK_END), fstat and stat take no lock: they see the size of their place in
 * the order, or, where that lies in a change that was under way, a whole number of units between
 * the sizes before and after it (the kernel moves the size page by page). reads     take no lock
 * (ext4): each byte, for itself, is that of the file before or after any change that was under way.
 * The same for the count: it ends at any size that the file had meanwhile, or at a whole unit
 * between two of them. names     a call by path that overlaps a rename may or may not find the
 * name.
 *
 * Two things that no plain file shows, and that harm nobody, can be let pass by name, to look for
 * what lies behind them:
 *
 *   --allow pieces   a size between two pieces of a vectored write that is under way
 *   --allow blocks   up to 15 bytes more than a cut leaves, while it is under way
 */
#ifndef SHADOW_H
#define SHADOW_H
#include "plan.h"

struct image {
    long size;
    unsigned char bytes[LIMIT]; /* zeros behind the size */
};

/* What moves without changing a byte. */
struct places {
    long offsets[DESCRIPTIONS];
    int name;
};

/* What is known of a file between two rounds. */
struct known {
    struct image image;
    struct places places;
};

/* What the checker found on the file after the round. */
struct found {
    long size;
    unsigned char bytes[LIMIT + UNIT];
};

struct search {
    struct op **ops;
    int count;
    const struct found *found;
    /* The order so far. */
    struct op *order[TOGETHER];
    struct image *after[TOGETHER + 1]; /* the image after each change */
    struct op *change[TOGETHER];       /* which change leads to the next image */
    long change_at[TOGETHER];          /* where it writes */
    int before[TOGETHER];              /* by place: how many changes precede it */
    long from[TOGETHER];               /* by place: where it reads */
    struct places end;
    uint64_t orders;                   /* complete ones that were looked at */
    char reason[256];                  /* why the first complete order does not explain it */
    int depth;                         /* the longest beginning of an order */
};

static int refuse(struct search *s, int depth, const char *form, ...)
{
    if (depth > s->depth || s->reason[0] == 0) {
        va_list values;
        va_start(values, form);
        vsnprintf(s->reason, sizeof s->reason, form, values);
        va_end(values);
        s->depth = depth;
    }
    return 0;
}

static int is_whole(long at) { return at % UNIT == 0; }

static int lies_between(long it, long a, long b)
{
    return a < b ? a < it && it < b : b < it && it < a;
}

/* The next image, as a copy of this one. */
static struct image *copied(struct search *s, int changes)
{
    const struct image *old = s->after[changes];
    struct image *new = s->after[changes + 1];
    long most = old->size > new->size ? old->size : new->size;
    memcpy(new->bytes, old->bytes, most);
    new->size = old->size;
    return new;
}

static void put(struct image *image, const struct op *op, long at)
{
    fill(op, image->bytes + at);
    if (op->len > 0 && at + op->len > image->size)
        image->size = at + op->len;
}

static void resize(struct image *image, long size)
{
    if (size < image->size)
        memset(image->bytes + size, 0, image->size - size);
    image->size = size;
}

/* Whether a change was under way while this was called. */
static int meet(const struct op *a, const struct op *b)
{
    return a->start <= b->end && b->start <= a->end;
}

static int allows_pieces, allows_blocks;

/* A size that the file may show for a moment while this change is under way. */
static int is_step(const struct search *s, int change, long size)
{
    const struct op *op = s->change[change];
    long at = s->change_at[change], after = s->after[change + 1]->size;
    if (!lies_between(size, s->after[change]->size, after))
        return 0;
    if (allows_pieces && (op->kind == WRITEV || op->kind == PWRITEV) &&
        (size == at + op->len / 3 || size == at + op->len / 3 + op->len / 2))
        return 1;
    if (allows_blocks && after < size && size == (after + BLOCK - 1) / BLOCK * BLOCK)
        return 1;
    return is_whole(size);
}

/* A size that was seen with so many changes done. */
static int may_see_size(const struct search *s, const struct op *op, int done, int changes,
                        long size) {
    if (size == s->after[done]->size)
        return 1;
    return done < changes && meet(op, s->change[done]) && is_step(s, done, size);
}

static int check_size(struct search *s, int place, int changes)
{
    struct op *op = s->order[place];
    int done = s->before[place];
    if (op->kind == SEEK && op->result < 0)
        return op->error == EINVAL && s->after[done]->size + op->at < 0
                   ? 1 : refuse(s, s->count, "%s: errno %d", "lseek to the end", op->error);
    long seen = op->result - (op->kind == SEEK ? op->at : 0);
    if (may_see_size(s, op, done, changes, seen))
        return 1;
    return refuse(s, s->count, "operation %u saw a size of %ld, should be %ld", op->number, seen,
                  s->after[done]->size);
}

/* The images that a read may have seen: from the last change that it must know to the last that it
 * may know. */
static void bounds(const struct search *s, int place, int changes, int *low, int *high)
{
    const struct op *op = s->order[place];
    *low = 0;
    *high = changes;
    for (int i = 0; i < changes; i++) {
        const struct op *change = s->change[i];
        int excluded = is_offset(op) && is_offset(change) && description(op) == description(change);
        if (change->end < op->start || (excluded && i < s->before[place]))
            *low = i + 1;
        if ((change->start > op->end || (excluded && i >= s->before[place])) && i < *high)
            *high = i;
    }
}

static int check_read(struct search *s, int place, int changes, const unsigned char *got)
{
    const struct op *op = s->order[place];
    long at = s->from[place], count = op->result;
    int low, high;
    bounds(s, place, changes, &low, &high);
    long least = LONG_MAX, most = 0;
    int ends = 0;
    for (int i = low; i <= high; i++) {
        long size = s->after[i]->size, left = size > at ? size - at : 0;
        least = size < least ? size : least;
        most = size > most ? size : most;
        ends |= (left < op->len ? left : op->len) == count;
    }
    ends |= is_whole(at + count) && lies_between(at + count, least, most);
    for (int i = low; i < high && !ends; i++)
        ends = is_step(s, i, at + count);
    if (!ends)
        return refuse(s, s->count, "operation %u read %ld bytes at %ld; sizes were %ld to %ld",
                      op->number, count, at, least, most);
    long left = most > at ? most - at : 0;
    for (int i = low; i <= high; i++)
        if (count <= left && memcmp(got, s->after[i]->bytes + at, count) == 0)
            return 1;
    for (long byte = 0; byte < count; byte++) {
        int right = 0;
        for (int i = low; i <= high && !right; i++)
            right = at + byte < LIMIT && s->after[i]->bytes[at + byte] == got[byte];
        if (!right)
            return refuse(s, s->count, "operation %u read %02x at %ld, should be %02x", op->number,
                          got[byte], at + byte, s->after[high]->bytes[at + byte]);
    }
    return 1;
}

/* Where an operation found its bytes: in the slot of its worker. */
static const unsigned char *room_of(const struct op *op)
{
    struct slot *slot = &shared->slots[op->worker];
    return slot->room[op - slot->ops] + op->residue;
}

static int check_end(struct search *s, int changes, const struct places *places)
{
    const struct image *last = s->after[changes];
    s->orders++;
    for (int place = 0; place < s->count; place++) {
        const struct op *op = s->order[place];
        int seen = op->kind == FSTAT || (op->kind == STAT && op->result >= 0) ||
                   (op->kind == SEEK && op->whence == SEEK_END);
        if (seen && !check_size(s, place, changes))
            return 0;
        if (is_read(op) && !check_read(s, place, changes, room_of(op)))
            return 0;
    }
    if (last->size != s->found->size)
        return refuse(s, s->count, "the size is %ld, should be %ld", s->found->size, last->size);
    for (long at = 0; memcmp(last->bytes, s->found->bytes, last->size) != 0 && at < last->size;
         at++)
        if (last->bytes[at] != s->found->bytes[at])
            return refuse(s, s->count, "byte %ld is %02x, should be %02x", at, s->found->bytes[at],
                          last->bytes[at]);
    s->end = *places;
    return 1;
}

static int is_change(const struct op *op)
{
    return op->result >= 0 && ((is_write(op) && op->len > 0) || op->kind == FTRUNCATE ||
           op->kind == TRUNCATE || op->kind == OPEN_TRUNC || op->kind == ALLOCATE ||
           op->kind == PUNCH);
}

static void change(struct image *image, const struct op *op, long at)
{
    long end = op->at + op->len;
    if (is_write(op))
        put(image, op, at);
    else if (op->kind == FTRUNCATE || op->kind == TRUNCATE)
        resize(image, op->at);
    else if (op->kind == OPEN_TRUNC)
        resize(image, 0);
    else if (op->kind == ALLOCATE && end > image->size)
        resize(image, end);
    else if (op->kind == PUNCH && op->at < image->size)
        memset(image->bytes + op->at, 0, (end < image->size ? end : image->size) - op->at);
}

/* Whether a call by path may have answered so, with the name as it is at this place. */
static int path_explains(const struct search *s, const struct op *op, int name)
{
    int there = op->name == name, answered = op->result >= 0;
    if (!answered && op->error != ENOENT)
        return 0;
    for (int i = 0; i < s->count; i++)
        if (s->ops[i]->kind == RENAME && meet(op, s->ops[i]))
            return 1;
    return there == answered;
}

/* Whether the call's own answer fits at this place; moves offsets and the name. */
static int answers(struct search *s, struct op *op, int depth, int changes, struct places *places,
                   long *at)
{
    long *offset = &places->offsets[description(op)];
    long size = s->after[changes]->size, should = 0;
    *at = is_append(op) ? size : is_offset(op) ? *offset : op->at;
    if (is_write(op)) {
        should = op->len;
        if (is_offset(op) && op->len > 0)
            *offset = *at + op->len;
    } else if (is_read(op)) {
        should = op->result >= 0 && op->result <= op->len ? op->result : op->len;
        if (is_offset(op))
            *offset += should;
    } else if (op->kind == SEEK && op->whence == SEEK_END) {
        if (op->result >= 0)
            *offset = op->result;
        return 1;
    } else if (op->kind == SEEK) {
        should = op->whence == SEEK_SET ? op->at : *offset + op->at;
        if (should < 0)
            return (op->result < 0 && op->error == EINVAL) || refuse(s, depth,
                   "operation %u answered %ld, should be EINVAL", op->number, op->result);
        *offset = should;
    } else if (has_path(op)) {
        return path_explains(s, op, places->name) || refuse(s, depth,
               "operation %u answered %ld, errno %d", op->number, op->result, op->error);
    } else if (op->kind == RENAME) {
        places->name = op->name;
    } else if (op->kind == REOPEN) {
        *offset = 0;
    } else if (op->kind == FSTAT) {
        should = op->result >= 0 ? op->result : 0;
    }
    return op->result == should ||
           refuse(s, depth, "operation %u answered %ld, errno %d; should be %ld", op->number,
                  op->result, op->error, should);
}

/* Tries every order that goes on from here. `left` has a bit for each operation that has no place
 * yet. */
static int explain(struct search *s, unsigned left, int depth, int changes, struct places places)
{
    if (left == 0)
        return check_end(s, changes, &places);
    for (int i = 0; i < s->count; i++) {
        struct op *op = s->ops[i];
        int first = left >> i & 1;
        for (int j = 0; j < s->count && first; j++)
            if (j != i && left >> j & 1) {
                const struct op *other = s->ops[j];
                /* Questions come in one order only: they change nothing. */
                first = !(other->end < op->start) && !(op->asks && j < i) &&
                        !(other->worker == op->worker && other->end <= op->start && j < i);
            }
        struct places now = places;
        if (!first || !answers(s, op, depth, changes, &now, &s->from[depth]))
            continue;
        s->order[depth] = op;
        s->before[depth] = changes;
        int one = is_change(op);
        if (one) {
            change(copied(s, changes), op, s->from[depth]);
            s->change[changes] = op;
            s->change_at[changes] = s->from[depth];
        }
        if (explain(s, left & ~(1u << i), depth + 1, changes + one, now))
            return 1;
    }
    return 0;
}

static struct image *images[TOGETHER + 1];

/* Judges what happened to one file in one round, and learns from it what the file is now. `ops` are
 * sorted by their end: that order is tried first. */
static int judge(struct search *s, struct known *known, struct op **ops, int count,
                 const struct found *found)
{
    memset(s, 0, sizeof *s);
    s->ops = ops;
    s->count = count;
    s->found = found;
    for (int i = 0; i <= TOGETHER; i++) {
        if (!images[i] && !(images[i] = calloc(1, sizeof(struct image))))
            die("memory");
        s->after[i] = images[i];
    }
    struct image *first = s->after[0];
    long most = first->size > known->image.size ? first->size : known->image.size;
    memcpy(first->bytes, known->image.bytes, most);
    first->size = known->image.size;
    if (!explain(s, (1u << count) - 1, 0, 0, known->places))
        return 0;
    memset(known->image.bytes, 0, known->image.size);
    memcpy(known->image.bytes, found->bytes, found->size);
    known->image.size = found->size;
    known->places = s->end;
    return 1;
}
#endif
