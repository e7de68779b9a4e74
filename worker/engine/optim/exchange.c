#include "worker/engine/optim/exchange.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/try.h"
#include "scheduler/plan/layout.h"
#include "worker/engine/model/param.h"

#define CODED_LEAVES 4 /* most of a node that travels as its leaves: of more, the sum is shorter */

/* Tags of messages: a node's number among its replica's, or a leaf's region. */
#define TAG_LEAF(leaf, region) ((uint32_t)(TREE_PARTIALS_MAX + (leaf)*EXCHANGE_REGIONS + (region)))

struct leaf { /* that travels coded */
    int number, replica;
    char *units;    /* ours: of the whole arena; another's: of our pieces, region after region */
    size_t missing; /* ours: floats still to be coded in this step */
};

struct exchange {
    struct exchange_cfg cfg;
    struct tree_node (*node)[TREE_PARTIALS_MAX]; /* [replicas] what each is left with */
    int *nodes;                                  /* [replicas] */
    int all, most;
    float *memory, *received[EXCHANGE_REGIONS]; /* nodes of the others for our pieces, in their order */
    size_t mark;                                /* region 0 is on its way from here on; its end: nothing is */
    struct comm_request **request;              /* of this step */
    size_t n, capacity;
    uint64_t step;     /* with codecs, and these too */
    struct leaf *leaf; /* [leaves] by number */
    int leaves;
    char *units; /* of all leaves */
};

static void set_nodes(struct exchange *x)
{
    int begin, end;

    for (int i = 0; i < x->cfg.replicas; i++) {
        plan_leaves_shared(x->cfg.share, x->cfg.leaves, x->cfg.replicas, i, &begin, &end);
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

/* Whether a node travels as its coded leaves. */
static bool as_leaves(const struct exchange_cfg *cfg, const struct tree_node *node)
{
    return cfg->keyed && cfg->replicas > 1 && node->size <= CODED_LEAVES &&
           (size_t)node->size * keyed_gradient_bytes(cfg->keyed, PARAM_BLOCK) < PARAM_BLOCK * sizeof(float);
}

/* Replica i's floats in the first `regions`. */
static size_t piece_floats(const struct exchange_cfg *cfg, int i, int regions)
{
    size_t all = 0, begin, end;

    for (int r = 0; r < regions; r++) {
        params_cut(cfg->region[r].n, cfg->replicas, i, &begin, &end);
        all += end - begin;
    }
    return all;
}

static size_t all_floats(const struct exchange_cfg *cfg)
{
    size_t all = 0;

    for (int r = 0; r < EXCHANGE_REGIONS; r++)
        all += cfg->region[r].n;
    return all;
}

/* The leaves that travel coded, into leaf unless it is NULL, units from `units` on. Returns how many. */
static int list_leaves(const struct exchange_cfg *cfg, char *units, struct leaf *leaf, size_t *ret_bytes)
{
    struct tree_node node[TREE_PARTIALS_MAX];
    size_t bytes = 0;
    int n = 0;

    for (int i = 0; i < cfg->replicas; i++) {
        size_t floats = i == cfg->index ? all_floats(cfg) : piece_floats(cfg, cfg->index, EXCHANGE_REGIONS);
        int begin, end, nodes;

        plan_leaves_shared(cfg->share, cfg->leaves, cfg->replicas, i, &begin, &end);
        nodes = tree_partials(begin, end, node);
        for (int p = 0; p < nodes; p++)
            for (int k = 0; as_leaves(cfg, &node[p]) && k < node[p].size; k++) {
                if (leaf)
                    leaf[n] = (struct leaf){.number = node[p].lo + k, .replica = i, .units = units + bytes};
                bytes += keyed_gradient_bytes(cfg->keyed, floats);
                n++;
            }
    }
    *ret_bytes = bytes;
    return n;
}

size_t exchange_bytes(const struct exchange_cfg *cfg)
{
    struct tree_node node[TREE_PARTIALS_MAX];
    size_t bytes;
    int others = 0, begin, end;

    if (cfg->replicas == 1)
        return 0;
    (void)list_leaves(cfg, NULL, NULL, &bytes);
    for (int i = 0; i < cfg->replicas; i++) {
        plan_leaves_shared(cfg->share, cfg->leaves, cfg->replicas, i, &begin, &end);
        others += i == cfg->index ? 0 : tree_partials(begin, end, node);
    }
    return bytes + (size_t)others * piece_floats(cfg, cfg->index, EXCHANGE_REGIONS) * sizeof(float);
}

static int allocate(struct exchange *x, struct merr *err)
{
    const struct exchange_cfg *cfg = &x->cfg;
    size_t n = cfg->group ? place(x) : 0, bytes;

    if (n > 0)
        TRY(cfg->k->mem_alloc(cfg->stream, n * sizeof(float), (void **)&x->memory, err));
    (void)place(x);
    x->leaves = list_leaves(cfg, NULL, NULL, &bytes);
    if (x->leaves == 0)
        return 0;
    x->leaf = calloc((size_t)x->leaves, sizeof(*x->leaf));
    x->units = malloc(bytes);
    if (!x->leaf || !x->units)
        return merr_set(err, -ENOMEM, "no memory for %d coded gradients", x->leaves);
    (void)list_leaves(cfg, x->units, x->leaf, &bytes);
    return 0;
}

int exchange_new(const struct exchange_cfg *cfg, struct exchange **ret, struct merr *err)
{
    struct exchange *x = calloc(1, sizeof(*x));
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
    r = allocate(x, err);
    if (r == 0)
        *ret = x;
    else
        exchange_free(x);
    return r;
}

void exchange_free(struct exchange *x)
{
    if (!x)
        return;
    for (size_t i = 0; i < x->n; i++)
        (void)comm_wait(x->request[i], NULL);
    if (x->memory)
        x->cfg.k->mem_free(x->cfg.stream, x->memory);
    free(x->leaf);
    free(x->units);
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
        if (as_leaves(&x->cfg, &x->node[i][p]))
            continue;
        TRY(remember(x, err));
        TRY(comm_irecv(x->cfg.group, i, (uint32_t)p, received_at(x, region, i, p) + (at - begin), n * sizeof(float),
                       &x->request[x->n], err));
        x->n++;
    }
    for (int p = 0; overlap(x, region, i, from, to, &at, &n) && p < x->nodes[me]; p++) {
        if (as_leaves(&x->cfg, &x->node[me][p]))
            continue;
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

/* --- coded leaves ------------------------------------------------------------------------------------------------- */

/* NULL: it does not travel so. */
static struct leaf *find_leaf(const struct exchange *x, int number)
{
    for (int i = 0; i < x->leaves; i++)
        if (x->leaf[i].number == number)
            return &x->leaf[i];
    return NULL;
}

static int recv_leaf(struct exchange *x, const struct leaf *l, struct merr *err)
{
    size_t begin, n;

    for (int r = 0; r < EXCHANGE_REGIONS; r++) {
        char *to = l->units + keyed_gradient_bytes(x->cfg.keyed, piece_floats(&x->cfg, x->cfg.index, r));

        exchange_piece(x, r, x->cfg.index, &begin, &n);
        if (n == 0)
            continue;
        TRY(remember(x, err));
        TRY(comm_irecv(x->cfg.group, l->replica, TAG_LEAF(l->number, r), to, keyed_gradient_bytes(x->cfg.keyed, n),
                       &x->request[x->n], err));
        x->n++;
    }
    return 0;
}

/* To replica i what of our leaf lies in its pieces. */
static int send_leaf(struct exchange *x, const struct leaf *l, int i, struct merr *err)
{
    size_t begin, n;

    for (int r = 0; r < EXCHANGE_REGIONS; r++) {
        exchange_piece(x, r, i, &begin, &n);
        if (n == 0)
            continue;
        begin += x->cfg.region[r].at;
        TRY(remember(x, err));
        TRY(comm_isend(x->cfg.group, i, TAG_LEAF(l->number, r), l->units + keyed_gradient_bytes(x->cfg.keyed, begin),
                       keyed_gradient_bytes(x->cfg.keyed, n), &x->request[x->n], err));
        x->n++;
    }
    return 0;
}

int exchange_begin(struct exchange *x, uint64_t step, struct merr *err)
{
    x->step = step;
    for (int i = 0; i < x->leaves; i++) {
        if (x->leaf[i].replica != x->cfg.index)
            TRY(recv_leaf(x, &x->leaf[i], err));
        else
            x->leaf[i].missing = all_floats(&x->cfg);
    }
    return 0;
}

int exchange_leaf(struct exchange *x, int leaf, float *buffer, size_t at, size_t n, struct merr *err)
{
    struct leaf *l = find_leaf(x, leaf);

    TRY(x->cfg.k->stream_sync(x->cfg.stream, err));
    keyed_code_leaf(x->cfg.keyed, x->step, leaf, buffer, at, n,
                    l ? l->units + keyed_gradient_bytes(x->cfg.keyed, at) : NULL);
    if (!l)
        return 0;
    assert(l->replica == x->cfg.index && l->missing >= n);
    l->missing -= n;
    for (int i = 1; l->missing == 0 && i < x->cfg.replicas; i++)
        TRY(send_leaf(x, l, (x->cfg.index + i) % x->cfg.replicas, err));
    return 0;
}

/* One PARAM_BLOCK, `at` into our piece of a region, of the sum of the size leaves from l on. room: one a level. */
static int add_leaves(struct exchange *x, int region, const struct leaf *l, int size, size_t at, float *out,
                      float (*room)[PARAM_BLOCK], struct merr *err)
{
    size_t begin, n;
    struct merr why;

    if (size == 1) {
        const char *units =
            l->units + keyed_gradient_bytes(x->cfg.keyed, piece_floats(&x->cfg, x->cfg.index, region) + at);

        exchange_piece(x, region, x->cfg.index, &begin, &n);
        begin += x->cfg.region[region].at;
        if (keyed_decode_leaf(x->cfg.keyed, units, begin + at, PARAM_BLOCK, out, &why) < 0)
            return merr_set(err, -EIO,
                            "a block of virtual worker %d from member %d of group 'dp' is not good, "
                            "codec %s: %s",
                            l->number, l->replica, keyed_gradient_codec(x->cfg.keyed), why.text);
        return 0;
    }
    TRY(add_leaves(x, region, l, size / 2, at, out, room, err));
    TRY(add_leaves(x, region, l + size / 2, size / 2, at, room[0], room + 1, err));
    for (size_t i = 0; i < PARAM_BLOCK; i++)
        out[i] += room[0][i];
    return 0;
}

/* Node p of replica i from its leaves, where a sum would have come. */
static int finish_node(struct exchange *x, int i, int p, struct merr *err)
{
    const struct tree_node *node = &x->node[i][p];
    const struct leaf *l = find_leaf(x, node->lo);
    float room[2][PARAM_BLOCK];
    size_t begin, n;

    for (int r = 0; r < EXCHANGE_REGIONS; r++) {
        exchange_piece(x, r, x->cfg.index, &begin, &n);
        for (size_t at = 0; at < n; at += PARAM_BLOCK)
            TRY(add_leaves(x, r, l, node->size, at, received_at(x, r, i, p) + at, room, err));
    }
    return 0;
}

/* --- the end of a step -------------------------------------------------------------------------------------------- */

int exchange_rest(struct exchange *x, const struct tree *t, struct merr *err)
{
    float *buffer[TREE_PARTIALS_MAX];

    assert(t->nodes == x->nodes[x->cfg.index]);
    for (int i = 0; i < t->nodes; i++)
        buffer[i] = t->pool[t->at[i]];
    for (int r = 0; r < EXCHANGE_REGIONS; r++)
        TRY(trade_all(x, r, x->cfg.region[r].at, r == 0 ? x->mark : region_end(x, r), buffer, err));
    x->mark = region_end(x, 0);
    for (int i = 0; i < x->leaves; i++)
        assert(x->leaf[i].missing == 0);
    while (x->n > 0) {
        x->n--;
        TRY(comm_wait(x->request[x->n], err));
    }
    for (int i = 0; i < x->cfg.replicas; i++) {
        for (int p = 0; i != x->cfg.index && p < x->nodes[i]; p++)
            if (as_leaves(&x->cfg, &x->node[i][p]))
                TRY(finish_node(x, i, p, err));
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
            value[at++] =
                i == x->cfg.index ? t->pool[t->at[p]] + x->cfg.region[region].at + begin : received_at(x, region, i, p);
        }
}
