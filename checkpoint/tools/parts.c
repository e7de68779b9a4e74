/* parts - what parts.h offers of open checkpoints and single data files */
#include "checkpoint/parts.h"

#include "base/try.h"
#include "checkpoint/read/load.h"
#include "checkpoint/read/scan.h"

const struct mck_index *mck_tables(const struct mck *c)
{
    return &c->ix;
}

int mck_needed(struct mck *c, const struct mck_buffer *bufs, size_t n,
               void (*take)(void *arg, uint32_t file, uint32_t chunk), void *arg, struct merr *err)
{
    return load_needed(c, bufs, n, take, arg, err);
}

struct check {
    const struct mck *c;
    void (*damaged)(void *arg, const struct mck_chunk *chunk);
    void *arg;
};

static void tell_damaged(void *arg, uint32_t file, uint64_t chunk, const struct merr *why)
{
    const struct check *k = arg;

    (void)file;
    (void)why;
    k->damaged(k->arg, &k->c->ix.chunk[chunk]);
}

int mck_check_part(const char *path, void (*damaged)(void *arg, const struct mck_chunk *chunk), void *arg,
                   struct merr *err)
{
    struct scan scan;
    struct mck *c;
    int r;

    TRY(read_open_part(path, &c, err));
    r = scan_init(&scan, c, err);
    if (r == 0)
        scan_check(&scan, 0, tell_damaged, &(struct check){c, damaged, arg});
    scan_clear(&scan);
    mck_free(c);
    return r;
}
