/* From sums of gradients to new weights on all replicas: AdamW on the own pieces, then what the others have to know. */
#include "worker/engine/optim/optim_priv.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

#include "base/clock.h"
#include "base/try.h"

/* zero 0: everyone needs the whole reduced gradient. */
static int gather_gradients(struct optim *o, struct merr *err)
{
    size_t begin, n;

    for (int i = REST; i <= TIED; i++) {
        const struct region *g = &o->region[i];

        optim_piece(o, g, o->cfg.mesh.dp_index, &begin, &n);
        if (n > 0)
            TRY(o->cfg.k->copy(o->cfg.stream, o->whole + g->at + begin, g->sum, n * sizeof(float), err));
        TRY(o->cfg.k->stream_sync(o->cfg.stream, err));
        TRY(optim_gather(o, g, o->whole, PARAM_BLOCK * sizeof(float), err));
    }
    return 0;
}

/* Weights and masters of our pieces: one becomes the other. */
static int copy_masters(struct optim *o, bool to_weights, struct merr *err)
{
    for (int i = REST; i <= TIED; i++) {
        const struct optim_range *r = &o->range[i];
        float *w = o->cfg.weights + r->begin, *m = o->master + r->state;

        if (r->end > r->begin)
            TRY(o->cfg.k->copy(o->cfg.stream, to_weights ? w : m, to_weights ? m : w,
                               (r->end - r->begin) * sizeof(float), err));
    }
    return o->cfg.k->stream_sync(o->cfg.stream, err);
}

static int gather_timed(struct optim *o, const struct region *g, void *array, size_t unit, struct merr *err)
{
    int64_t began_us = clock_mono_us();

    TRY(optim_gather(o, g, array, unit, err));
    wire_spent(o->cfg.wire, began_us, g->n);
    return 0;
}

/* Weights of a region follow the masters by differences keyed by tensor. */
static int move_keyed(struct optim *o, int i, uint64_t step, struct merr *err)
{
    const struct region *g = &o->region[i];
    const struct optim_range *r = &o->range[i];
    struct keyed *k = o->cfg.keyed;
    struct merr why;
    size_t begin, n;

    TRY(keyed_code_weights(k, step, o->master + r->state, o->cfg.weights, r->begin, r->end - r->begin,
                           o->units + keyed_weight_bytes(k, r->begin), err));
    TRY(gather_timed(o, g, o->units, keyed_weight_bytes(k, PARAM_BLOCK), err));
    for (int p = 0; p < o->cfg.mesh.dp; p++) {
        optim_piece(o, g, p, &begin, &n);
        begin += g->at;
        if (keyed_move_weights(k, o->units + keyed_weight_bytes(k, begin), o->cfg.weights, begin, n, &why) < 0)
            return merr_set(err, -EIO, "a block of weights from member %d of group 'dp' is not good, codec %s: %s", p,
                            keyed_weight_codec(k), why.text);
    }
    return 0;
}

/* New weights to all replicas. raw: as they are, else as the wire or the spec's codecs have it. */
static int share_weights(struct optim *o, uint64_t step, bool raw, struct merr *err)
{
    for (int i = REST; i <= TIED && o->cfg.zero; i++) {
        const struct region *g = &o->region[i];

        if (raw)
            TRY(gather_timed(o, g, o->cfg.weights, PARAM_BLOCK * sizeof(float), err));
        else if (o->cfg.keyed)
            TRY(move_keyed(o, i, step, err));
        else if (g->n > 0)
            TRY(wire_move_replicas(o->cfg.wire, PART_WEIGHTS + (unsigned)i, step, o->master + o->range[i].state,
                                   o->cfg.weights + g->at, optim_cuts(o, g), err));
    }
    return 0;
}

/* The part of a region's piece that has one dimension: of replica i, as places among all such. */
static void vectors_in(const struct optim *o, const struct region *g, int i, size_t *ret_begin, size_t *ret_n)
{
    const struct params *p = o->cfg.params;
    struct optim_range r = {.begin = 0};
    size_t at, n;

    optim_piece(o, g, i, &r.begin, &n);
    r.begin += g->at;
    r.end = r.begin + n;
    *ret_begin = *ret_n = 0;
    for (int k = 0; k < p->n; k++) {
        const struct param *q = p->by_place[k];

        if (q->ndim > 1 || !optim_in_range(&r, q, &at, &n))
            continue;
        if (*ret_n == 0)
            *ret_begin = q->vector_at + (r.begin + at - q->at);
        *ret_n = q->vector_at + (r.begin + at - q->at) + n - *ret_begin;
    }
}

/* Pieces lie in the order of places, and so do their vectors: a part of all vectors for each replica. */
static int gather_vectors(struct optim *o, const struct region *g, struct merr *err)
{
    const int me = o->cfg.mesh.dp_index;
    size_t begin, n;

    if (!o->cfg.dp || g->n == 0)
        return 0;
    for (int i = 0; i < o->cfg.mesh.dp; i++) {
        vectors_in(o, g, i, &begin, &n);
        o->at[i] = begin * sizeof(float);
        o->bytes[i] = n * sizeof(float);
    }
    return comm_all_gather_v(o->cfg.dp, (char *)o->cfg.vectors + o->at[me], o->bytes, o->at, o->cfg.vectors, err);
}

/* What this rank has rounded of them, to all. */
static int publish_pieces(struct optim *o, struct merr *err)
{
    for (int i = REST; i <= TIED; i++) {
        TRY(gather_timed(o, &o->region[i], o->cfg.matrices, PARAM_BLOCK * kern_size(KERN_BF16), err));
        TRY(gather_vectors(o, &o->region[i], err));
    }
    return 0;
}

int optim_publish(struct optim *o, struct merr *err)
{
    for (int i = REST; i <= TIED; i++)
        TRY(optim_round_range(o, &o->range[i], err));
    TRY(o->cfg.k->stream_sync(o->cfg.stream, err));
    return publish_pieces(o, err);
}

bool optim_settled(const struct optim *o)
{
    return !o->apart;
}

int optim_settle(struct optim *o, struct merr *err)
{
    if (!o->apart)
        return 0;
    TRY(copy_masters(o, true, err));
    o->apart = false;
    return share_weights(o, 0, true, err);
}

/* array[n], of which each of a group's members has a part, to all of them. */
static int join(struct optim *o, struct comm_group *g, int members, int index, float *array, size_t n, struct merr *err)
{
    size_t begin, end;

    if (!g || n == 0)
        return 0;
    for (int i = 0; i < members; i++) {
        params_cut(n, members, i, &begin, &end);
        o->at[i] = begin * sizeof(float);
        o->bytes[i] = (end - begin) * sizeof(float);
    }
    return comm_all_gather_v(g, (char *)array + o->at[index], o->bytes, o->at, array, err);
}

/* The parts of set_load() of a range. */
static int join_range(struct optim *o, float *array, size_t n, struct merr *err)
{
    const struct mesh *m = &o->cfg.mesh;
    size_t from, to;

    params_cut(n, m->cp, m->cp_index, &from, &to);
    if (!o->cfg.zero)
        TRY(join(o, o->cfg.dp, m->dp, m->dp_index, array + from, to - from, err));
    return join(o, o->cfg.cp, m->cp, m->cp_index, array, n, err);
}

int optim_share(struct optim *o, struct merr *err)
{
    if (o->cfg.store)
        return o->cfg.narrow ? publish_pieces(o, err) : share_weights(o, 0, true, err);
    for (int i = REST; i <= TIED; i++) {
        const struct optim_range *r = &o->range[i];
        size_t n = r->end - r->begin;

        TRY(join_range(o, o->cfg.narrow ? o->master + r->state : o->cfg.weights + r->begin, n, err));
        TRY(join_range(o, o->m + r->state, n, err));
        TRY(join_range(o, o->v + r->state, n, err));
    }
    return o->cfg.narrow ? optim_publish(o, err) : share_weights(o, 0, true, err);
}

int optim_follow_wire(struct optim *o, struct merr *err)
{
    bool coded = wire_coded(o->cfg.wire);

    assert(!o->apart);
    if (o->cfg.keyed || o->cfg.narrow || coded == (o->master != NULL))
        return 0;
    exchange_free(o->exchange);
    o->exchange = NULL;
    TRY(optim_open_exchange(o, err));
    if (coded)
        return o->cfg.k->mem_alloc(o->cfg.stream, (o->state_n + 1) * sizeof(float), (void **)&o->master, err);
    o->cfg.k->mem_free(o->cfg.stream, o->master);
    o->master = NULL;
    return 0;
}

int optim_update(struct optim *o, uint64_t t, double lr, double scale, struct merr *err)
{
    o->now = (struct kern_adamw_step){
        .grad_scale = (float)scale,
        .lr = (float)lr,
        .inv_bias1 = (float)(1 / (1 - pow(o->cfg.beta1, (double)t))),
        .inv_bias2 = (float)(1 / (1 - pow(o->cfg.beta2, (double)t))),
    };
    if (o->master && !o->apart && !o->cfg.narrow)
        TRY(copy_masters(o, false, err));
    o->apart = o->master && !o->cfg.narrow;
    if (o->cfg.store) {
        TRY(optim_store_update(o, err));
        return optim_share(o, err);
    }
    if (o->whole)
        TRY(gather_gradients(o, err));
    for (int i = REST; i <= TIED; i++) {
        const float *g = o->whole ? o->whole + o->range[i].begin : o->region[i].sum;

        TRY(optim_update_range(o, &o->range[i], g, err));
    }
    TRY(o->cfg.k->stream_sync(o->cfg.stream, err));
    return o->cfg.narrow ? optim_publish(o, err) : share_weights(o, t, !o->master, err);
}

double optim_lr(const struct job_spec *spec, uint64_t s)
{
    double lr = spec->train.optimizer.lr, r = spec->train.optimizer.min_lr_ratio;
    double warm = spec->train.optimizer.warmup, at = (double)s, all = spec->train.steps, part;

    if (at < warm)
        return lr * (at + 1) / warm;
    if (spec->train.optimizer.schedule == LR_CONSTANT)
        return lr;
    part = all > warm ? (at - warm) / (all - warm) : 1;
    if (spec->train.optimizer.schedule == LR_LINEAR)
        return lr * (r + (1 - r) * (1 - part));
    return lr * (r + (1 - r) * 0.5 * (1 + cos(M_PI * part)));
}
