#include "worker/engine/optim/keyed.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "compress/codec.h"
#include "worker/engine/comm/wire.h"

#define STAGED ((size_t)128 * PARAM_BLOCK) /* floats that come from a device and go back at a time: a mebibyte */

struct unit {        /* of an arena */
    uint32_t tensor; /* whose floats these are, and below it, whether of the head's part of a tied one */
    uint32_t n;      /* floats that count: the others pad */
    uint64_t offset; /* in the tensor */
};

struct keyed {
    const struct codec *gradient, *weight;
    size_t gradient_bytes, weight_bytes; /* of a unit */
    uint64_t seed;
    uint32_t tensors;  /* numbers of tensors that gradients use */
    struct unit *unit; /* of the gradient arena, which begins like that of the weights */
    size_t units;
    char *room; /* of one unit of gradients */
    uint32_t flags;
    const struct kern_ops *ops; /* NULL: the processor codes arenas where they lie */
    struct kern_stream *stream;
    float *stage[2]; /* else they pass through these */
};

/* Which units parameter q has from float `at` of the arena on. */
static void place_units(struct keyed *k, const struct param *q, size_t at, bool head)
{
    for (size_t offset = 0; offset < q->n; offset += PARAM_BLOCK) {
        size_t n = q->n - offset < PARAM_BLOCK ? q->n - offset : PARAM_BLOCK;

        assert((at + offset) / PARAM_BLOCK < k->units);
        k->unit[(at + offset) / PARAM_BLOCK] = (struct unit){2 * (uint32_t)q->id + head, (uint32_t)n, offset};
    }
}

static int place_all(struct keyed *k, const struct params *p, struct merr *err)
{
    k->tensors = 2 * (uint32_t)p->tensors;
    k->units = p->grad_n / PARAM_BLOCK;
    k->unit = calloc(k->units + 1, sizeof(*k->unit));
    k->room = malloc(k->gradient_bytes);
    if (!k->unit || !k->room)
        return merr_set(err, -ENOMEM, "no memory for a table of %zu coded units", k->units);
    for (int i = 0; i < p->n; i++) {
        const struct param *q = &p->v[i];
        bool tied = q->at >= p->rest_n;

        place_units(k, q, q->at, tied && q->copy); /* a stage with the head alone holds the head's part */
        if (tied && p->grad_head_at > 0)
            place_units(k, q, p->grad_head_at + (q->at - p->rest_n), true);
    }
    return 0;
}

int keyed_new(const char *word, uint64_t seed, const struct params *p, struct keyed **ret, struct merr *err)
{
    struct wire_codecs c;
    struct keyed *k;
    int r = wire_find_codecs(word, &c, err);

    if (r == 0 && (!c.far || !c.weights))
        r = merr_set(err, -EINVAL, "'%s' does not say how gradients and weights travel between replicas", word);
    if (r < 0)
        return r;
    k = calloc(1, sizeof(*k));
    if (!k)
        return merr_set(err, -ENOMEM, "no memory for codecs keyed by tensor");
    assert(PARAM_BLOCK % codec_group(c.far) == 0 && PARAM_BLOCK % codec_group(c.weights) == 0);
    *k = (struct keyed){.gradient = c.far,
                        .weight = c.weights,
                        .seed = seed,
                        .gradient_bytes = codec_size(c.far, PARAM_BLOCK),
                        .weight_bytes = codec_size(c.weights, PARAM_BLOCK)};
    r = place_all(k, p, err);
    if (r == 0)
        *ret = k;
    else
        keyed_free(k);
    return r;
}

int keyed_reach(struct keyed *k, const struct kern_ops *ops, struct kern_stream *stream, struct merr *err)
{
    if (!ops->device)
        return 0;
    for (int i = 0; i < 2; i++) {
        k->stage[i] = k->stage[i] ? k->stage[i] : malloc(STAGED * sizeof(float));
        if (!k->stage[i])
            return merr_set(err, -ENOMEM, "no memory for a device's numbers on their way to codecs");
    }
    k->ops = ops;
    k->stream = stream;
    return 0;
}

void keyed_free(struct keyed *k)
{
    if (!k)
        return;
    free(k->unit);
    free(k->room);
    free(k->stage[0]);
    free(k->stage[1]);
    free(k);
}

size_t keyed_gradient_bytes(const struct keyed *k, size_t n)
{
    return n / PARAM_BLOCK * k->gradient_bytes;
}

size_t keyed_weight_bytes(const struct keyed *k, size_t n)
{
    return n / PARAM_BLOCK * k->weight_bytes;
}

const char *keyed_gradient_codec(const struct keyed *k)
{
    return codec_name(k->gradient);
}

const char *keyed_weight_codec(const struct keyed *k)
{
    return codec_name(k->weight);
}

static const struct unit *units_at(const struct keyed *k, size_t at, size_t n)
{
    assert(at % PARAM_BLOCK == 0 && n % PARAM_BLOCK == 0 && (at + n) / PARAM_BLOCK <= k->units);
    return k->unit + at / PARAM_BLOCK;
}

/* x[n] where the processor may code it: there, or in a stage. */
static int take(const struct keyed *k, int stage, const float *x, size_t n, float **ret, struct merr *err)
{
    if (k->ops)
        TRY(k->ops->copy(k->stream, k->stage[stage], x, n * sizeof(*x), err));
    *ret = k->ops ? k->stage[stage] : (float *)x;
    return 0;
}

/* What was taken from x and has changed goes back. */
static int give(const struct keyed *k, int stage, float *x, size_t n, struct merr *err)
{
    return k->ops ? k->ops->copy(k->stream, x, k->stage[stage], n * sizeof(*x), err) : 0;
}

/* Floats that are taken at once of n from at on. */
static size_t part_of(const struct keyed *k, size_t n, size_t at)
{
    return k->ops && n - at > STAGED ? STAGED : n - at;
}

static void code_units(struct keyed *k, uint64_t step, int leaf, const struct unit *u, float *x, size_t n, char *units)
{
    for (size_t i = 0; i < n / PARAM_BLOCK; i++, x += PARAM_BLOCK) {
        struct codec_site site = {k->seed, u[i].tensor, (uint32_t)step, (uint32_t)leaf, u[i].offset};
        char *block = units ? units + i * k->gradient_bytes : k->room;
        size_t len = codec_size(k->gradient, u[i].n);
        int r;

        memset(block + len, 0, k->gradient_bytes - len);
        k->flags |= codec_encode(k->gradient, &site, CODEC_F32, x, u[i].n, block);
        r = codec_decode(k->gradient, block, len, CODEC_F32, x, u[i].n, &k->flags, NULL);
        assert(r == 0);
    }
}

int keyed_code_leaf(struct keyed *k, uint64_t step, int leaf, float *arena, size_t at, size_t n, char *units,
                    struct merr *err)
{
    const struct unit *u = units_at(k, at, n);
    float *x;

    for (size_t i = 0, part; i < n; i += part) {
        part = part_of(k, n, i);
        TRY(take(k, 0, arena + at + i, part, &x, err));
        code_units(k, step, leaf, u + i / PARAM_BLOCK, x, part, units ? units + keyed_gradient_bytes(k, i) : NULL);
        TRY(give(k, 0, arena + at + i, part, err));
    }
    return 0;
}

int keyed_decode_leaf(struct keyed *k, const char *units, size_t at, size_t n, float *out, struct merr *err)
{
    const struct unit *u = units_at(k, at, n);
    int r = 0;

    for (size_t i = 0; i < n / PARAM_BLOCK && r == 0; i++) {
        float *x = out + i * PARAM_BLOCK;

        memset(x + u[i].n, 0, (PARAM_BLOCK - u[i].n) * sizeof(*x));
        r = codec_decode(k->gradient, units + i * k->gradient_bytes, codec_size(k->gradient, u[i].n), CODEC_F32, x,
                         u[i].n, &k->flags, err);
    }
    return r;
}

static void code_differences(struct keyed *k, uint64_t step, const struct unit *u, const float *master,
                             const float *weights, size_t n, char *units)
{
    for (size_t i = 0; i < n / PARAM_BLOCK; i++) {
        /* a tied tensor's weights are one tensor, wherever they lie */
        struct codec_site site = {k->seed, k->tensors + u[i].tensor / 2, (uint32_t)step, 0, u[i].offset};
        char *block = units + i * k->weight_bytes;
        size_t len = codec_size(k->weight, u[i].n);

        memset(block + len, 0, k->weight_bytes - len);
        k->flags |= codec_encode_difference(k->weight, &site, master + i * PARAM_BLOCK, CODEC_F32,
                                            weights + i * PARAM_BLOCK, u[i].n, block);
    }
}

int keyed_code_weights(struct keyed *k, uint64_t step, const float *master, const float *arena, size_t at, size_t n,
                       char *units, struct merr *err)
{
    const struct unit *u = units_at(k, at, n);
    float *from, *to;

    for (size_t i = 0, part; i < n; i += part) {
        part = part_of(k, n, i);
        TRY(take(k, 0, master + i, part, &to, err));
        TRY(take(k, 1, arena + at + i, part, &from, err));
        code_differences(k, step, u + i / PARAM_BLOCK, to, from, part, units + keyed_weight_bytes(k, i));
    }
    return 0;
}

int keyed_move_weights(struct keyed *k, const char *units, float *arena, size_t at, size_t n, struct merr *err)
{
    const struct unit *u = units_at(k, at, n);
    float *x;

    for (size_t i = 0, part; i < n; i += part) {
        part = part_of(k, n, i);
        TRY(take(k, 0, arena + at + i, part, &x, err));
        for (size_t b = i / PARAM_BLOCK; b < (i + part) / PARAM_BLOCK; b++)
            TRY(codec_decode_add(k->weight, units + b * k->weight_bytes, codec_size(k->weight, u[b].n), CODEC_F32,
                                 x + b * PARAM_BLOCK - i, u[b].n, &k->flags, err));
        TRY(give(k, 0, arena + at + i, part, err));
    }
    return 0;
}

bool keyed_broken_take(struct keyed *k)
{
    bool broken = k && (k->flags & CODEC_NONFINITE);

    if (k)
        k->flags = 0;
    return broken;
}
