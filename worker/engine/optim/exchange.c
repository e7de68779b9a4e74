#include "worker/engine/optim/exchange.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/try.h"
#include "scheduler/plan/layout.h"
#include "worker/engine/model/param.h"

#define CODED_LEAVES 4 /* most of a node that travels as its leaves: of more, the sum is shorter */

/* Tags of messages: a node's number among its replica's, an owner's word that one more bucket may come, or a leaf's
 * region. */
#define TAG_ROOM ((uint32_t)TREE_PARTIALS_MAX)
#define TAG_LEAF(leaf, region) ((uint32_t)(TREE_PARTIALS_MAX + 1 + (leaf)*EXCHANGE_REGIONS + (region)))

struct leaf { /* that travels coded */
    int number, replica;
    char *units;    /* ours: of the whole arena; another's: of our pieces, region after region */
    size_t missing; /* ours: floats still to be coded in this step */
};

struct bucket { /* of an owner's pieces; they come in this order: each region from its end down */
    int region;
    size_t at, n; /* of the arena */
};

struct owner { /* of a piece, in this step */
    size_t buckets, slots;
    size_t sent, may;          /* of its buckets: what it has of ours, or will have, and how many there is room for */
    struct comm_request *room; /* its word that there is room for one more; NULL: none is to come */
    char word;
};

struct exchange {
    struct exchange_cfg cfg;
    struct tree_node (*node)[TREE_PARTIALS_MAX]; /* [replicas] what each is left with */
    int *nodes;                                  /* [replicas] */
    int all, others;                             /* nodes of all, and of all but us */
    struct owner *owner;                         /* [replicas] */
    float *memory;                               /* [slots] buckets of ours, of all other nodes */
    struct comm_request **arriving;              /* [slots][others] */
    struct comm_request **awaited;               /* [others + replicas] */
    size_t posted, finished;                     /* our buckets */
    struct tree_node *list;                      /* [all] of a bucket, with their values */
    float **value;
    size_t mark; /* of the arena, region 0 is final from here on; its end: nothing is */
    bool under_way, last, leaves_here;
    struct comm_request **request; /* of this step: what is sent, and coded leaves */
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
    }
    x->others = x->all - x->nodes[x->cfg.index];
}

static size_t region_end(const struct exchange *x, int region)
{
    return x->cfg.region[region].at + x->cfg.region[region].n;
}

/* Whether a node travels as its coded leaves. */
static bool as_leaves(const struct exchange_cfg *cfg, const struct tree_node *node)
{
    return cfg->keyed && cfg->replicas > 1 && node->size <= CODED_LEAVES &&
           (size_t)node->size * keyed_gradient_bytes(cfg->keyed, PARAM_BLOCK) < PARAM_BLOCK * sizeof(float);
}

static size_t bucket_floats(const struct exchange_cfg *cfg)
{
    return cfg->bucket > 0 ? cfg->bucket : EXCHANGE_BUCKET;
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
    size_t all = all_floats(cfg) / (size_t)cfg->replicas, most = EXCHANGE_SLOTS * bucket_floats(cfg), bytes;
    struct tree_node node[TREE_PARTIALS_MAX];
    int others = 0, begin, end;

    if (cfg->replicas == 1)
        return 0;
    (void)list_leaves(cfg, NULL, NULL, &bytes);
    for (int i = 0; i < cfg->replicas; i++) {
        plan_leaves_shared(cfg->share, cfg->leaves, cfg->replicas, i, &begin, &end);
        others += i == cfg->index ? 0 : tree_partials(begin, end, node);
    }
    return bytes + (size_t)others * (all < most ? all : most) * sizeof(float);
}

/* The buckets of each owner, and how many of them it has room for at once. Returns the floats of that room here. */
static size_t set_owners(struct exchange *x)
{
    size_t bucket = bucket_floats(&x->cfg), most = EXCHANGE_SLOTS * bucket, mine;

    for (int i = 0; i < x->cfg.replicas; i++) {
        struct owner *o = &x->owner[i];

        for (int r = 0; r < EXCHANGE_REGIONS; r++) {
            size_t begin, n;

            exchange_piece(x, r, i, &begin, &n);
            o->buckets += (n + bucket - 1) / bucket;
        }
        o->slots = piece_floats(&x->cfg, i, EXCHANGE_REGIONS) <= most ? o->buckets : EXCHANGE_SLOTS;
    }
    mine = piece_floats(&x->cfg, x->cfg.index, EXCHANGE_REGIONS);
    return mine < most ? mine : most;
}

static int allocate(struct exchange *x, struct merr *err)
{
    const struct exchange_cfg *cfg = &x->cfg;
    size_t n = set_owners(x) * x->others, bytes;

    x->arriving = calloc(x->owner[cfg->index].slots * x->others + 1, sizeof(struct comm_request *));
    x->awaited = calloc((size_t)x->others + cfg->replicas, sizeof(struct comm_request *));
    x->list = calloc(x->all, sizeof(*x->list));
    x->value = calloc(x->all, sizeof(*x->value));
    if (!x->arriving || !x->awaited || !x->list || !x->value)
        return merr_set(err, -ENOMEM, "no memory for what %d replicas exchange", cfg->replicas);
    if (cfg->group && n > 0)
        TRY(cfg->k->mem_alloc(cfg->stream, n * sizeof(float), (void **)&x->memory, err));
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
        x->owner = calloc(cfg->replicas, sizeof(*x->owner));
    }
    if (!x || !x->node || !x->nodes || !x->owner) {
        exchange_free(x);
        return merr_set(err, -ENOMEM, "no memory for what %d replicas exchange", cfg->replicas);
    }
    set_nodes(x);
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
    for (size_t i = 0; x->arriving && i < x->owner[x->cfg.index].slots * x->others; i++)
        (void)comm_wait(x->arriving[i], NULL);
    for (int i = 0; x->owner && i < x->cfg.replicas; i++)
        (void)comm_wait(x->owner[i].room, NULL);
    if (x->memory)
        x->cfg.k->mem_free(x->cfg.stream, x->memory);
    free(x->leaf);
    free(x->units);
    free(x->request);
    free(x->arriving);
    free(x->awaited);
    free(x->list);
    free(x->value);
    free(x->owner);
    free(x->nodes);
    free(x->node);
    free(x);
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

/* Bucket k of owner i. */
static struct bucket bucket_of(const struct exchange *x, int i, size_t k)
{
    size_t size = bucket_floats(&x->cfg), begin, n, low, all;

    for (int r = 0;; r++) {
        assert(r < EXCHANGE_REGIONS);
        exchange_piece(x, r, i, &begin, &n);
        all = (n + size - 1) / size;
        if (k < all) {
            low = k + 1 < all ? n - (k + 1) * size : 0;
            return (struct bucket){r, x->cfg.region[r].at + begin + low, n - k * size - low};
        }
        k -= all;
    }
}

/* Where the other nodes' values of our bucket k stand: one after the other, replicas in order. */
static float *slot_of(const struct exchange *x, size_t k)
{
    const struct owner *me = &x->owner[x->cfg.index];
    size_t at = 0;

    if (me->slots < me->buckets)
        return x->memory + k % me->slots * bucket_floats(&x->cfg) * x->others;
    for (size_t i = 0; i < k; i++) /* all have room at once, and a place of their own */
        at += bucket_of(x, x->cfg.index, i).n;
    return x->memory ? x->memory + at * x->others : NULL;
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

/* Ask for our buckets for which there is room. */
static int post(struct exchange *x, struct merr *err)
{
    const struct owner *me = &x->owner[x->cfg.index];

    for (; x->posted < me->buckets && x->posted - x->finished < me->slots; x->posted++) {
        struct bucket b = bucket_of(x, x->cfg.index, x->posted);
        struct comm_request **request = x->arriving + x->posted % me->slots * x->others;
        float *to = slot_of(x, x->posted);

        for (int i = 0; i < x->cfg.replicas; i++)
            for (int p = 0; i != x->cfg.index && p < x->nodes[i]; p++, request++, to += b.n)
                if (!as_leaves(&x->cfg, &x->node[i][p]))
                    TRY(comm_irecv(x->cfg.group, i, (uint32_t)p, to, b.n * sizeof(float), request, err));
    }
    return 0;
}

/* An owner has room for more when it says so. */
static int hear(struct exchange *x, int i, bool *moved, struct merr *err)
{
    struct owner *o = &x->owner[i];

    while (o->room && comm_done(o->room)) {
        struct comm_request *said = o->room;

        o->room = NULL;
        TRY(comm_wait(said, err));
        o->may++;
        *moved = true;
        if (o->may < o->buckets)
            TRY(comm_irecv(x->cfg.group, i, TAG_ROOM, &o->word, 1, &o->room, err));
    }
    return 0;
}

static bool is_final(const struct exchange *x, const struct bucket *b)
{
    return x->last || (b->region == 0 && b->at >= x->mark);
}

/* The buckets of owner i that are final here and have room there. */
static int send(struct exchange *x, int i, float *const *own, bool *moved, struct merr *err)
{
    struct owner *o = &x->owner[i];

    for (; o->sent < o->may; o->sent++) {
        struct bucket b = bucket_of(x, i, o->sent);

        if (!is_final(x, &b))
            return 0;
        for (int p = 0; p < x->nodes[x->cfg.index]; p++) {
            if (as_leaves(&x->cfg, &x->node[x->cfg.index][p]))
                continue;
            TRY(remember(x, err));
            TRY(comm_isend(x->cfg.group, i, (uint32_t)p, own[p] + b.at, b.n * sizeof(float), &x->request[x->n], err));
            x->n++;
        }
        *moved = true;
    }
    return 0;
}

/* The requests of the bucket that is next, of which there are `others`. */
static struct comm_request **next_arriving(const struct exchange *x)
{
    return x->arriving + x->finished % x->owner[x->cfg.index].slots * x->others;
}

/* Whether the next of our buckets is complete. */
static bool is_here(const struct exchange *x)
{
    struct bucket b;

    if (x->finished == x->posted)
        return false;
    b = bucket_of(x, x->cfg.index, x->finished);
    if (!is_final(x, &b) || (x->leaves > 0 && !x->leaves_here))
        return false;
    for (int k = 0; k < x->others; k++)
        if (!comm_done(next_arriving(x)[k]))
            return false;
    return true;
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
    x->mark = region_end(x, 0);
    x->posted = x->finished = 0;
    x->under_way = true;
    x->last = x->leaves_here = false;
    for (int i = 0; i < x->leaves; i++) {
        if (x->leaf[i].replica != x->cfg.index)
            TRY(recv_leaf(x, &x->leaf[i], err));
        else
            x->leaf[i].missing = all_floats(&x->cfg);
    }
    for (int i = 0; i < x->cfg.replicas && x->cfg.group; i++) {
        struct owner *o = &x->owner[i];

        o->sent = 0;
        o->may = o->slots;
        if (i != x->cfg.index && o->may < o->buckets)
            TRY(comm_irecv(x->cfg.group, i, TAG_ROOM, &o->word, 1, &o->room, err));
    }
    return x->cfg.group ? post(x, err) : 0;
}

int exchange_leaf(struct exchange *x, int leaf, float *buffer, size_t at, size_t n, struct merr *err)
{
    struct leaf *l = find_leaf(x, leaf);

    TRY(x->cfg.k->stream_sync(x->cfg.stream, err));
    TRY(keyed_code_leaf(x->cfg.keyed, x->step, leaf, buffer, at, n,
                        l ? l->units + keyed_gradient_bytes(x->cfg.keyed, at) : NULL, err));
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

/* Node p of replica i from its leaves, where its sum would have come. */
static int add_node(struct exchange *x, int i, int p, const struct bucket *b, float *out, struct merr *err)
{
    const struct tree_node *node = &x->node[i][p];
    const struct leaf *l = find_leaf(x, node->lo);
    float room[2][PARAM_BLOCK];
    size_t begin, n, from;

    exchange_piece(x, b->region, x->cfg.index, &begin, &n);
    from = b->at - x->cfg.region[b->region].at - begin;
    for (size_t at = 0; at < b->n; at += PARAM_BLOCK)
        TRY(add_leaves(x, b->region, l, node->size, from + at, out + at, room, err));
    return 0;
}

/* --- buckets ------------------------------------------------------------------------------------------------------ */

/* The tree's sum of a bucket of ours, where our first node stands. */
static int sum_bucket(struct exchange *x, const struct bucket *b, float *other, float *const *own, struct merr *err)
{
    int at = 0;
    float *sum;

    for (int i = 0; i < x->cfg.replicas; i++)
        for (int p = 0; p < x->nodes[i]; p++, at++) {
            x->list[at] = x->node[i][p];
            x->value[at] = i == x->cfg.index ? own[p] + b->at : other;
            if (i == x->cfg.index)
                continue;
            if (as_leaves(&x->cfg, &x->node[i][p]))
                TRY(add_node(x, i, p, b, other, err));
            other += b->n;
        }
    TRY(tree_finish(x->cfg.k, x->cfg.stream, x->cfg.leaves, x->list, x->value, x->all, b->n, &sum, err));
    if (sum == own[0] + b->at)
        return 0;
    return x->cfg.k->copy(x->cfg.stream, own[0] + b->at, sum, b->n * sizeof(float), err);
}

/* The next of our buckets; then there is room for another. */
static int finish_bucket(struct exchange *x, float *const *own, struct merr *err)
{
    struct bucket b = bucket_of(x, x->cfg.index, x->finished);

    for (int k = 0; k < x->others; k++) {
        struct comm_request *request = next_arriving(x)[k];

        next_arriving(x)[k] = NULL;
        TRY(comm_wait(request, err));
    }
    TRY(sum_bucket(x, &b, slot_of(x, x->finished), own, err));
    TRY(x->cfg.k->stream_sync(x->cfg.stream, err));
    x->finished++;
    if (x->posted == x->owner[x->cfg.index].buckets)
        return 0;
    TRY(post(x, err));
    for (int i = 0; i < x->cfg.replicas; i++) {
        if (i == x->cfg.index)
            continue;
        TRY(remember(x, err));
        TRY(comm_isend(x->cfg.group, i, TAG_ROOM, "", 1, &x->request[x->n], err));
        x->n++;
    }
    return 0;
}

/* Whatever can be done now; own: the buffers of our nodes. */
static int go_on(struct exchange *x, float *const *own, bool *ret_moved, struct merr *err)
{
    *ret_moved = false;
    for (int k = 1; k < x->cfg.replicas; k++) { /* each begins with its neighbour */
        int i = (x->cfg.index + k) % x->cfg.replicas;

        TRY(hear(x, i, ret_moved, err));
        TRY(send(x, i, own, ret_moved, err));
    }
    for (; is_here(x); *ret_moved = true)
        TRY(finish_bucket(x, own, err));
    return 0;
}

int exchange_from(struct exchange *x, const struct tree *t, size_t from, struct merr *err)
{
    float *own[TREE_PARTIALS_MAX];
    int n = tree_last(t, own);
    bool moved;

    assert(n == x->nodes[x->cfg.index] && from >= t->mark && from <= x->mark && x->under_way);
    x->mark = from;
    if (!x->cfg.group)
        return 0;
    TRY(x->cfg.k->stream_sync(x->cfg.stream, err));
    return go_on(x, own, &moved, err);
}

/* --- the end of a step -------------------------------------------------------------------------------------------- */

static int wait_sent(struct exchange *x, struct merr *err)
{
    while (x->n > 0) {
        x->n--;
        TRY(comm_wait(x->request[x->n], err));
    }
    return 0;
}

/* Until something comes: of the next of our buckets, or the word of an owner. False: nothing is to come. */
static bool list_awaited(struct exchange *x, size_t *ret_n)
{
    size_t n = 0;

    for (int k = 0; x->finished < x->posted && k < x->others; k++)
        if (!comm_done(next_arriving(x)[k]))
            x->awaited[n++] = next_arriving(x)[k];
    for (int i = 0; i < x->cfg.replicas; i++)
        if (x->owner[i].room)
            x->awaited[n++] = x->owner[i].room;
    *ret_n = n;
    return n > 0;
}

int exchange_rest(struct exchange *x, const struct tree *t, struct merr *err)
{
    float *own[TREE_PARTIALS_MAX];
    size_t n;
    bool moved = true;

    assert(t->nodes == x->nodes[x->cfg.index] && x->under_way);
    for (int i = 0; i < t->nodes; i++)
        own[i] = t->pool[t->at[i]];
    for (int i = 0; i < x->leaves; i++)
        assert(x->leaf[i].missing == 0);
    TRY(x->cfg.k->stream_sync(x->cfg.stream, err));
    if (x->leaves > 0)
        TRY(wait_sent(x, err));
    x->last = x->leaves_here = true;
    if (!x->cfg.group)
        x->posted = x->owner[x->cfg.index].buckets;
    while (moved || list_awaited(x, &n)) {
        if (!moved)
            TRY(comm_wait_any(x->awaited, n, err));
        TRY(go_on(x, own, &moved, err));
    }
    x->under_way = false;
    assert(x->finished == x->owner[x->cfg.index].buckets);
    return wait_sent(x, err);
}

float *exchange_sum(const struct exchange *x, int region, const struct tree *t)
{
    size_t begin, n;

    exchange_piece(x, region, x->cfg.index, &begin, &n);
    return t->pool[t->at[0]] + x->cfg.region[region].at + begin;
}
