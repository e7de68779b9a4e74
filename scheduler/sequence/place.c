#include "scheduler/sequence/place.h"

#include <assert.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct keyed {
    int64_t tokens;
    size_t index;
};

static int ascending(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;

    if (x->tokens != y->tokens)
        return x->tokens < y->tokens ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static int descending(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;

    if (x->tokens != y->tokens)
        return x->tokens > y->tokens ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* Sorted already, as what an interleave gives: nothing to do. */
static void sort_keys(struct keyed *v, size_t n, int (*order)(const void *, const void *))
{
    for (size_t i = 1; i < n; i++)
        if (order(&v[i - 1], &v[i]) > 0) {
            qsort(v, n, sizeof(v[0]), order);
            return;
        }
}

static void keys_of(const struct seq_group *g, struct keyed *v)
{
    for (size_t i = 0; i < g->n; i++)
        v[i] = (struct keyed){g->tokens[i], i};
}

/* --- DACP: memory in units of 1/ranks of a token, so that quotients are whole ----------------------------------- */

struct dacp {
    const struct seq_group *g;
    int published, by_load;
    int16_t *place;
    int64_t *room; /* of each rank, units */
    double *load;
    struct keyed *order; /* ascending: the k-th is order[k].index */
    size_t rollbacks;
};

static int64_t share_of(const struct dacp *d, int64_t tokens)
{
    return seq_shard_units(tokens, d->g->ranks, d->g->exact_shares);
}

static double load_of(const struct dacp *d, int64_t tokens)
{
    return seq_time_peak(d->g->cost, 0, tokens);
}

static int least_loaded(const struct dacp *d)
{
    int best = 0;

    for (int r = 1; r < d->g->ranks; r++)
        if (d->load[r] < d->load[best])
            best = r;
    return best;
}

static int roomiest(const struct dacp *d)
{
    int best = 0;

    for (int r = 1; r < d->g->ranks; r++)
        if (d->room[r] > d->room[best])
            best = r;
    return best;
}

static int tightest(const struct dacp *d)
{
    int best = 0;

    for (int r = 1; r < d->g->ranks; r++)
        if (d->room[r] < d->room[best])
            best = r;
    return best;
}

static void put_local(struct dacp *d, size_t i, int rank)
{
    d->place[i] = (int16_t)rank;
    d->room[rank] -= d->g->tokens[i] * d->g->ranks;
    d->load[rank] += load_of(d, d->g->tokens[i]);
}

static void put_shard(struct dacp *d, size_t i)
{
    int64_t share = share_of(d, d->g->tokens[i]);
    double load = load_of(d, d->g->tokens[i]) / d->g->ranks;

    d->place[i] = SEQ_SHARD;
    for (int r = 0; r < d->g->ranks; r++) {
        d->room[r] -= share;
        d->load[r] += load;
    }
}

/* The shortest local sequence of the rank whose sharding frees at least deficit units, else the longest; as
 * published, the shortest. Only the first `placed` of the order have a place. Returns placed for none. */
static size_t find_victim(const struct dacp *d, int rank, int64_t deficit, size_t placed)
{
    size_t longest = placed;

    for (size_t k = 0; k < placed; k++) {
        int64_t tokens = d->order[k].tokens;

        if (d->place[d->order[k].index] != rank)
            continue;
        if (d->published || tokens * d->g->ranks - share_of(d, tokens) >= deficit)
            return k;
        longest = k;
    }
    return longest;
}

/* Shard a local sequence of the rank. False when it has none. */
static int roll_back(struct dacp *d, int rank, int64_t deficit, size_t placed)
{
    size_t k = find_victim(d, rank, deficit, placed), i;
    int64_t tokens;

    if (k == placed)
        return 0;
    i = d->order[k].index;
    tokens = d->order[k].tokens;
    d->rollbacks++;
    d->room[rank] += tokens * d->g->ranks;
    d->load[rank] -= load_of(d, tokens);
    if (d->published) {
        d->place[i] = SEQ_SHARD;
        d->room[rank] -= share_of(d, tokens);
        d->load[rank] += load_of(d, tokens) / d->g->ranks;
    } else {
        put_shard(d, i);
    }
    return 1;
}

/* A roll-back takes room on every other rank: go on until none holds more than it can. */
static int roll_back_all(struct dacp *d, int rank, int64_t deficit, size_t placed)
{
    if (!roll_back(d, rank, deficit, placed))
        return 0;
    while (!d->published && d->room[rank = tightest(d)] < 0)
        if (!roll_back(d, rank, -d->room[rank], placed))
            return 0;
    return 1;
}

static int dacp_one(struct dacp *d, size_t k)
{
    size_t i = d->order[k].index;
    int64_t whole = d->order[k].tokens * d->g->ranks, share = share_of(d, d->order[k].tokens);

    for (;;) {
        int t = least_loaded(d);

        if (d->by_load && d->room[t] >= whole) {
            put_local(d, i, t);
            return 0;
        }
        t = roomiest(d);
        if (d->room[t] >= whole) {
            put_local(d, i, t);
            return 0;
        }
        t = tightest(d);
        if (d->room[t] >= share) {
            put_shard(d, i);
            return 0;
        }
        if (!roll_back_all(d, t, share - d->room[t], k))
            return -ENOSPC;
    }
}

static int dacp(const struct seq_group *g, enum seq_placer placer, int16_t *place, size_t *rollbacks)
{
    struct dacp d = {
        .g = g, .published = placer == SEQ_PLACE_PUBLISHED, .by_load = placer != SEQ_PLACE_ROUND_ROBIN, .place = place};
    size_t ranks = (size_t)g->ranks;
    int rc = 0;

    d.order = malloc(g->n * sizeof(d.order[0]) + ranks * (sizeof(d.room[0]) + sizeof(d.load[0])));
    if (!d.order)
        return -ENOMEM;
    d.room = (void *)(d.order + g->n);
    d.load = (void *)(d.room + ranks);
    for (int r = 0; r < g->ranks; r++) {
        d.room[r] = g->capacity * g->ranks;
        d.load[r] = 0;
    }
    keys_of(g, d.order);
    sort_keys(d.order, g->n, ascending);
    for (size_t k = 0; k < g->n && rc == 0; k++)
        rc = dacp_one(&d, k);
    *rollbacks = d.rollbacks;
    free(d.order);
    return rc;
}

/* --- the sweep: sharding takes the longest first, so a plan is how many ----------------------------------------- */

struct sweep {
    const struct seq_group *g;
    struct keyed *order; /* descending */
    double *local_s;     /* of the k-th alone on a rank */
    double *rest_s;      /* of the k-th and all after it */
    double *busy;        /* of each rank */
    int64_t *room;
    int16_t *at, *best; /* rank of the k-th */
};

/* Put the k-th and those after it on the ranks, each on the least busy with room; stop when a rank is busy for limit
 * seconds or more. Returns the busiest, or infinity when they do not fit or the limit is met. */
static double fill(struct sweep *s, size_t first, int64_t room, double limit)
{
    int ranks = s->g->ranks;
    double most = 0;

    for (int r = 0; r < ranks; r++) {
        s->busy[r] = 0;
        s->room[r] = room;
    }
    for (size_t k = first; k < s->g->n; k++) {
        int64_t whole = s->order[k].tokens * ranks;
        int t = -1;
        double least = DBL_MAX;

        for (int r = 0; r < ranks; r++)
            if (s->room[r] >= whole && s->busy[r] < least) {
                least = s->busy[r];
                t = r;
            }
        if (t < 0)
            return INFINITY;
        s->at[k] = (int16_t)t;
        s->room[t] -= whole;
        s->busy[t] += s->local_s[k];
        if (s->busy[t] > most)
            most = s->busy[t];
        if (most >= limit)
            return INFINITY;
    }
    return most;
}

static int sweep_all(struct sweep *s, int16_t *place)
{
    const struct seq_group *g = s->g;
    int64_t capacity = g->capacity * g->ranks, units = 0, tokens = 0;
    double shard_s = 0, best_s = INFINITY;
    size_t best_d = 0;

    for (size_t d = 0; d <= g->n && units <= capacity && shard_s < best_s; d++) {
        double comm_s = seq_time_comm(g->cost, tokens), local_s = 0;

        /* No placement is below the mean of the ranks, nor below the longest: most d need no more than that. */
        if (d < g->n)
            local_s = fmax(s->rest_s[d] / g->ranks, s->local_s[d]) * (1 - 1e-9);
        local_s = fmax(comm_s, local_s) + shard_s < best_s ? fill(s, d, capacity - units, best_s - shard_s) : INFINITY;
        if (fmax(comm_s, local_s) + shard_s < best_s) {
            int16_t *swap = s->best;

            best_s = fmax(comm_s, local_s) + shard_s;
            best_d = d;
            s->best = s->at;
            s->at = swap;
        }
        if (d < g->n) {
            units += seq_shard_units(s->order[d].tokens, g->ranks, g->exact_shares);
            tokens += s->order[d].tokens;
            shard_s += seq_time(g->cost, 0, s->order[d].tokens, g->ranks);
        }
    }
    if (isinf(best_s))
        return -ENOSPC;
    for (size_t k = 0; k < g->n; k++)
        place[s->order[k].index] = k < best_d ? SEQ_SHARD : s->best[k];
    return 0;
}

static int sweep(const struct seq_group *g, int16_t *place)
{
    struct sweep s = {.g = g};
    size_t ranks = (size_t)g->ranks;
    int rc;

    s.order = malloc(g->n * (sizeof(s.order[0]) + 2 * sizeof(s.local_s[0]) + 2 * sizeof(s.at[0])) +
                     ranks * (sizeof(s.busy[0]) + sizeof(s.room[0])));
    if (!s.order)
        return -ENOMEM;
    s.local_s = (void *)(s.order + g->n);
    s.rest_s = s.local_s + g->n;
    s.busy = s.rest_s + g->n;
    s.room = (void *)(s.busy + ranks);
    s.at = (void *)(s.room + ranks);
    s.best = s.at + g->n;
    keys_of(g, s.order);
    sort_keys(s.order, g->n, descending);
    for (size_t k = 0; k < g->n; k++)
        s.local_s[k] = seq_time(g->cost, 0, s.order[k].tokens, 1);
    for (size_t k = g->n; k-- > 0;)
        s.rest_s[k] = s.local_s[k] + (k + 1 < g->n ? s.rest_s[k + 1] : 0);
    rc = sweep_all(&s, place);
    free(s.order);
    return rc;
}

/* --- both ------------------------------------------------------------------------------------------------------- */

int seq_place(const struct seq_group *g, enum seq_placer placer, int16_t *place, struct seq_placed *ret)
{
    size_t rollbacks = 0;
    int rc;

    assert(g->ranks >= 1 && g->ranks <= SEQ_RANKS_MAX);
    assert(g->capacity >= 1);
    rc = placer == SEQ_PLACE_SWEEP ? sweep(g, place) : dacp(g, placer, place, &rollbacks);
    if (rc < 0 || !ret)
        return rc;
    *ret = seq_place_measure(g, place, NULL, NULL);
    ret->rollbacks = rollbacks;
    return 0;
}

struct seq_placed seq_place_measure(const struct seq_group *g, const int16_t *place, double *load, int64_t *units)
{
    double busy[SEQ_RANKS_MAX] = {0}, shard_s = 0, most = 0;
    int64_t held[SEQ_RANKS_MAX] = {0}, sharded = 0, shares = 0;
    struct seq_placed p = {0};

    if (load)
        memset(load, 0, (size_t)g->ranks * sizeof(load[0]));
    for (size_t i = 0; i < g->n; i++) {
        int64_t s = g->tokens[i];
        double peak = seq_time_peak(g->cost, 0, s);

        if (place[i] == SEQ_SHARD) {
            shard_s += seq_time(g->cost, 0, s, g->ranks);
            sharded += s;
            shares += seq_shard_units(s, g->ranks, g->exact_shares);
        } else {
            busy[place[i]] += seq_time(g->cost, 0, s, 1);
            held[place[i]] += s * g->ranks;
        }
        for (int r = 0; load && r < g->ranks; r++)
            load[r] += place[i] == SEQ_SHARD ? peak / g->ranks : place[i] == r ? peak : 0;
    }
    for (int r = 0; r < g->ranks; r++) {
        most = fmax(most, busy[r]);
        if (held[r] + shares > p.peak_units)
            p.peak_units = held[r] + shares;
        if (units)
            units[r] = held[r] + shares;
    }
    p.time_s = fmax(seq_time_comm(g->cost, sharded), most) + shard_s;
    return p;
}
