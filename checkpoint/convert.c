/* convert - safetensors files written anew as a checkpoint, by one writer */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "checkpoint/dtype.h"
#include "checkpoint/read.h"

#define WRITE_US (INT64_C(3600) * 1000000)
#define ALIGN 64

/* All tensors of c in one piece of memory, and the list that says where. */
struct copy {
    struct mck_buffer *v;
    char *names, *data;
};

static void copy_clear(struct copy *x)
{
    free(x->v);
    free(x->names);
    free(x->data);
}

static uint64_t tensor_bytes(const struct mck_tensor *t)
{
    uint64_t volume = 0;

    (void)box_product(t->shape, t->ndim, MCK_BYTES_MAX, &volume); /* the file's header was held to this */
    return volume * dtype_size(t->dtype);
}

static int allocate(const struct mck *c, struct copy *x, struct merr *err)
{
    size_t names = c->ix.strings_len + c->ix.tensors + 1;
    uint64_t bytes = ALIGN;

    for (size_t i = 0; i < c->ix.tensors; i++)
        bytes += mck_round(tensor_bytes(&c->ix.tensor[i]), ALIGN);
    x->v = calloc(c->ix.tensors + 1, sizeof(*x->v));
    x->names = malloc(names);
    x->data = malloc(bytes);
    if (!x->v || !x->names || !x->data)
        return merr_set(err, -ENOMEM, "no memory for %llu MiB of weights", (unsigned long long)(bytes >> 20));
    return 0;
}

static int read_all(struct mck *c, struct copy *x, struct merr *err)
{
    uint64_t at = 0;
    char *name;
    int r = allocate(c, x, err);

    if (r)
        return r;
    name = x->names;
    for (size_t i = 0; i < c->ix.tensors; i++) {
        const struct mck_tensor *t = &c->ix.tensor[i];
        struct mck_buffer *b = &x->v[i];

        memcpy(name, index_name(&c->ix, t), t->name_len);
        name[t->name_len] = '\0';
        *b = (struct mck_buffer){.name = name, .role = MCK_MASTER, .dtype = (enum mck_dtype)t->dtype, .ndim = t->ndim,
                                 .data = x->data + at};
        for (int d = 0; d < t->ndim; d++)
            b->shape[d] = b->len[d] = t->shape[d];
        name += t->name_len + 1;
        at += mck_round(tensor_bytes(t), ALIGN);
    }
    return mck_load(c, x->v, c->ix.tensors, err);
}

static int write_all(const struct mck *c, const struct copy *x, const char *dir, struct merr *err)
{
    const struct mck_cfg cfg = {.dir = dir, .size = 1, .generation = 1, .codec = "none", .keep = 2};
    struct mck_writer *w = NULL;
    struct mck_done *done = malloc(sizeof(*done)); /* holds a path: too large for the stack of a thread */
    int r = done ? mck_writer_new(&cfg, x->v, c->ix.tensors, &w, err) : merr_set(err, -ENOMEM, "no memory");

    if (!r)
        r = mck_begin(w, 0, c->kv, err);
    if (!r)
        r = mck_drain(w, clock_mono_us() + WRITE_US, err);
    if (!r && mck_next_done(w, done) == 1 && done->code)
        r = merr_set(err, done->code, "%s", done->err.text);
    mck_writer_free(w);
    free(done);
    return r;
}

int mck_import_safetensors(const char *path, const char *dir, struct merr *err)
{
    struct copy x = {NULL, NULL, NULL};
    struct mck *c = NULL;
    uint64_t step;
    int r = mck_open_safetensors(path, &c, err);

    if (!r && mck_latest(dir, &step, NULL, NULL) == 1)
        r = merr_set(err, -EEXIST, "'%s' holds a checkpoint already; name another folder", dir);
    if (!r)
        r = read_all(c, &x, err);
    if (!r)
        r = write_all(c, &x, dir, err);
    copy_clear(&x);
    mck_free(c);
    return r;
}
