/* Where nothing runs that could change and gangs are large, the prices leave devices over that no choice fits into, and
 * a search depth first spends its steps on the last few jobs. This one decides job after job for many part plans at
 * once and keeps those that can still be worth most: at the round's prices a part plan has lost the regret of its
 * choices and what the devices are worth that the rest cannot take.
 *
 * How much it looks at is limited by a number of choices, not by a clock: the same round gives the same plan. */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "scheduler/cluster/sched_priv.h"

#define LIMITS_MAX 24   /* types and tenants' limits that are counted */
#define WIDTH_MOST 4096 /* part plans */
#define SPARE 4         /* times as many are collected before the best are taken */
#define WIDTH_LEAST 16
#define ENOUGH 0.0025 /* share of the bound that is not worth more looks */

struct limit {       /* of what is left of it nobody takes more */
    uint32_t tenant; /* index + 1; 0: of all */
    int8_t type;     /* -1: of all */
    int32_t left;
    double price;
};

struct choice {
    double regret, worth;
    int16_t cand;
    uint16_t needs; /* limits that it counts for */
    uint8_t limit[LIMITS_MAX];
    int32_t n[LIMITS_MAX];
};

struct gang { /* a job with its choices by rising regret */
    struct rjob *job;
    size_t first, n;
    int32_t size;     /* of its largest choice */
    double undecided; /* least regret of another choice than the first */
};

struct part { /* a part plan */
    double lost, regret, worth;
    uint32_t parent;
    int32_t choice;
    int32_t left[LIMITS_MAX];
};

struct beam {
    struct round *r;
    struct limit limits[LIMITS_MAX];
    int n_limits;
    struct gang *gangs; /* n of them */
    size_t n;
    struct choice *choices;
    size_t n_choices;
    int32_t *most;           /* what gangs from i on take of each limit at most: LIMITS_MAX a row */
    struct part *now, *next; /* SPARE x width */
    uint32_t *slots;         /* of next by what they leave: index + 1, 0: none */
    size_t width, n_now, n_next, slots_n;
    double worst; /* what loses so much is not among the best */
    bool whole;   /* nothing was left out */
    int64_t looks;
    struct trace {
        uint32_t parent;
        int32_t choice;
    } * traces; /* width a gang */
    double bound, aim, fixed;
};

static void beam_clear(struct beam *b)
{
    free(b->gangs);
    free(b->choices);
    free(b->most);
    free(b->now);
    free(b->next);
    free(b->slots);
    free(b->traces);
}

static bool add_limit(struct beam *b, uint32_t tenant, int type, int32_t left, double price)
{
    if (b->n_limits == LIMITS_MAX)
        return false;
    b->limits[b->n_limits++] = (struct limit){.tenant = tenant, .type = (int8_t)type, .left = left, .price = price};
    return true;
}

/* What is left of types and limits beside what is not searched. False: these are too many, or nested. */
static bool count_limits(struct beam *b)
{
    const struct round *r = b->r;
    bool all = !r->tenants_nest;

    for (int t = 0; t < RATES_TYPES_MAX && all; t++)
        if (r->total[t] > 0)
            all = add_limit(b, 0, t, r->total[t] - r->used[t], r->prices[t]);
    for (uint32_t t = 0; t < r->in->n_tenants && all; t++)
        if (r->tenant_cap[t] < INT32_MAX)
            all = add_limit(b, t + 1, -1, r->tenant_cap[t] - r->tenant_used[t], r->tenant_prices[t]);
    return all;
}

/* What a choice takes, and what it is worth above its price. */
static void weigh(const struct beam *b, const struct rjob *j, int c, struct choice *ret)
{
    const struct sched_shape *s = c == NONE ? NULL : &cand_of(b->r, j, c)->shape;

    *ret = (struct choice){.cand = (int16_t)c, .worth = s ? cand_of(b->r, j, c)->utility : 0};
    for (int k = 0; k < b->n_limits && s; k++) {
        const struct limit *l = &b->limits[k];
        int32_t n = l->type >= 0 ? (s->type[0] == l->type   ? s->n[0]
                                    : s->type[1] == l->type ? s->n[1]
                                                            : 0)
                                 : shape_size(s);

        if (n == 0 || (l->tenant != 0 && l->tenant != j->job->tenant + 1))
            continue;
        ret->limit[ret->needs] = (uint8_t)k;
        ret->n[ret->needs++] = n;
        ret->regret -= l->price * n;
    }
    ret->regret += ret->worth;
}

static int by_regret(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;

    if (x->regret != y->regret)
        return x->regret < y->regret ? -1 : 1;
    return x->cand - y->cand;
}

/* Small ones fill what large ones leave. */
static int largest_first(const void *a, const void *b)
{
    const struct gang *x = a, *y = b;

    if (x->size != y->size)
        return x->size > y->size ? -1 : 1;
    if (x->undecided != y->undecided)
        return x->undecided > y->undecided ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

static bool fits(const struct choice *c, const int32_t *left)
{
    for (int k = 0; k < c->needs; k++)
        if (c->n[k] > left[c->limit[k]])
            return false;
    return true;
}

/* Choices that can be part of a better plan. */
static void add_gang(struct beam *b, struct rjob *j)
{
    struct gang g = {.job = j, .first = b->n_choices, .undecided = INFINITY};
    int32_t left[LIMITS_MAX];
    double most = 0;

    for (int k = 0; k < b->n_limits; k++)
        left[k] = b->limits[k].left;
    for (int c = NONE; c < j->n; c++) {
        struct choice *to = &b->choices[g.first + g.n];

        weigh(b, j, c, to);
        if (!fits(to, left))
            continue;
        most = to->regret > most ? to->regret : most; /* not turned yet: what it is worth above its price */
        g.n++;
    }
    for (size_t k = 0, n = 0, all = g.n; k < all; k++) {
        struct choice c = b->choices[g.first + k];

        g.n = n;
        c.regret = most - c.regret;
        if (b->bound - c.regret <= b->aim)
            continue;
        g.size = c.cand != NONE && shape_size(&cand_of(b->r, j, c.cand)->shape) > g.size
                     ? shape_size(&cand_of(b->r, j, c.cand)->shape)
                     : g.size;
        b->choices[g.first + n++] = c;
        g.n = n;
    }
    qsort(&b->choices[g.first], g.n, sizeof(*b->choices), by_regret);
    if (g.n > 1)
        g.undecided = b->choices[g.first + 1].regret - b->choices[g.first].regret;
    b->n_choices += g.n;
    b->gangs[b->n++] = g;
}

static void count_most(struct beam *b)
{
    for (size_t i = b->n; i-- > 0;) {
        int32_t *row = b->most + i * LIMITS_MAX, most[LIMITS_MAX] = {0};
        const struct gang *g = &b->gangs[i];

        for (size_t c = g->first; c < g->first + g->n; c++)
            for (int k = 0; k < b->choices[c].needs; k++)
                if (b->choices[c].n[k] > most[b->choices[c].limit[k]])
                    most[b->choices[c].limit[k]] = b->choices[c].n[k];
        for (int k = 0; k < b->n_limits; k++) {
            int64_t sum = (int64_t)row[k + LIMITS_MAX] + most[k];

            row[k] = sum < INT32_MAX ? (int32_t)sum : INT32_MAX;
        }
    }
}

/* The gangs with their choices. Returns 1, 0 when there is nothing to search, or -ENOMEM. */
static int beam_init(struct beam *b, struct round *r, double aim)
{
    *b = (struct beam){.r = r, .aim = aim, .bound = r->dual * (1 + 1e-9)};
    b->gangs = malloc((r->n_jobs + 1) * sizeof(*b->gangs));
    b->choices = malloc((r->n_cands + r->n_jobs + 1) * sizeof(*b->choices));
    b->most = calloc((r->n_jobs + 2) * LIMITS_MAX, sizeof(*b->most));
    if (!b->gangs || !b->choices || !b->most)
        return -ENOMEM;
    for (size_t i = 0; i < r->n_jobs; i++)
        if (r->jobs[i].pinned && r->jobs[i].chosen != NONE)
            b->fixed += cand_of(r, &r->jobs[i], r->jobs[i].chosen)->utility;
        else if (!r->jobs[i].pinned)
            choice_set(r, &r->jobs[i], NONE);
    if (!count_limits(b))
        return 0;
    for (size_t i = 0; i < r->n_jobs; i++)
        if (!r->jobs[i].pinned && r->jobs[i].n > 0)
            add_gang(b, &r->jobs[i]);
    qsort(b->gangs, b->n, sizeof(*b->gangs), largest_first);
    count_most(b);
    return b->n > 0;
}

static bool better(const struct part *x, const struct part *y)
{
    return x->lost < y->lost || (x->lost == y->lost && x->worth > y->worth);
}

static int by_lost(const void *a, const void *b)
{
    const struct part *x = a, *y = b;

    return better(x, y) ? -1 : better(y, x) ? 1 : memcmp(x, y, sizeof(*x));
}

/* Where a part plan is that leaves as much as p, or would be. */
static uint32_t *slot_of(const struct beam *b, const struct part *p)
{
    size_t size = (size_t)b->n_limits * sizeof(p->left[0]), i = (size_t)hash_xxh3(p->left, size) % b->slots_n;

    while (b->slots[i] > 0 && memcmp(b->next[b->slots[i] - 1].left, p->left, size) != 0)
        i = (i + 1) % b->slots_n;
    return &b->slots[i];
}

/* Keep the best. */
static void cut(struct beam *b)
{
    if (b->n_next <= b->width)
        return;
    b->whole = false;
    qsort(b->next, b->n_next, sizeof(*b->next), by_lost);
    b->n_next = b->width;
    b->worst = b->next[b->width - 1].lost;
    memset(b->slots, 0, b->slots_n * sizeof(*b->slots));
    for (size_t s = 0; s < b->n_next; s++)
        *slot_of(b, &b->next[s]) = (uint32_t)s + 1;
}

/* Of two part plans that leave the same the one that is worth more stays. */
static void offer(struct beam *b, const struct part *p)
{
    uint32_t *slot;

    if (p->lost >= b->worst)
        return;
    slot = slot_of(b, p);
    if (*slot > 0) {
        if (better(p, &b->next[*slot - 1]))
            b->next[*slot - 1] = *p;
        return;
    }
    b->next[b->n_next++] = *p;
    *slot = (uint32_t)b->n_next;
    if (b->n_next == SPARE * b->width)
        cut(b);
}

/* All part plans with each choice of one more gang. */
static void decide_gang(struct beam *b, size_t i)
{
    const struct gang *g = &b->gangs[i];
    const int32_t *most = b->most + (i + 1) * LIMITS_MAX;

    b->n_next = 0;
    b->worst = INFINITY;
    memset(b->slots, 0, b->slots_n * sizeof(*b->slots));
    for (size_t s = 0; s < b->n_now; s++)
        for (size_t c = g->first; c < g->first + g->n; c++) {
            const struct choice *o = &b->choices[c];
            struct part p;

            if (b->bound - b->now[s].regret - o->regret <= b->aim)
                break;
            b->looks++;
            if (!fits(o, b->now[s].left))
                continue;
            p = b->now[s];
            for (int k = 0; k < o->needs; k++)
                p.left[o->limit[k]] -= o->n[k];
            p.regret += o->regret;
            p.worth += o->worth;
            p.lost = p.regret;
            for (int k = 0; k < b->n_limits; k++)
                p.lost += p.left[k] > most[k] ? b->limits[k].price * (p.left[k] - most[k]) : 0;
            p.parent = (uint32_t)s;
            p.choice = (int32_t)c;
            if (b->bound - p.lost > b->aim)
                offer(b, &p);
        }
    cut(b);
    for (size_t s = 0; s < b->n_next; s++)
        b->traces[i * b->width + s] = (struct trace){b->next[s].parent, b->next[s].choice};
    struct part *t = b->now;

    b->now = b->next;
    b->next = t;
    b->n_now = b->n_next;
}

/* The best plan that the search ends with into chosen, when it is worth more than the aim. */
static bool take_plan(struct beam *b)
{
    size_t at = 0;

    for (size_t s = 1; s < b->n_now; s++)
        at = b->now[s].worth > b->now[at].worth ? s : at;
    if (b->n_now == 0 || b->fixed + b->now[at].worth <= b->aim)
        return false;
    for (size_t i = b->n; i-- > 0;) {
        const struct trace *t = &b->traces[i * b->width + at];

        choice_set(b->r, b->gangs[i].job, b->choices[t->choice].cand);
        at = t->parent;
    }
    return true;
}

/* Search with as many part plans as the looks that are left allow. 1: a better plan is chosen, 0, or -ENOMEM. */
static int search(struct beam *b, int64_t looks)
{
    int64_t width = looks / (int64_t)(b->n_choices + 1);

    b->width = width > WIDTH_MOST ? WIDTH_MOST : width < WIDTH_LEAST ? WIDTH_LEAST : (size_t)width;
    b->slots_n = 2 * SPARE * b->width + 1;
    b->now = malloc(SPARE * b->width * sizeof(*b->now));
    b->next = malloc(SPARE * b->width * sizeof(*b->next));
    b->slots = malloc(b->slots_n * sizeof(*b->slots));
    b->traces = malloc(b->n * b->width * sizeof(*b->traces));
    if (!b->now || !b->next || !b->slots || !b->traces)
        return -ENOMEM;
    b->whole = true;
    b->n_now = 1;
    b->now[0] = (struct part){.worth = 0};
    for (int k = 0; k < b->n_limits; k++)
        b->now[0].left[k] = b->limits[k].left;
    for (size_t i = 0; i < b->n && b->n_now > 0; i++)
        decide_gang(b, i);
    return take_plan(b);
}

int beam_improve(struct round *r, double least, int64_t looks)
{
    bool whole = false;
    struct beam b;
    int16_t *before = malloc((r->n_jobs + 1) * sizeof(*before));
    int found;

    if (!before)
        return -ENOMEM;
    for (size_t i = 0; i < r->n_jobs; i++)
        before[i] = r->jobs[i].chosen;
    found = beam_init(&b, r, r->value + least);
    if (found == 1) {
        found = search(&b, looks);
        whole = found >= 0 && b.whole;
        r->looks -= b.looks;
    }
    for (size_t i = 0; i < r->n_jobs && found != 1; i++)
        if (r->jobs[i].chosen != before[i])
            choice_set(r, &r->jobs[i], before[i]);
    if (whole) { /* nothing is worth more */
        r->value = 0;
        for (size_t i = 0; i < r->n_jobs; i++)
            r->value += r->jobs[i].chosen == NONE ? 0 : cand_of(r, &r->jobs[i], r->jobs[i].chosen)->utility;
        r->dual = fmin(r->dual, r->value + least);
    }
    beam_clear(&b);
    free(before);
    return found;
}
