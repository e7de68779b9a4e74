#include "worker/optim/optim.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/try.h"
#include "worker/optim/exchange.h"

enum { REST, TIED, HEAD, REGIONS = EXCHANGE_REGIONS };
#define PART_WEIGHTS REGIONS /* vectors that travel: gradients by region, then weights by region */

struct region { /* of the gradient arena, cut over dp */
    size_t at, n;
    float *sum; /* our piece of the finished tree; lies in one of the leaves' buffers or in what was received */
};

struct optim {
    struct optim_cfg cfg;
    struct region region[REGIONS];
    struct optim_range range[2], load[2];
    size_t state_n;
    float *m, *v;
    float *master;      /* coded dp: the weights of our pieces, placed as m and v */
    char *units;        /* keyed: of all weights' differences */
    bool apart;         /* the weights are not the masters */
    size_t *cut;        /* [dp + 1] */
    double *blocks;     /* sums of squares of the arena's blocks */
    float *parts;       /* of gradients to be added over tp, side by side */
    float *whole;       /* zero 0: the reduced gradient, gathered */
    struct exchange *exchange;
    size_t *bytes, *at; /* [dp], [cp] */
    float **value;      /* [exchange_nodes()] */
    struct tree_node *list;
    struct kern_adamw_step now; /* of the update under way */
};

static void piece(const struct optim *o, const struct region *g, int i, size_t *ret_begin, size_t *ret_n)
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
            piece(o, g, o->cfg.mesh.dp_index, &begin, &n);
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
        .k = o->cfg.k, .stream = o->cfg.stream, .group = wire_coded(o->cfg.wire) ? NULL : o->cfg.dp,
        .replicas = o->cfg.mesh.dp, .index = o->cfg.mesh.dp_index, .leaves = o->cfg.leaves, .keyed = o->cfg.keyed,
        .share = o->cfg.share,
    };

    for (int i = 0; i < REGIONS; i++)
        x.region[i] = (struct tree_span){o->region[i].at, o->region[i].n};
    return x;
}

static int open_exchange(struct optim *o, struct merr *err)
{
    struct exchange_cfg x = exchange_config(o);

    return exchange_new(&x, &o->exchange, err);
}

static int host_memory(struct optim *o, struct merr *err)
{
    int dp = o->cfg.mesh.dp, cp = o->cfg.mesh.cp, most = dp > cp ? dp : cp, nodes = exchange_nodes(o->exchange);

    o->bytes = calloc(most, sizeof(*o->bytes));
    o->at = calloc(most, sizeof(*o->at));
    o->cut = calloc((size_t)dp + 1, sizeof(*o->cut));
    o->value = calloc(nodes, sizeof(*o->value));
    o->list = calloc(nodes, sizeof(*o->list));
    o->blocks = calloc(o->cfg.params->weight_n / PARAM_BLOCK + 1, sizeof(*o->blocks));
    if (!o->bytes || !o->at || !o->cut || !o->value || !o->list || !o->blocks)
        return merr_set(err, -ENOMEM, "no memory for the optimizer's tables");
    if (!o->cfg.keyed)
        return 0;
    o->units = malloc(keyed_weight_bytes(o->cfg.keyed, o->cfg.params->weight_n) + 1);
    return o->units ? 0 : merr_set(err, -ENOMEM, "no memory for the weights' coded differences");
}

/* The part of parameter q in our piece of rest, as offsets from the piece's beginning. False: none. */
static bool in_piece(const struct optim *o, const struct param *q, size_t *ret_at, size_t *ret_n)
{
    size_t begin, n, from, to;

    piece(o, &o->region[REST], o->cfg.mesh.dp_index, &begin, &n);
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
    if (!o->m) {
        TRY(k->mem_alloc(o->cfg.stream, (o->state_n + 1) * sizeof(float), (void **)&o->m, err));
        TRY(k->mem_alloc(o->cfg.stream, (o->state_n + 1) * sizeof(float), (void **)&o->v, err));
    }
    if (wire_coded(o->cfg.wire) || o->cfg.keyed)
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
    assert(!cfg->m || (cfg->v && !wire_coded(cfg->wire) && !cfg->keyed));
    o->cfg = *cfg;
    set_regions(o);
    set_load(o);
    r = open_exchange(o, err);
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
    if (o->master)
        o->cfg.k->mem_free(o->cfg.stream, o->master);
    if (o->whole)
        o->cfg.k->mem_free(o->cfg.stream, o->whole);
    free(o->units);
    free(o->bytes);
    free(o->at);
    free(o->cut);
    free(o->value);
    free(o->list);
    free(o->blocks);
    free(o);
}

size_t optim_bytes(const struct optim_cfg *cfg)
{
    size_t n = cfg->params->weight_n, d = cfg->mesh.dp;

    if (cfg->keyed) {
        struct optim o = {.cfg = *cfg};
        struct exchange_cfg x;

        set_regions(&o);
        x = exchange_config(&o);
        return sizeof(float) * 3 * n / d + keyed_weight_bytes(cfg->keyed, n) + exchange_bytes(&x);
    }
    if (cfg->coded)
        return sizeof(float) * 3 * n / d;
    return sizeof(float) * (cfg->zero ? 2 * n / d : 2 * n + (d > 1 ? n : 0)) +
           (d > 1 ? sizeof(float) * cfg->params->grad_n / d * (d - 1) : 0);
}

const struct optim_range *optim_ranges(const struct optim *o)
{
    return o->range;
}

const struct optim_range *optim_load_ranges(const struct optim *o)
{
    return o->load;
}

float *optim_m(struct optim *o)
{
    return o->m;
}

float *optim_v(struct optim *o)
{
    return o->v;
}

/* Where the pieces of a region begin, and its end. */
static const size_t *cuts(struct optim *o, const struct region *g)
{
    size_t n;

    for (int i = 0; i < o->cfg.mesh.dp; i++)
        piece(o, g, i, &o->cut[i], &n);
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
    TRY(wire_sum_shares(o->cfg.wire, (unsigned)(g - o->region), step, x, cuts(o, g), err));
    g->sum = x + o->cut[o->cfg.mesh.dp_index];
    return 0;
}

static int finish_region(struct optim *o, int i, struct tree *t, struct merr *err)
{
    struct region *g = &o->region[i];
    size_t begin, n;

    if (g->n == 0)
        return 0;
    piece(o, g, o->cfg.mesh.dp_index, &begin, &n);
    exchange_values(o->exchange, i, t, o->list, o->value);
    return tree_finish(o->cfg.k, o->cfg.stream, o->cfg.leaves, o->list, o->value, exchange_nodes(o->exchange), n,
                       &g->sum, err);
}

int optim_begin(struct optim *o, uint64_t step, struct merr *err)
{
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

    piece(o, g, o->cfg.mesh.dp_index, &begin, &n);
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
        piece(o, &o->region[i], o->cfg.mesh.dp_index, &begin, &n);
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
        else
            TRY(finish_region(o, i, t, err));
    }
    TRY(add_parts(o, err));
    TRY(add_tied(o, err));
    return add_context(o, err);
}

/* Share pieces of a region's array of unit bytes for every PARAM_BLOCK elements, in place. */
static int gather(struct optim *o, const struct region *g, void *array, size_t unit, struct merr *err)
{
    char *base = (char *)array + g->at / PARAM_BLOCK * unit;
    size_t begin, n;

    if (!o->cfg.dp || g->n == 0)
        return 0;
    for (int i = 0; i < o->cfg.mesh.dp; i++) {
        piece(o, g, i, &begin, &n);
        o->at[i] = begin / PARAM_BLOCK * unit;
        o->bytes[i] = n / PARAM_BLOCK * unit;
    }
    return comm_all_gather_v(o->cfg.dp, base + o->at[o->cfg.mesh.dp_index], o->bytes, o->at, base, err);
}

int optim_squares(struct optim *o, double *sums, struct merr *err)
{
    const struct params *p = o->cfg.params;
    size_t begin, n;

    for (int i = REST; i <= TIED; i++) {
        const struct region *g = &o->region[i];

        piece(o, g, o->cfg.mesh.dp_index, &begin, &n);
        if (n > 0)
            TRY(o->cfg.k->sum_squares(o->cfg.stream, g->sum, n, PARAM_BLOCK,
                                      o->blocks + (g->at + begin) / PARAM_BLOCK, err));
        TRY(gather(o, g, o->blocks, sizeof(double), err));
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

struct update { /* of a range of the arena */
    struct optim *o;
    const struct optim_range *r;
    float *w;       /* weights or masters, and gradients: element r->begin first */
    const float *g;
};

/* The part of tensor q in the range, from its beginning on. False: none. */
static bool in_range(const struct optim_range *r, const struct param *q, size_t *ret_at, size_t *ret_n)
{
    size_t begin = q->at > r->begin ? q->at : r->begin, end = q->at + q->n < r->end ? q->at + q->n : r->end;

    if (begin >= end)
        return false;
    *ret_at = begin - r->begin;
    *ret_n = end - begin;
    return true;
}

/* Wait until tensor i of those by place may change. */
static int pass_gate(const struct optim *o, int i, struct merr *err)
{
    return o->cfg.gate ? o->cfg.gate(o->cfg.gate_arg, i, err) : 0;
}

static int pass_all_gates(const struct optim *o, const struct optim_range *r, struct merr *err)
{
    const struct params *p = o->cfg.params;
    size_t at, n;

    for (int i = 0; i < p->n; i++)
        if (in_range(r, p->by_place[i], &at, &n))
            TRY(pass_gate(o, i, err));
    return 0;
}

/* AdamW on the parts that belong to one tensor each. */
static int update_tensors(void *arg, struct merr *err)
{
    const struct update *u = arg;
    struct optim *o = u->o;
    const struct params *p = o->cfg.params;
    struct kern_adamw a = { .beta1 = (float)o->cfg.beta1, .beta2 = (float)o->cfg.beta2, .eps = (float)o->cfg.eps,
                            .step = &o->now };
    size_t at;

    for (int i = 0; i < p->n; i++) {
        if (!in_range(u->r, p->by_place[i], &at, &a.n))
            continue;
        if (!o->cfg.k->recorded)
            TRY(pass_gate(o, i, err));
        a.w = u->w + at;
        a.m = o->m + u->r->state + at;
        a.v = o->v + u->r->state + at;
        a.g = u->g + at;
        a.weight_decay = p->by_place[i]->decay ? (float)o->cfg.weight_decay : 0;
        TRY(o->cfg.k->adamw(o->cfg.stream, &a, err));
    }
    return 0;
}

/* Where updates are recorded they are queued all at once: then all gates come before. */
static int update_range(struct optim *o, const struct optim_range *r, const float *g, struct merr *err)
{
    struct update u = {.o = o, .r = r, .w = o->master ? o->master + r->state : o->cfg.weights + r->begin, .g = g};
    const struct kern_key key = {.head = &u, .head_bytes = sizeof(u)};

    if (r->begin == r->end)
        return 0;
    if (o->cfg.k->recorded)
        TRY(pass_all_gates(o, r, err));
    return kern_recorded(o->cfg.k, o->cfg.stream, &key, update_tensors, &u, err);
}

/* zero 0: everyone needs the whole reduced gradient. */
static int gather_gradients(struct optim *o, struct merr *err)
{
    size_t begin, n;

    for (int i = REST; i <= TIED; i++) {
        const struct region *g = &o->region[i];

        piece(o, g, o->cfg.mesh.dp_index, &begin, &n);
        if (n > 0)
            TRY(o->cfg.k->copy(o->cfg.stream, o->whole + g->at + begin, g->sum, n * sizeof(float), err));
        TRY(o->cfg.k->stream_sync(o->cfg.stream, err));
        TRY(gather(o, g, o->whole, PARAM_BLOCK * sizeof(float), err));
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

    TRY(gather(o, g, array, unit, err));
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

    keyed_code_weights(k, step, o->master + r->state, o->cfg.weights, r->begin, r->end - r->begin,
                       o->units + keyed_weight_bytes(k, r->begin));
    TRY(gather_timed(o, g, o->units, keyed_weight_bytes(k, PARAM_BLOCK), err));
    for (int p = 0; p < o->cfg.mesh.dp; p++) {
        piece(o, g, p, &begin, &n);
        begin += g->at;
        if (keyed_move_weights(k, o->units + keyed_weight_bytes(k, begin), o->cfg.weights, begin, n, &why) < 0)
            return merr_set(err, -EIO, "a block of weights from member %d of group 'dp' is not good, codec %s: %s",
                            p, keyed_weight_codec(k), why.text);
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
                                   o->cfg.weights + g->at, cuts(o, g), err));
    }
    return 0;
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
static int join(struct optim *o, struct comm_group *g, int members, int index, float *array, size_t n,
                struct merr *err)
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
    for (int i = REST; i <= TIED; i++) {
        const struct optim_range *r = &o->range[i];
        size_t n = r->end - r->begin;

        TRY(join_range(o, o->cfg.weights + r->begin, n, err));
        TRY(join_range(o, o->m + r->state, n, err));
        TRY(join_range(o, o->v + r->state, n, err));
    }
    return share_weights(o, 0, true, err);
}

int optim_follow_wire(struct optim *o, struct merr *err)
{
    bool coded = wire_coded(o->cfg.wire);

    assert(!o->apart);
    if (o->cfg.keyed || coded == (o->master != NULL))
        return 0;
    exchange_free(o->exchange);
    o->exchange = NULL;
    TRY(open_exchange(o, err));
    if (coded)
        return o->cfg.k->mem_alloc(o->cfg.stream, (o->state_n + 1) * sizeof(float), (void **)&o->master, err);
    o->cfg.k->mem_free(o->cfg.stream, o->master);
    o->master = NULL;
    return 0;
}

int optim_check_replicas(struct optim *o, struct merr *err)
{
    int64_t sum, both[2]; /* the largest and, negated, the smallest of all replicas */

    if (!o->master || !o->cfg.dp)
        return 0;
    sum = (int64_t)(hash_xxh3(o->cfg.weights, o->cfg.params->weight_n * sizeof(float)) >> 1);
    both[0] = sum;
    both[1] = -sum;
    TRY(comm_all_reduce(o->cfg.dp, both, 2, COMM_I64, COMM_MAX, err));
    if (both[0] == -both[1])
        return 0;
    return merr_set(err, -EPROTO, "the replicas' weights are not the same any more (rank %d holds %016llx): memory or "
                    "a link is broken; the job goes on from its last checkpoint", o->cfg.mesh.rank,
                    (unsigned long long)sum);
}

int optim_update(struct optim *o, uint64_t t, double lr, double scale, struct merr *err)
{
    o->now = (struct kern_adamw_step){
        .grad_scale = (float)scale, .lr = (float)lr, .inv_bias1 = (float)(1 / (1 - pow(o->cfg.beta1, (double)t))),
        .inv_bias2 = (float)(1 / (1 - pow(o->cfg.beta2, (double)t))),
    };
    if (o->master && !o->apart)
        TRY(copy_masters(o, false, err));
    o->apart = o->master != NULL;
    if (o->whole)
        TRY(gather_gradients(o, err));
    for (int i = REST; i <= TIED; i++) {
        const float *g = o->whole ? o->whole + o->range[i].begin : o->region[i].sum;

        TRY(update_range(o, &o->range[i], g, err));
    }
    TRY(o->cfg.k->stream_sync(o->cfg.stream, err));
    return share_weights(o, t, !o->master, err);
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
