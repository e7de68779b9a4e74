#include "scheduler/plan/dedicate.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"

#define ORDERS_MAX 5040  /* that are all tried */
#define WORK_MAX 2000000 /* places looked at by annealing */
#define MOVES_MIN 1000
#define MOVES_MAX 30000
#define GAIN 1e-6 /* share by which another order must be faster */

struct run { /* of places that exchange in a ring */
    int begin, end;
    double bytes;
    bool replicas;
};

struct terms { /* what of a step depends on the order */
    struct run run[PLAN_STAGES_MAX + PLAN_PARTS_MAX];
    int n_runs;
    uint16_t *chain; /* [n_chains · length] places of each pipeline's stages, and the first again if it goes round */
    int n_chains, length;
    double hop_bytes;
    int n_used; /* places that hold ranks */
};

/* --- what a step sends --------------------------------------------------------------------------------------- */

static void add_run(struct terms *t, const struct plan_net *net, int first, int ranks, double bytes, bool replicas)
{
    int begin = plan_net_place(net, first), end = plan_net_place(net, first + ranks - 1) + 1;

    if (end - begin > 1 && bytes > 0)
        t->run[t->n_runs++] = (struct run){.begin = begin, .end = end, .bytes = bytes, .replicas = replicas};
}

static void add_runs(struct terms *t, const struct plan_job *job, const struct plan_shape *s,
                     const struct plan_net *net)
{
    int inner = s->tp * plan_cp(s), stage = plan_stage_ranks(s);
    double sums = plan_sums_bytes(job, s);

    for (int r = 0; r < s->pp; r++)
        add_run(t, net, r * stage, stage, plan_exchange_bytes(job, s, r), true);
    for (int at = 0; sums > 0 && at < stage * s->pp; at += inner)
        add_run(t, net, at, inner, sums, false);
}

/* Pipelines side by side on the same nodes are one. */
static int add_chains(struct terms *t, const struct plan_shape *s, const struct plan_net *net)
{
    int stage = plan_stage_ranks(s), round = s->chunks > 1;

    t->length = s->pp + round;
    if (s->pp == 1)
        return 0;
    t->chain = calloc((size_t)stage * (size_t)t->length, sizeof(*t->chain));
    if (!t->chain)
        return -ENOMEM;
    for (int k = 0; k < stage; k++) {
        uint16_t *c = &t->chain[t->n_chains * t->length];

        for (int i = 0; i < t->length; i++)
            c[i] = (uint16_t)plan_net_place(net, i % s->pp * stage + k);
        if (t->n_chains == 0 || memcmp(c, c - t->length, (size_t)t->length * sizeof(*c)) != 0)
            t->n_chains++;
    }
    return 0;
}

static int terms_init(struct terms *t, const struct plan_job *job, const struct plan_shape *s,
                      const struct plan_net *net)
{
    int micros = plan_micros(job, s, -1);

    assert(plan_stage_ranks(s) * s->pp <= net->first[net->n]);
    *t = (struct terms){.hop_bytes = 2.0 * ((micros + s->pp - 1) / s->pp) * s->chunks * plan_hop_bytes(job, s),
                        .n_used = plan_net_place(net, plan_stage_ranks(s) * s->pp - 1) + 1};
    add_runs(t, job, s, net);
    return add_chains(t, s, net);
}

static double chain_s(const struct terms *t, const struct plan_net *net, const uint16_t *c)
{
    double s = 0;

    for (int i = 0; i + 1 < t->length; i++)
        if (c[i] != c[i + 1])
            s += t->hop_bytes / plan_net_pair(net, c[i], c[i + 1]);
    return s;
}

static struct plan_messages messages_of(const struct terms *t, const struct plan_net *net)
{
    double slow[2] = {0, 0}, pipe = 0;
    struct plan_messages m = {.mixed = 0};

    for (int i = 0; i < t->n_runs; i++) {
        const struct run *r = &t->run[i];
        double s = r->bytes / plan_net_ring(net, r->begin, r->end);

        slow[r->replicas] = s > slow[r->replicas] ? s : slow[r->replicas];
        m.mixed += r->replicas && plan_net_mixed(net, r->begin, r->end);
    }
    for (int i = 0; i < t->n_chains; i++) {
        double s = chain_s(t, net, &t->chain[i * t->length]);

        pipe = s > pipe ? s : pipe;
    }
    m.time_s = slow[0] + slow[1] + pipe;
    return m;
}

static bool faster(const struct plan_messages *a, const struct plan_messages *b)
{
    return a->mixed != b->mixed ? a->mixed < b->mixed : a->time_s < b->time_s * (1 - GAIN);
}

/* --- orders -------------------------------------------------------------------------------------------------- */

struct hunt {
    const struct terms *t;
    struct plan_net *net;
    uint16_t best[PLAN_PARTS_MAX];
    struct plan_messages least; /* of best */
    uint32_t draws;
};

static struct plan_messages look(struct hunt *h)
{
    struct plan_messages m = messages_of(h->t, h->net);

    if (faster(&m, &h->least)) {
        h->least = m;
        memcpy(h->best, h->net->at, sizeof(h->best));
    }
    return m;
}

/* Every order of the places from k on. */
static void try_all(struct hunt *h, int k)
{
    struct plan_net *net = h->net;

    if (k >= h->t->n_used) {
        (void)look(h);
        return;
    }
    for (int i = k; i < net->n; i++) {
        if (!plan_parts_alike(&net->part[net->at[k]], &net->part[net->at[i]]))
            continue;
        plan_net_swap(net, k, i);
        try_all(h, k + 1);
        plan_net_swap(net, k, i);
    }
}

/* How many orders there are, no more than ORDERS_MAX + 1. */
static int orders_of(const struct terms *t, const struct plan_net *net)
{
    long orders = 1;

    for (int k = 0; k < t->n_used && orders <= ORDERS_MAX; k++) {
        int choices = 0;

        for (int i = k; i < net->n; i++)
            choices += plan_parts_alike(&net->part[net->at[k]], &net->part[net->at[i]]);
        orders *= choices;
    }
    return orders > ORDERS_MAX ? ORDERS_MAX + 1 : (int)orders;
}

static uint32_t draw_word(struct hunt *h)
{
    const uint32_t key[2] = {0x64656469, 0}, ctr[4] = {h->draws++, 0, 0, 0};
    uint32_t out[4];

    philox4x32(ctr, key, out);
    return out[0];
}

static int draw(struct hunt *h, int below)
{
    return (int)(draw_word(h) % (uint32_t)below);
}

/* Swap two nodes, or turn a stretch of them round, or let a stretch trade places with what follows it. The nodes that
 * may be exchanged are at the n places of v. */
static void shake(struct hunt *h, const uint16_t *v, int n)
{
    int a = draw(h, n), b = draw(h, n), kind = draw(h, 3), from = a < b ? a : b, to = a < b ? b : a;
    uint16_t *at = h->net->at;

    if (kind == 0) {
        plan_net_swap(h->net, v[a], v[b]);
    } else if (kind == 1) {
        for (; from < to; from++, to--)
            plan_net_swap(h->net, v[from], v[to]);
    } else {
        uint16_t was[PLAN_PARTS_MAX];
        int len = to - from + 1, by = draw(h, len);

        for (int i = 0; i < len; i++)
            was[i] = at[v[from + i]];
        for (int i = 0; i < len; i++)
            at[v[from + i]] = was[(i + by) % len];
    }
}

/* The places whose parts may take that of place k. */
static int places_like(const struct plan_net *net, int k, uint16_t *ret)
{
    int n = 0;

    for (int i = 0; i < net->n; i++)
        if (plan_parts_alike(&net->part[net->at[i]], &net->part[net->at[k]]))
            ret[n++] = (uint16_t)i;
    return n;
}

static void anneal(struct hunt *h)
{
    long work = (long)h->t->n_chains * h->t->length + h->net->n;
    uint16_t like[PLAN_PARTS_MAX], was[PLAN_PARTS_MAX];
    struct plan_messages now;
    int moves;

    for (int i = 0; i < h->t->n_runs; i++)
        work += h->t->run[i].end - h->t->run[i].begin;
    moves = WORK_MAX / work < MOVES_MIN ? MOVES_MIN : WORK_MAX / work > MOVES_MAX ? MOVES_MAX : (int)(WORK_MAX / work);
    plan_net_chain(h->net);
    now = look(h);
    for (int i = 0; i < moves; i++) {
        double left = 1 - (double)i / moves, warm = left * left * left * philox_unit(draw_word(h));
        struct plan_messages next;

        memcpy(was, h->net->at, sizeof(was));
        shake(h, like, places_like(h->net, draw(h, h->net->n), like));
        next = look(h);
        if (next.mixed < now.mixed || (next.mixed == now.mixed && next.time_s <= now.time_s * (1 + warm)))
            now = next;
        else
            memcpy(h->net->at, was, sizeof(was));
    }
}

/* --- from outside -------------------------------------------------------------------------------------------- */

int plan_messages(const struct plan_job *job, const struct plan_shape *shape, const struct plan_net *net,
                  struct plan_messages *ret)
{
    struct terms t;
    int r = terms_init(&t, job, shape, net);

    if (r == 0)
        *ret = messages_of(&t, net);
    free(t.chain);
    return r;
}

int plan_dedicate(const struct plan_job *job, const struct plan_shape *shape, enum plan_dedicate_way way,
                  struct plan_net *net, struct plan_messages *ret)
{
    struct hunt h = {.net = net};
    struct terms t;

    if (terms_init(&t, job, shape, net) < 0)
        return -ENOMEM;
    h.t = &t;
    h.least = messages_of(&t, net);
    memcpy(h.best, net->at, sizeof(h.best));
    if (way == PLAN_DEDICATE)
        way = orders_of(&t, net) <= ORDERS_MAX ? PLAN_DEDICATE_ALL : PLAN_DEDICATE_ANNEAL;
    if (h.least.time_s > 0 && way == PLAN_DEDICATE_ALL)
        try_all(&h, 0);
    else if (h.least.time_s > 0)
        anneal(&h);
    memcpy(net->at, h.best, sizeof(h.best));
    if (ret)
        *ret = h.least;
    free(t.chain);
    return 0;
}
