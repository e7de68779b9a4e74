#include "worker/train/exchange.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "scheduler/plan/layout.h"
#include "worker/train/param.h"
#include "worker/train/try.h"

struct exchange {
    struct exchange_cfg cfg;
    struct tree_node (*node)[TREE_PARTIALS_MAX]; /* [replicas] what each is left with */
    int *nodes;                                  /* [replicas] */
    int all, most;
    float *memory, *received[EXCHANGE_REGIONS]; /* nodes of the others for our pieces, in their order */
    size_t mark;                                /* region 0 is on its way from here on; its end: nothing is */
    struct comm_request **request;              /* of this step */
    size_t n, capacity;
};

static void set_nodes(struct exchange *x)
{
    int begin, end;

    for (int i = 0; i < x->cfg.replicas; i++) {
        plan_leaves(x->cfg.leaves, x->cfg.replicas, i, &begin, &end);
        x->nodes[i] = tree_partials(begin, end, x->node[i]);
        x->all += x->nodes[i];
        x->most = x->nodes[i] > x->most ? x->nodes[i] : x->most;
    }
}

static size_t region_end(const struct exchange *x, int region)
{
    return x->cfg.region[region].at + x->cfg.region[region].n;
}

/* Place the received nodes of all regions in memory. Returns the floats. */
static size_t place(struct exchange *x)
{
    int others = x->all - x->nodes[x->cfg.index];
    size_t at = 0, begin, n;

    for (int r = 0; r < EXCHANGE_REGIONS; r++) {
        exchange_piece(x, r, x->cfg.index, &begin, &n);
        x->received[r] = x->memory ? x->memory + at : NULL;
        at += n * others;
    }
    return at;
}

int exchange_new(const struct exchange_cfg *cfg, struct exchange **ret, struct merr *err)
{
    struct exchange *x = calloc(1, sizeof(*x));
    size_t n;
    int r;

    if (x) {
        x->cfg = *cfg;
        x->node = calloc(cfg->replicas, sizeof(*x->node));
        x->nodes = calloc(cfg->replicas, sizeof(*x->nodes));
    }
    if (!x || !x->node || !x->nodes) {
        exchange_free(x);
        return merr_set(err, -ENOMEM, "no memory for what %d replicas exchange", cfg->replicas);
    }
    set_nodes(x);
    x->mark = region_end(x, 0);
    n = cfg->group ? place(x) : 0;
    if (n > 0) {
        r = cfg->k->mem_alloc(cfg->stream, n * sizeof(float), (void **)&x->memory, err);
        if (r != 0) {
            exchange_free(x);
            return r;
        }
        (void)place(x);
    }
    *ret = x;
    return 0;
}

void exchange_free(struct exchange *x)
{
    if (!x)
        return;
    for (size_t i = 0; i < x->n; i++)
        (void)comm_wait(x->request[i], NULL);
    if (x->memory)
        x->cfg.k->mem_free(x->cfg.stream, x->memory);
    free(x->request);
    free(x->nodes);
    free(x->node);
    free(x);
}

int exchange_nodes(const struct exchange *x)
{
    return x->all;
}

int exchange_own_nodes(const struct exchange *x)
{
    return x->nodes[x->cfg.index];
}

void exchange_piece(const struct exchange *x, int region, int i, size_t *ret_begin, size_t *ret_n)
{
    size_t end;

    params_cut(x->cfg.region[region].n, x->cfg.replicas, i, ret_begin, &end);
    *ret_n = end - *ret_begin;
}

/* Where node p of replica i for our piece of a region stands: replicas in order, us left out. */
static float *received_at(const struct exchange *x, int region, int i, int p)
{
    size_t before = 0, begin, n;

    exchange_piece(x, region, x->cfg.index, &begin, &n);
    for (int j = 0; j < i; j++)
        if (j != x->cfg.index)
            before += x->nodes[j];
    return x->received[region] + (before + p) * n;
}

/* The part of [from, to) of the arena in replica i's piece of a region. False: none. */
static bool overlap(const struct exchange *x, int region, int i, size_t from, size_t to, size_t *ret_at, size_t *ret_n)
{
    size_t begin, n;

    exchange_piece(x, region, i, &begin, &n);
    begin += x->cfg.region[region].at;
    *ret_at = from > begin ? from : begin;
    *ret_n = to < begin + n ? to : begin + n;
    if (*ret_at >= *ret_n)
        return false;
    *ret_n -= *ret_at;
    return true;
}

static int remember(struct exchange *x, struct merr *err)
{
    size_t capacity = x->capacity ? 2 * x->capacity : 64;
    struct comm_request **v;

    if (x->n < x->capacity)
        return 0;
    v = realloc(x->request, capacity * sizeof(*v));
    if (!v)
        return merr_set(err, -ENOMEM, "no memory for %zu messages", capacity);
    x->request = v;
    x->capacity = capacity;
    return 0;
}

/* [from, to) of a region to and from replica i; both sides come here in the same order. buffer: of our nodes. */
static int trade(struct exchange *x, int region, int i, size_t from, size_t to, float *const *buffer, struct merr *err)
{
    int me = x->cfg.index;
    size_t at, n, begin, mine;

    exchange_piece(x, region, me, &begin, &mine);
    begin += x->cfg.region[region].at;
    for (int p = 0; overlap(x, region, me, from, to, &at, &n) && p < x->nodes[i]; p++) {
        TRY(remember(x, err));
        TRY(comm_irecv(x->cfg.group, i, (uint32_t)p, received_at(x, region, i, p) + (at - begin), n * sizeof(float),
                       &x->request[x->n], err));
        x->n++;
    }
    for (int p = 0; overlap(x, region, i, from, to, &at, &n) && p < x->nodes[me]; p++) {
        TRY(remember(x, err));
        TRY(comm_isend(x->cfg.group, i, (uint32_t)p, buffer[p] + at, n * sizeof(float), &x->request[x->n], err));
        x->n++;
    }
    return 0;
}

static int trade_all(struct exchange *x, int region, size_t from, size_t to, float *const *buffer, struct merr *err)
{
    if (from == to || !x->cfg.group)
        return 0;
    TRY(x->cfg.k->stream_sync(x->cfg.stream, err));
    for (int i = 1; i < x->cfg.replicas; i++) /* each begins with its neighbour */
        TRY(trade(x, region, (x->cfg.index + i) % x->cfg.replicas, from, to, buffer, err));
    return 0;
}

int exchange_from(struct exchange *x, const struct tree *t, size_t from, struct merr *err)
{
    float *buffer[TREE_PARTIALS_MAX];
    int n = tree_last(t, buffer);

    assert(n == x->nodes[x->cfg.index] && from >= t->mark && from <= x->mark);
    TRY(trade_all(x, 0, from, x->mark, buffer, err));
    x->mark = from;
    return 0;
}

int exchange_rest(struct exchange *x, const struct tree *t, struct merr *err)
{
    float *buffer[TREE_PARTIALS_MAX];

    assert(t->nodes == x->nodes[x->cfg.index]);
    for (int i = 0; i < t->nodes; i++)
        buffer[i] = t->pool[t->at[i]];
    for (int r = 0; r < EXCHANGE_REGIONS; r++)
        TRY(trade_all(x, r, x->cfg.region[r].at, r == 0 ? x->mark : region_end(x, r), buffer, err));
    x->mark = region_end(x, 0);
    while (x->n > 0) {
        x->n--;
        TRY(comm_wait(x->request[x->n], err));
    }
    return 0;
}

void exchange_values(const struct exchange *x, int region, const struct tree *t, struct tree_node *node, float **value)
{
    size_t begin, n;
    int at = 0;

    exchange_piece(x, region, x->cfg.index, &begin, &n);
    for (int i = 0; i < x->cfg.replicas; i++)
        for (int p = 0; p < x->nodes[i]; p++) {
            node[at] = x->node[i][p];
            value[at++] = i == x->cfg.index ? t->pool[t->at[p]] + x->cfg.region[region].at + begin
                                            : received_at(x, region, i, p);
        }
}
