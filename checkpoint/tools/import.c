/* import - safetensors files written anew as a checkpoint, by one writer that reads them as it goes */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/try.h"
#include "checkpoint/format/input.h"
#include "checkpoint/read/read.h"

#define WRITE_US (INT64_C(3600) * 1000000)

/* The tensors of c, each with a range of addresses of its own at which there is nothing. */
struct import {
    struct mck *c;
    struct mck_buffer *v;
    char *names;
    char *range;
    size_t range_bytes;
    int fd;        /* of the file that was read last, or -1 */
    uint32_t path; /* which of c's that is */
};

static int allocate(struct import *x, struct merr *err)
{
    const struct mck_index *ix = &x->c->ix;

    x->range_bytes = read_all_bytes(x->c) + 1;
    x->v = calloc(ix->tensors + 1, sizeof(*x->v));
    x->names = malloc(ix->strings_len + ix->tensors + 1);
    x->range = mmap(NULL, x->range_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (x->range == MAP_FAILED)
        x->range = NULL;
    if (!x->v || !x->names || !x->range)
        return merr_set(err, -ENOMEM, "no memory for the tables of %zu tensors", ix->tensors);
    return 0;
}

static void describe_all(struct import *x)
{
    char *name = x->names, *at = x->range;

    for (size_t i = 0; i < x->c->ix.tensors; i++) {
        const struct mck_tensor *t = &x->c->ix.tensor[i];
        uint64_t volume;

        read_describe(x->c, t, name, &x->v[i], &volume);
        x->v[i].data = at;
        name += t->name_len + 1;
        at += read_tensor_bytes(t);
    }
}

static void import_clear(struct import *x)
{
    if (x->range)
        (void)munmap(x->range, x->range_bytes);
    io_close(&x->fd);
    free(x->v);
    free(x->names);
}

/* The tensor that has an address: of several that begin there the last, for the others are empty. */
static uint32_t find_tensor(const struct import *x, const char *at)
{
    size_t lo = 0, hi = x->c->ix.tensors;

    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;

        if ((const char *)x->v[mid].data <= at)
            lo = mid;
        else
            hi = mid;
    }
    return (uint32_t)lo;
}

static int open_source(struct import *x, uint32_t i, struct merr *err)
{
    int fd;

    if (x->fd >= 0 && x->path == x->c->source[i].path)
        return 0;
    fd = read_open_file(x->c, i, err);
    if (fd < 0)
        return fd;
    io_close(&x->fd);
    x->fd = fd;
    x->path = x->c->source[i].path;
    return 0;
}

/* Tensor i of what was opened is the whole of source i. */
static int fetch(void *arg, const void *from, void *to, size_t bytes, struct merr *err)
{
    struct import *x = arg;
    uint32_t i = find_tensor(x, from);
    uint64_t off = (uint64_t)((const char *)from - (const char *)x->v[i].data);
    int r;

    TRY(open_source(x, i, err));
    r = input_read(x->fd, to, bytes, x->c->source[i].base + off);
    if (r == -EBADMSG)
        return merr_set(err, r, "'%s' ends before tensor '%s' does: it was cut meanwhile", x->c->paths[x->path],
                        x->v[i].name);
    if (r < 0)
        return merr_errno(err, r, "cannot read '%s'", x->c->paths[x->path]);
    read_watch_add(x->c, bytes);
    return 0;
}

static int commit_all(const struct import *x, struct mck_writer *w, struct mck_done *done, struct merr *err)
{
    TRY(mck_begin(w, 0, x->c->kv, err));
    TRY(mck_drain(w, clock_mono_us() + WRITE_US, err));
    return mck_next_done(w, done) == 1 && done->code ? merr_set(err, done->code, "%s", done->err.text) : 0;
}

static int write_all(struct import *x, const char *dir, struct merr *err)
{
    const struct mck_cfg cfg = {.dir = dir,
                                .size = 1,
                                .generation = 1,
                                .codec = "none",
                                .keep = 2,
                                .mode = MCK_STAGED,
                                .fetch = fetch,
                                .fetch_arg = x};
    struct mck_writer *w = NULL;
    struct mck_done *done = malloc(sizeof(*done)); /* holds a path: too large for the stack of a thread */
    int r = done ? mck_writer_new(&cfg, x->v, x->c->ix.tensors, &w, err) : merr_set(err, -ENOMEM, "no memory");

    read_watch_begin(x->c, read_all_bytes(x->c));
    if (r == 0)
        r = commit_all(x, w, done, err);
    mck_writer_free(w);
    free(done);
    return r;
}

int mck_import_safetensors(struct mck *c, const char *dir, struct merr *err)
{
    struct import x = {.c = c, .fd = -1};
    uint64_t step;
    int r = 0;

    if (mck_latest(dir, &step, NULL, NULL) == 1)
        return merr_set(err, -EEXIST, "'%s' holds a checkpoint already; name another folder", dir);
    r = allocate(&x, err);
    if (r == 0) {
        describe_all(&x);
        r = write_all(&x, dir, err);
    }
    import_clear(&x);
    return r;
}
