#include "scheduler/cluster/cache.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define BUCKETS_FIRST 1024 /* a power of two, as all are */

struct known {
    struct cache_key key;
    uint32_t first;
    uint16_t n;
    bool used;
};

struct surroundings { /* what else candidates depend on */
    enum sched_policy policy;
    int32_t total[RATES_TYPES_MAX], node_size[RATES_TYPES_MAX];
};

struct sched_cache {
    struct surroundings at;
    struct known *table; /* open addressing, less than half full */
    size_t buckets, n;
    struct cand *cands;
    double *worth; /* of each candidate */
    size_t n_cands, cap;
};

_Static_assert(sizeof(struct cache_key) == 48, "no padding in keys");

struct sched_cache *sched_cache_new(void)
{
    struct sched_cache *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->buckets = BUCKETS_FIRST;
    c->table = calloc(c->buckets, sizeof(*c->table));
    if (!c->table) {
        free(c);
        return NULL;
    }
    return c;
}

void sched_cache_free(struct sched_cache *c)
{
    if (!c)
        return;
    free(c->table);
    free(c->cands);
    free(c->worth);
    free(c);
}

static void forget(struct sched_cache *c)
{
    memset(c->table, 0, c->buckets * sizeof(*c->table));
    c->n = c->n_cands = 0;
}

void cache_enter(struct sched_cache *c, const struct round *r)
{
    struct surroundings at = {.policy = r->in->config.policy};

    memcpy(at.total, r->total, sizeof(at.total));
    memcpy(at.node_size, r->node_size, sizeof(at.node_size));
    if (c->n > 0 && memcmp(&at, &c->at, sizeof(at)) != 0)
        forget(c);
    c->at = at;
}

struct cache_key cache_key_of(const struct sched_job *job, const struct sched_shape *now, bool lost)
{
    return (struct cache_key){.profile = job->profile,
                              .min = job->min,
                              .max = job->max,
                              .replica = job->replica,
                              .stage = job->stage,
                              .workers = job->workers,
                              .n = {now->n[0], now->n[1]},
                              .types = job->types,
                              .home = job->home,
                              .type = {now->type[0], now->type[1]},
                              .hetero_ok = job->hetero_ok,
                              .fixed = job->fixed,
                              .lost = lost,
                              .within = job->within};
}

/* Where a key is, or would be. */
static struct known *slot_of(const struct sched_cache *c, const struct cache_key *key)
{
    size_t i = (size_t)hash_xxh3(key, sizeof(*key)) & (c->buckets - 1);

    while (c->table[i].used && memcmp(&c->table[i].key, key, sizeof(*key)) != 0)
        i = (i + 1) & (c->buckets - 1);
    return &c->table[i];
}

int cache_find(const struct sched_cache *c, const struct cache_key *key, const struct cand **ret,
               const double **ret_worth)
{
    const struct known *k = slot_of(c, key);

    if (!k->used)
        return -ENOENT;
    *ret = c->cands + k->first;
    *ret_worth = c->worth + k->first;
    return k->n;
}

static int grow_table(struct sched_cache *c)
{
    struct sched_cache more = *c;

    more.buckets *= 2;
    more.table = calloc(more.buckets, sizeof(*more.table));
    if (!more.table)
        return -ENOMEM;
    for (size_t i = 0; i < c->buckets; i++)
        if (c->table[i].used)
            *slot_of(&more, &c->table[i].key) = c->table[i];
    free(c->table);
    *c = more;
    return 0;
}

static int make_room(struct sched_cache *c, int n)
{
    size_t cap = c->cap ? c->cap : 4096;
    struct cand *cands;
    double *worth;

    if (c->n_cands + (size_t)n > CACHE_CANDS_MAX)
        forget(c);
    if (2 * (c->n + 1) > c->buckets && grow_table(c) < 0)
        return -ENOMEM;
    while (cap < c->n_cands + (size_t)n)
        cap *= 2;
    if (cap == c->cap)
        return 0;
    cands = realloc(c->cands, cap * sizeof(*cands));
    if (cands)
        c->cands = cands;
    worth = realloc(c->worth, cap * sizeof(*worth));
    if (worth)
        c->worth = worth;
    if (!cands || !worth)
        return -ENOMEM;
    c->cap = cap;
    return 0;
}

int cache_keep(struct sched_cache *c, const struct cache_key *key, const struct cand *v, int n, double lambda,
               const struct cand **ret, const double **ret_worth)
{
    struct known *k;
    double base = 0;

    assert(n >= 0 && n <= SCHED_CANDIDATES_MAX);
    if (make_room(c, n) < 0)
        return -ENOMEM;
    k = slot_of(c, key);
    assert(!k->used);
    *k = (struct known){.key = *key, .first = (uint32_t)c->n_cands, .n = (uint16_t)n, .used = true};
    for (int i = 0; i < n; i++) {
        double rate = (double)v[i].shape.rate_ups;

        base = base == 0 || rate < base ? rate : base;
    }
    for (int i = 0; i < n; i++) {
        c->cands[c->n_cands] = v[i];
        c->worth[c->n_cands++] = lambda - 1 / sqrt((double)v[i].shape.rate_ups / base);
    }
    c->n++;
    *ret = c->cands + k->first;
    *ret_worth = c->worth + k->first;
    return n;
}
