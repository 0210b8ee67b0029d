/* 5,000 stdio calls at random on one update stream, checked against a model in memory. */
#include "twin.h"

enum { CALLS = 5000, LIMIT = 200000, MOST = 9000 };

static unsigned char model[LIMIT + MOST], text[MOST], back[MOST];
static long size, offset;
static int calls;

static void expect(const char *what, long is, long should)
{
    if (is == should)
        return;
    say("call %d: %s: is %ld, should be %ld (size %ld offset %ld)", calls, what, is, should, size,
        offset);
    exit(1);
}

static void one_call(FILE **file, uint64_t *random)
{
    long n = next_random(random, 6) ? next_random(random, 200) : next_random(random, MOST);
    long at = next_random(random, size + 100);
    long left = offset < size ? size - offset : 0;
    switch (next_random(random, 9)) {
    case 0: case 1:
        if (offset + n > LIMIT)
            break;
        /* ISO C: a seek stands between reading and writing. */
        expect("fseek", fseek(*file, offset, SEEK_SET), 0);
        fill(text, n, calls, offset);
        expect("fwrite", fwrite(text, 1, n, *file), n);
        memcpy(model + offset, text, n);
        if (n)
            offset += n;
        if (offset > size && n)
            size = offset;
        break;
    case 2: case 3:
        expect("fseek", fseek(*file, offset, SEEK_SET), 0);
        expect("fread", fread(back, 1, n, *file), n < left ? n : left);
        expect("bytes", memcmp(back, model + offset, n < left ? n : left), 0);
        offset += n < left ? n : left;
        break;
    case 4:
        expect("fseek", fseek(*file, at, SEEK_SET), 0);
        offset = at;
        break;
    case 5:
        expect("fseek", fseek(*file, 0, SEEK_CUR), 0);
        expect("fgetc", fgetc(*file), left ? model[offset] : EOF);
        if (left) {
            expect("ungetc", ungetc(model[offset], *file), model[offset]);
            expect("ftell", ftell(*file), offset);
            expect("getc", getc(*file), model[offset]);
            offset++;
        }
        break;
    case 6:
        expect("fflush", fflush(*file), 0);
        break;
    case 7:
        expect("fseek", fseek(*file, 0, SEEK_END), 0);
        expect("ftell", ftell(*file), size);
        offset = size;
        break;
    case 8:
        if (next_random(random, 10))
            break;
        expect("fclose", fclose(*file), 0);
        struct stat st;
        expect("stat", stat("model", &st), 0);
        expect("size", st.st_size, size);
        *file = fopen("model", "r+");
        offset = 0;
        break;
    }
    expect("ftell", ftell(*file), offset);
    clearerr(*file);
}

int main(int argc, char **argv)
{
    uint64_t random = 777;
    start(argc, argv);
    FILE *file = fopen("model", "w+");
    for (calls = 0; calls < CALLS; calls++) {
        one_call(&file, &random);
        if (calls % 250 == 0)
            say("call %d: size %ld %016lx", calls, size, (unsigned long)hash_bytes(model, size));
    }
    show("fclose", fclose(file));
    show_file("model");
    return 0;
}
