/* layouts.h - random states cut into random layouts, and the oracle that knows every element
 *
 * An element's value depends on its tensor, its row-major number in the whole tensor and a version alone. The
 * oracle finds the number of each element of a buffer by division, one at a time, sharing no code with box.c.
 */
#ifndef MUSTER_TESTS_UNIT_CHECKPOINT_LAYOUTS_H
#define MUSTER_TESTS_UNIT_CHECKPOINT_LAYOUTS_H

#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bf16.h"
#include "base/clock.h"
#include "base/io.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/format/dtype.h"

#define TENSORS_MAX 24
#define RANKS_MAX 5
#define BUFFERS_MAX (TENSORS_MAX * 3)

struct tensor {
    char name[32];
    enum mck_role role;
    enum mck_dtype dtype;
    int ndim;
    uint64_t shape[MCK_DIMS_MAX];
    uint64_t volume;
};

struct state {
    struct tensor tensor[TENSORS_MAX];
    int tensors;
};

struct layout {
    int ranks;
    struct mck_buffer buf[RANKS_MAX][BUFFERS_MAX];
    int tensor_of[RANKS_MAX][BUFFERS_MAX];
    size_t n[RANKS_MAX];
};

static uint64_t rng;

static inline uint64_t rnd(uint64_t n)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return n ? (rng >> 11) % n : 0;
}

/* Seed from MUSTER_SEED, or the clock; printed, so that a failure can be had again. */
static inline void seed_from_env(void)
{
    const char *s = getenv("MUSTER_SEED");

    rng = s ? strtoull(s, NULL, 10) : (uint64_t)clock_wall_us();
    rng += !rng;
    print_message("MUSTER_SEED=%llu\n", (unsigned long long)rng);
}

static inline char *temp_dir(void)
{
    static char path[64];

    (void)snprintf(path, sizeof(path), "/tmp/muster-test-XXXXXX");
    assert_non_null(mkdtemp(path));
    return path;
}

static inline void random_state(struct state *s, uint64_t largest)
{
    s->tensors = 1 + (int)rnd(TENSORS_MAX - 1);
    for (int i = 0; i < s->tensors; i++) {
        struct tensor *t = &s->tensor[i];

        (void)snprintf(t->name, sizeof(t->name), "layer.%d.weight", i / 3);
        t->role = (enum mck_role)(i % 3);
        t->dtype = (enum mck_dtype)rnd(MCK_DTYPES);
        t->ndim = (int)rnd(5);
        t->volume = 1;
        for (int d = 0; d < t->ndim; d++) {
            t->shape[d] = 1 + rnd(t->ndim == 1 ? largest : d ? 17 : largest / 400 + 3);
            t->volume *= t->shape[d];
        }
    }
}

/* Bytes of element number e of tensor i. */
static inline void element(const struct state *s, int i, uint64_t e, uint64_t version, uint8_t out[16])
{
    uint64_t v = (e + 1) * 0x9E3779B97F4A7C15u + (uint64_t)i * 1000003u + version * 0xD1B54A32D192ED03u;
    float f = (float)((double)(int64_t)(v ^ v >> 29) * 0x1p-66);
    uint16_t h;

    v ^= v >> 31;
    memcpy(out, &v, 8);
    memcpy(out + 8, &v, 8);
    if (s->tensor[i].dtype == MCK_F32)
        memcpy(out, &f, 4);
    if (s->tensor[i].dtype == MCK_BF16) {
        h = bf16_from_float(f);
        memcpy(out, &h, 2);
    }
}

static inline uint64_t buffer_elements(const struct mck_buffer *b)
{
    uint64_t n = 1;

    for (int d = 0; d < b->ndim; d++)
        n *= b->len[d];
    return b->sub_begin || b->sub_end ? b->sub_end - b->sub_begin : n;
}

/* Number in the whole tensor of the p-th element of a buffer. */
static inline uint64_t global_number(const struct mck_buffer *b, uint64_t p)
{
    uint64_t at[MCK_DIMS_MAX], g = 0;

    p += b->sub_begin;
    for (int d = b->ndim; d-- > 0;) {
        at[d] = p % b->len[d] + b->off[d];
        p /= b->len[d];
    }
    for (int d = 0; d < b->ndim; d++)
        g = g * b->shape[d] + at[d];
    return g;
}

static inline void fill_layout(const struct state *s, struct layout *l, uint64_t version)
{
    for (int r = 0; r < l->ranks; r++)
        for (size_t i = 0; i < l->n[r]; i++) {
            struct mck_buffer *b = &l->buf[r][i];
            size_t esize = dtype_size((int)b->dtype);
            uint8_t v[16];

            for (uint64_t p = 0; p < buffer_elements(b); p++) {
                element(s, l->tensor_of[r][i], global_number(b, p), version, v);
                memcpy((char *)b->data + p * esize, v, esize);
            }
        }
}

static inline void wipe_layout(struct layout *l)
{
    for (int r = 0; r < l->ranks; r++)
        for (size_t i = 0; i < l->n[r]; i++)
            memset(l->buf[r][i].data, 0xee, buffer_elements(&l->buf[r][i]) * dtype_size((int)l->buf[r][i].dtype));
}

static inline void check_layout(const struct state *s, const struct layout *l, uint64_t version)
{
    for (int r = 0; r < l->ranks; r++)
        for (size_t i = 0; i < l->n[r]; i++) {
            const struct mck_buffer *b = &l->buf[r][i];
            size_t esize = dtype_size((int)b->dtype);
            uint8_t v[16];

            for (uint64_t p = 0; p < buffer_elements(b); p++) {
                element(s, l->tensor_of[r][i], global_number(b, p), version, v);
                if (memcmp((const char *)b->data + p * esize, v, esize) != 0)
                    fail_msg("rank %d, tensor '%s' role %d, element %llu differs", r, b->name, (int)b->role,
                             (unsigned long long)p);
            }
        }
}

static inline struct mck_buffer *add_buffer(const struct state *s, struct layout *l, int r, int tensor)
{
    const struct tensor *t = &s->tensor[tensor];
    struct mck_buffer *b = &l->buf[r][l->n[r]];

    assert_true(l->n[r] < BUFFERS_MAX);
    l->tensor_of[r][l->n[r]++] = tensor;
    *b = (struct mck_buffer){
        .name = t->name, .role = t->role, .dtype = t->dtype, .ndim = t->ndim, .bucket = (int)rnd(4)};
    for (int d = 0; d < t->ndim; d++) {
        b->shape[d] = b->len[d] = t->shape[d];
        b->off[d] = 0;
    }
    return b;
}

static inline void give_memory(struct mck_buffer *b)
{
    b->data = malloc(buffer_elements(b) * 16 + 8);
    assert_non_null(b->data);
}

/* Rows [from, to) of dim d to rank r, in one flat buffer or in two ranges of it. */
static inline void add_slice(const struct state *s, struct layout *l, int r, int tensor, int d, uint64_t from,
                             uint64_t to)
{
    struct mck_buffer *b = add_buffer(s, l, r, tensor), *c;
    uint64_t volume, cut;

    if (s->tensor[tensor].ndim) {
        b->off[d] = from;
        b->len[d] = to - from;
    }
    volume = buffer_elements(b);
    cut = rnd(3) || volume < 2 ? 0 : 1 + rnd(volume - 1);
    if (cut) { /* as a flat optimizer shard: the second piece goes to another rank */
        c = add_buffer(s, l, (r + 1) % l->ranks, tensor);
        memcpy(c->off, b->off, sizeof(c->off));
        memcpy(c->len, b->len, sizeof(c->len));
        c->sub_begin = cut;
        c->sub_end = volume;
        b->sub_end = cut;
        give_memory(c);
    }
    give_memory(b);
}

/* Cut every tensor over the ranks, each its own way, so that all is covered once; some are also replicas. */
static inline struct layout *random_layout(const struct state *s, int ranks)
{
    struct layout *l = calloc(1, sizeof(*l));

    assert_non_null(l);
    l->ranks = ranks;
    for (int i = 0; i < s->tensors; i++) {
        const struct tensor *t = &s->tensor[i];
        int d = (int)rnd((uint64_t)t->ndim), owner = (int)rnd((uint64_t)ranks);
        uint64_t at = 0, parts = 1 + rnd((uint64_t)ranks);

        if (!t->ndim || parts == 1 || t->shape[d] < parts) {
            add_slice(s, l, owner, i, 0, 0, t->ndim ? t->shape[0] : 1);
            if (ranks > 1 && rnd(2)) {
                struct mck_buffer *b = add_buffer(s, l, (owner + 1) % ranks, i);

                b->replica = true;
                give_memory(b);
            }
            continue;
        }
        for (uint64_t k = 0; k < parts; k++) {
            uint64_t to = k + 1 == parts ? t->shape[d] : at + rnd(t->shape[d] - at + 1);

            if (to > at)
                add_slice(s, l, (owner + (int)k) % ranks, i, d, at, to);
            at = to;
        }
    }
    return l;
}

static inline void free_layout(struct layout *l)
{
    for (int r = 0; r < l->ranks; r++)
        for (size_t i = 0; i < l->n[r]; i++)
            free(l->buf[r][i].data);
    free(l);
}

/* Save from all ranks at once, each with a writer of its own. Returns what rank 0 reported. */
static inline int save_layout(struct layout *l, const char *dir, uint64_t generation, uint64_t step, const char *codec,
                              struct merr *err)
{
    struct mck_writer *w[RANKS_MAX] = {NULL};
    struct mck_done done = {.code = -ENOMSG};
    json_t *kv =
        json_pack("{s:I,s:i,s:{s:s}}", "step", (json_int_t)step, "layout", l->ranks, "model", "family", "gpt2");
    int r = 0;

    for (int i = 0; i < l->ranks && !r; i++) {
        struct mck_cfg cfg = {.dir = dir,
                              .rank = i,
                              .size = l->ranks,
                              .generation = generation,
                              .codec = codec,
                              .keep = 3,
                              .pool_bytes = 4u << 20,
                              .timeout_us = 20 * 1000000};

        r = mck_writer_new(&cfg, l->buf[i], l->n[i], &w[i], err);
    }
    for (int i = 0; i < l->ranks && !r; i++)
        r = mck_begin(w[i], step, kv, err);
    for (int i = 0; i < l->ranks && !r; i++)
        r = mck_gate(w[i], i % 2 ? -1 : 0, err);
    for (int i = 0; i < l->ranks && !r; i++)
        r = mck_gate(w[i], -1, err);
    for (int i = l->ranks; i-- > 0 && !r;)
        r = mck_drain(w[i], clock_mono_us() + 30 * 1000000, err);
    if (!r) {
        assert_int_equal(mck_next_done(w[0], &done), 1);
        assert_int_equal(mck_next_done(w[0], &done), 0);
        r = done.code;
        if (r && err)
            *err = done.err;
    }
    for (int i = 0; i < l->ranks; i++)
        mck_writer_free(w[i]);
    json_decref(kv);
    return r;
}

#endif
