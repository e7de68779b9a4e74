#include "worker/engine/optim/optim_priv.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/try.h"

void optim_piece(const struct optim *o, const struct region *g, int i, size_t *ret_begin, size_t *ret_n)
{
    size_t end;

    params_cut(g->n, o->cfg.mesh.dp, i, ret_begin, &end);
    *ret_n = end - *ret_begin;
}

static void set_regions(struct optim *o)
{
    const struct params *p = o->cfg.params;
    size_t begin, n;

    o->region[REST] = (struct region){.at = 0, .n = p->rest_n};
    o->region[TIED] = (struct region){.at = p->rest_n, .n = p->tied_n};
    o->region[HEAD] = (struct region){.at = p->grad_head_at, .n = p->grad_head_at ? p->tied_n : 0};
    for (int i = REST; i <= TIED; i++) {
        const struct region *g = &o->region[i];

        begin = 0;
        n = g->n;
        if (o->cfg.zero)
            optim_piece(o, g, o->cfg.mesh.dp_index, &begin, &n);
        o->range[i] = (struct optim_range){g->at + begin, g->at + begin + n, o->cfg.m ? g->at + begin : o->state_n};
        o->state_n += n;
    }
}

/* Of each range a part for every rank that keeps it. */
static void set_load(struct optim *o)
{
    const struct mesh *m = &o->cfg.mesh;

    for (int i = REST; i <= TIED; i++) {
        const struct optim_range *r = &o->range[i];
        size_t from, to, begin, end;

        params_cut(r->end - r->begin, m->cp, m->cp_index, &from, &to);
        params_cut(to - from, o->cfg.zero ? 1 : m->dp, o->cfg.zero ? 0 : m->dp_index, &begin, &end);
        o->load[i] = (struct optim_range){r->begin + from + begin, r->begin + from + end, r->state + from + begin};
    }
}

static struct exchange_cfg exchange_config(const struct optim *o)
{
    struct exchange_cfg x = {
        .k = o->cfg.k,
        .stream = o->cfg.stream,
        .group = wire_coded(o->cfg.wire) ? NULL : o->cfg.dp,
        .replicas = o->cfg.mesh.dp,
        .index = o->cfg.mesh.dp_index,
        .leaves = o->cfg.leaves,
        .keyed = o->cfg.keyed,
        .share = o->cfg.share,
    };

    for (int i = 0; i < REGIONS; i++)
        x.region[i] = (struct tree_span){o->region[i].at, o->region[i].n};
    return x;
}

int optim_open_exchange(struct optim *o, struct merr *err)
{
    struct exchange_cfg x = exchange_config(o);

    return exchange_new(&x, &o->exchange, err);
}

static int host_memory(struct optim *o, struct merr *err)
{
    int dp = o->cfg.mesh.dp, cp = o->cfg.mesh.cp, most = dp > cp ? dp : cp;

    o->bytes = calloc(most, sizeof(*o->bytes));
    o->at = calloc(most, sizeof(*o->at));
    o->cut = calloc((size_t)dp + 1, sizeof(*o->cut));
    o->blocks = calloc(o->cfg.params->weight_n / PARAM_BLOCK + 1, sizeof(*o->blocks));
    if (!o->bytes || !o->at || !o->cut || !o->blocks)
        return merr_set(err, -ENOMEM, "no memory for the optimizer's tables");
    if (!o->cfg.keyed)
        return 0;
    TRY(keyed_reach(o->cfg.keyed, o->cfg.k, o->cfg.stream, err));
    o->units = malloc(keyed_weight_bytes(o->cfg.keyed, o->cfg.params->weight_n) + 1);
    return o->units ? 0 : merr_set(err, -ENOMEM, "no memory for the weights' coded differences");
}

/* The part of parameter q in our piece of rest, as offsets from the piece's beginning. False: none. */
static bool in_piece(const struct optim *o, const struct param *q, size_t *ret_at, size_t *ret_n)
{
    size_t begin, n, from, to;

    optim_piece(o, &o->region[REST], o->cfg.mesh.dp_index, &begin, &n);
    from = q->at > begin ? q->at : begin;
    to = q->at + q->n < begin + n ? q->at + q->n : begin + n;
    if (from >= to)
        return false;
    *ret_at = from - begin;
    *ret_n = to - from;
    return true;
}

/* Most floats of one kind of sums in our piece. */
static size_t parts_floats(const struct optim *o)
{
    const struct params *p = o->cfg.params;
    size_t most = 0, at, n;

    for (int sum = PARAM_SUM_NONE + 1; sum < PARAM_SUMS; sum++) {
        size_t all = 0;

        for (int i = 0; i < p->n; i++)
            if (p->v[i].sum == (enum param_sum)sum && in_piece(o, &p->v[i], &at, &n))
                all += n;
        most = all > most ? all : most;
    }
    return most;
}

static int device_memory(struct optim *o, struct merr *err)
{
    const struct kern_ops *k = o->cfg.k;
    size_t n = parts_floats(o);

    o->m = o->cfg.m;
    o->v = o->cfg.v;
    if (!o->m && !o->cfg.store) {
        TRY(k->mem_alloc(o->cfg.stream, (o->state_n + 1) * sizeof(float), (void **)&o->m, err));
        TRY(k->mem_alloc(o->cfg.stream, (o->state_n + 1) * sizeof(float), (void **)&o->v, err));
    }
    o->master = o->cfg.master;
    if (!o->master && !o->cfg.store && (wire_coded(o->cfg.wire) || o->cfg.keyed || o->cfg.narrow))
        TRY(k->mem_alloc(o->cfg.stream, (o->state_n + 1) * sizeof(float), (void **)&o->master, err));
    if (n > 0)
        TRY(k->mem_alloc(o->cfg.stream, n * sizeof(float), (void **)&o->parts, err));
    if (!o->cfg.zero && o->cfg.mesh.dp > 1)
        TRY(k->mem_alloc(o->cfg.stream, o->cfg.params->weight_n * sizeof(float), (void **)&o->whole, err));
    return 0;
}

int optim_new(const struct optim_cfg *cfg, struct optim **ret, struct merr *err)
{
    struct optim *o = calloc(1, sizeof(*o));
    int r;

    if (!o)
        return merr_set(err, -ENOMEM, "no memory for the optimizer");
    assert(cfg->zero || !(wire_coded(cfg->wire) || cfg->keyed));
    assert(!cfg->keyed || !wire_coded(cfg->wire));
    assert(!cfg->m || (cfg->v && !wire_coded(cfg->wire) && !cfg->keyed && cfg->narrow == !!cfg->master));
    assert(!cfg->store || (cfg->zero && cfg->mesh.cp == 1 && !cfg->m && !cfg->k->recorded && !cfg->keyed &&
                           !wire_coded(cfg->wire) && cfg->store->masters == cfg->narrow));
    assert(!cfg->narrow || (cfg->matrices && cfg->vectors && cfg->zero && !wire_coded(cfg->wire) && !cfg->keyed));
    o->cfg = *cfg;
    set_regions(o);
    set_load(o);
    r = optim_open_exchange(o, err);
    if (r == 0)
        r = host_memory(o, err);
    if (r == 0)
        r = device_memory(o, err);
    if (r == 0)
        *ret = o;
    else
        optim_free(o);
    return r;
}

void optim_free(struct optim *o)
{
    if (!o)
        return;
    if (o->m && !o->cfg.m)
        o->cfg.k->mem_free(o->cfg.stream, o->m);
    if (o->v && !o->cfg.v)
        o->cfg.k->mem_free(o->cfg.stream, o->v);
    exchange_free(o->exchange);
    if (o->parts)
        o->cfg.k->mem_free(o->cfg.stream, o->parts);
    if (o->master && !o->cfg.master)
        o->cfg.k->mem_free(o->cfg.stream, o->master);
    if (o->whole)
        o->cfg.k->mem_free(o->cfg.stream, o->whole);
    free(o->units);
    free(o->bytes);
    free(o->at);
    free(o->cut);
    free(o->blocks);
    free(o);
}

size_t optim_bytes(const struct optim_cfg *cfg)
{
    size_t n = cfg->params->weight_n, d = cfg->mesh.dp;
    struct optim o = {.cfg = *cfg};
    struct exchange_cfg x;

    if (cfg->coded)
        return sizeof(float) * 3 * n / d;
    set_regions(&o);
    x = exchange_config(&o);
    if (cfg->keyed)
        return sizeof(float) * 3 * n / d + keyed_weight_bytes(cfg->keyed, n) + exchange_bytes(&x);
    if (cfg->stored)
        return exchange_bytes(&x);
    if (cfg->narrow)
        return sizeof(float) * 3 * n / d + exchange_bytes(&x);
    return sizeof(float) * (cfg->zero ? 2 * n / d : 2 * n + (d > 1 ? n : 0)) + exchange_bytes(&x);
}

const struct optim_range *optim_ranges(const struct optim *o)
{
    return o->range;
}

const struct optim_range *optim_load_ranges(const struct optim *o)
{
    return o->load;
}

size_t optim_state_n(const struct optim *o)
{
    return o->state_n;
}

float *optim_master(struct optim *o)
{
    return o->cfg.narrow ? o->master : NULL;
}

float *optim_m(struct optim *o)
{
    return o->m;
}

float *optim_v(struct optim *o)
{
    return o->v;
}

const size_t *optim_cuts(struct optim *o, const struct region *g)
{
    size_t n;

    for (int i = 0; i < o->cfg.mesh.dp; i++)
        optim_piece(o, g, i, &o->cut[i], &n);
    o->cut[o->cfg.mesh.dp] = g->n;
    return o->cut;
}

/* Coded: the sum of our nodes to the owners. */
static int sum_region(struct optim *o, struct region *g, struct tree *t, uint64_t step, struct merr *err)
{
    float *x = t->pool[t->at[0]] + g->at;

    for (int p = 1; p < t->nodes; p++)
        TRY(o->cfg.k->add(o->cfg.stream, x, t->pool[t->at[p]] + g->at, g->n, err));
    TRY(o->cfg.k->stream_sync(o->cfg.stream, err));
    TRY(wire_sum_shares(o->cfg.wire, (unsigned)(g - o->region), step, x, optim_cuts(o, g), err));
    g->sum = x + o->cut[o->cfg.mesh.dp_index];
    return 0;
}

int optim_begin(struct optim *o, uint64_t step, struct merr *err)
{
    const struct optim_store *s = o->cfg.store;

    if (s)
        TRY(s->begin(s->arg, false, err));
    return exchange_begin(o->exchange, step, err);
}

int optim_leaf(struct optim *o, int leaf, float *buffer, size_t at, size_t n, struct merr *err)
{
    return exchange_leaf(o->exchange, leaf, buffer, at, n, err);
}

int optim_reduce_from(struct optim *o, const struct tree *t, size_t from, struct merr *err)
{
    return wire_coded(o->cfg.wire) ? 0 : exchange_from(o->exchange, t, from, err);
}

/* Copy our piece of the parameters of one kind of sums out of rest, side by side, or back. Returns the floats. */
static int move_parts(struct optim *o, enum param_sum sum, bool back, size_t *ret_n, struct merr *err)
{
    const struct params *p = o->cfg.params;
    size_t all = 0, at, n;

    for (int i = 0; i < p->n; i++) {
        float *mine = o->parts + all, *theirs;

        if (p->v[i].sum != sum || !in_piece(o, &p->v[i], &at, &n))
            continue;
        theirs = o->region[REST].sum + at;
        TRY(o->cfg.k->copy(o->cfg.stream, back ? theirs : mine, back ? mine : theirs, n * sizeof(float), err));
        all += n;
    }
    *ret_n = all;
    return 0;
}

/* Gradients of which each member of a group has seen only some tokens. */
static int add_parts(struct optim *o, struct merr *err)
{
    size_t n;

    for (int sum = PARAM_SUM_NONE + 1; sum < PARAM_SUMS; sum++) {
        if (!o->cfg.sum[sum] || !o->parts)
            continue;
        TRY(move_parts(o, (enum param_sum)sum, false, &n, err));
        if (n == 0)
            continue;
        TRY(o->cfg.k->stream_sync(o->cfg.stream, err));
        TRY(comm_all_reduce(o->cfg.sum[sum], o->parts, n, COMM_F32, COMM_SUM, err));
        TRY(move_parts(o, (enum param_sum)sum, true, &n, err));
    }
    return 0;
}

/* The embedding's part plus the head's, wherever that is. */
static int add_tied(struct optim *o, struct merr *err)
{
    struct region *g = &o->region[TIED];
    size_t begin, n;

    optim_piece(o, g, o->cfg.mesh.dp_index, &begin, &n);
    if (o->region[HEAD].n > 0)
        return o->cfg.k->add(o->cfg.stream, g->sum, o->region[HEAD].sum, n, err);
    if (!o->cfg.pair || n == 0)
        return 0;
    TRY(o->cfg.k->stream_sync(o->cfg.stream, err));
    return comm_all_reduce(o->cfg.pair, g->sum, n, COMM_F32, COMM_SUM, err);
}

/* The parts of the ranks that share sequences with this one. */
static int add_context(struct optim *o, struct merr *err)
{
    size_t begin, n;

    if (!o->cfg.cp)
        return 0;
    TRY(o->cfg.k->stream_sync(o->cfg.stream, err));
    for (int i = REST; i <= TIED; i++) {
        optim_piece(o, &o->region[i], o->cfg.mesh.dp_index, &begin, &n);
        if (n > 0)
            TRY(comm_all_reduce(o->cfg.cp, o->region[i].sum, n, COMM_F32, COMM_SUM, err));
    }
    return 0;
}

int optim_reduce(struct optim *o, struct tree *t, uint64_t step, struct merr *err)
{
    bool coded = wire_coded(o->cfg.wire);

    assert(t->nodes == exchange_own_nodes(o->exchange));
    TRY(o->cfg.k->stream_sync(o->cfg.stream, err));
    if (!coded) {
        int64_t began_us = clock_mono_us();

        TRY(exchange_rest(o->exchange, t, err));
        wire_spent(o->cfg.wire, began_us, o->cfg.dp ? o->cfg.params->grad_n : 0);
    }
    for (int i = 0; i < REGIONS; i++) {
        struct region *g = &o->region[i];

        if (coded && g->n > 0)
            TRY(sum_region(o, g, t, step, err));
        else if (g->n > 0)
            g->sum = exchange_sum(o->exchange, i, t);
    }
    TRY(add_parts(o, err));
    TRY(add_tied(o, err));
    return add_context(o, err);
}

int optim_gather(struct optim *o, const struct region *g, void *array, size_t unit, struct merr *err)
{
    char *base = (char *)array + g->at / PARAM_BLOCK * unit;
    size_t begin, n;

    if (!o->cfg.dp || g->n == 0)
        return 0;
    for (int i = 0; i < o->cfg.mesh.dp; i++) {
        optim_piece(o, g, i, &begin, &n);
        o->at[i] = begin / PARAM_BLOCK * unit;
        o->bytes[i] = n / PARAM_BLOCK * unit;
    }
    return comm_all_gather_v(o->cfg.dp, base + o->at[o->cfg.mesh.dp_index], o->bytes, o->at, base, err);
}

int optim_squares(struct optim *o, double *sums, struct merr *err)
{
    const struct params *p = o->cfg.params;
    size_t begin, n;

    if (o->cfg.store)
        TRY(o->cfg.store->settle(o->cfg.store->arg, err));
    for (int i = REST; i <= TIED; i++) {
        const struct region *g = &o->region[i];

        optim_piece(o, g, o->cfg.mesh.dp_index, &begin, &n);
        if (n > 0)
            TRY(o->cfg.k->sum_squares(o->cfg.stream, g->sum, n, PARAM_BLOCK, o->blocks + (g->at + begin) / PARAM_BLOCK,
                                      err));
        TRY(optim_gather(o, g, o->blocks, sizeof(double), err));
    }
    if (o->cfg.mesh.dp_index != 0 || o->cfg.mesh.cp_index != 0)
        return 0;
    for (int i = 0; i < p->n; i++) {
        const struct param *q = &p->v[i];
        size_t first = q->at / PARAM_BLOCK, end = first + (q->n + PARAM_BLOCK - 1) / PARAM_BLOCK;
        double sum = 0;

        for (size_t b = first; b < end; b++)
            sum += o->blocks[b];
        if (!q->copy)
            sums[(size_t)q->id * o->cfg.mesh.tp + o->cfg.mesh.tp_index] = sum;
    }
    return 0;
}
