/* Nodes for the chosen configurations: those that keep theirs first, then the largest.
 *
 * Less than a node's devices never span nodes; more take whole nodes and at most one part of a node. The smallest
 * sufficient gap is filled first, then the fullest leaf, then the lowest index. Where that leaves a job without devices
 * and config.spread allows it, parts of as few nodes as can be are taken. All of this goes on within one leaf where one
 * has room, the fullest of those; a job that asks for that gets nothing else. Devices that are known to be slow are
 * taken where there is no other way. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/cluster/sched_priv.h"
#include "scheduler/cluster/closing_priv.h"

#define DEFRAG_MOVES 3     /* jobs moved in a round so that larger ones fit */
#define LEAVES_TRIED 8     /* for one job, of those that have room enough */
#define DEFRAG_ATTEMPTS 16 /* jobs for which that is tried: each looks at all others */

struct board {
    struct round *r;
    uint32_t *nodes;                   /* by type, then index */
    size_t first[RATES_TYPES_MAX + 1]; /* of each type in nodes */
    int32_t *leaf_free;
    int32_t *leaf_whole; /* scratch: free nodes under a leaf */
    int32_t *leaf_room;  /* scratch: devices there for the job at hand */
    size_t n_leaves;
    int64_t only;    /* the leaf that the job at hand is kept to; -1: none */
    bool *own;       /* scratch: nodes the job was on */
    bool *multi;     /* a job of several nodes has a part here */
    uint32_t *taken; /* scratch: nodes of the job at hand */
    int32_t *taken_n;
    size_t n_taken;
    int moves, attempts;
    bool strict;                /* the first that finds no room ends it */
    bool slow[RATES_TYPES_MAX]; /* there are slow devices of the type */
    bool take_slow;             /* they may be taken */
    uint8_t *shun;              /* scratch: nodes that the job at hand avoids: 1 where it can, 2 in any case */
    bool avoids;                /* there are such */
    bool held_off;              /* what is kept for urgent jobs is not for the job at hand */
};

static void board_clear(struct board *b)
{
    free(b->nodes);
    free(b->leaf_free);
    free(b->leaf_whole);
    free(b->leaf_room);
    free(b->own);
    free(b->shun);
    free(b->multi);
    free(b->taken);
    free(b->taken_n);
}

static int board_init(struct board *b, struct round *r)
{
    size_t n = r->in->n_nodes, leaves = 1, at[RATES_TYPES_MAX];

    *b = (struct board){.r = r, .only = -1};
    for (size_t i = 0; i < n; i++) {
        b->first[r->in->nodes[i].type + 1]++;
        if (r->in->nodes[i].leaf >= leaves)
            leaves = r->in->nodes[i].leaf + (size_t)1;
    }
    b->n_leaves = leaves;
    b->nodes = calloc(n + 1, sizeof(*b->nodes));
    b->leaf_free = calloc(leaves, sizeof(*b->leaf_free));
    b->leaf_whole = calloc(leaves, sizeof(*b->leaf_whole));
    b->leaf_room = calloc(leaves, sizeof(*b->leaf_room));
    b->own = calloc(n + 1, sizeof(*b->own));
    b->shun = calloc(n + 1, sizeof(*b->shun));
    b->multi = calloc(n + 1, sizeof(*b->multi));
    b->taken = calloc(n + 1, sizeof(*b->taken));
    b->taken_n = calloc(n + 1, sizeof(*b->taken_n));
    if (!b->nodes || !b->leaf_free || !b->leaf_whole || !b->leaf_room || !b->own || !b->shun || !b->multi ||
        !b->taken || !b->taken_n) {
        board_clear(b);
        return -ENOMEM;
    }
    for (int t = 0; t < RATES_TYPES_MAX; t++) {
        b->first[t + 1] += b->first[t];
        at[t] = b->first[t];
    }
    for (size_t i = 0; i < n; i++) {
        b->nodes[at[r->in->nodes[i].type]++] = (uint32_t)i;
        b->slow[r->in->nodes[i].type] |= r->in->nodes[i].slow_milli > 0;
        b->leaf_free[r->in->nodes[i].leaf] += r->in->nodes[i].devices;
    }
    return 0;
}

static void take(struct board *b, uint32_t node, int32_t n)
{
    assert(b->r->node_free[node] >= n);
    b->r->node_free[node] -= n;
    b->leaf_free[b->r->in->nodes[node].leaf] -= n;
    for (size_t i = 0; i < b->n_taken; i++)
        if (b->taken[i] == node) {
            b->taken_n[i] += n;
            return;
        }
    b->taken[b->n_taken] = node;
    b->taken_n[b->n_taken++] = n;
}

static void give_back(struct board *b, uint32_t node, int32_t n)
{
    b->r->node_free[node] += n;
    b->leaf_free[b->r->in->nodes[node].leaf] += n;
}

/* Devices of a node that the job at hand may take. */
static inline int32_t room_on(const struct board *b, uint32_t node)
{
    if (b->shun[node] == 2 || (b->only >= 0 && b->only != b->r->in->nodes[node].leaf))
        return 0;
    return b->r->node_free[node] - (b->held_off ? b->r->kept[node] : 0);
}

/* Whether the node is left out because it is slow, or the job has failed there. */
static bool shunned(const struct board *b, uint32_t node)
{
    return !b->take_slow && (b->shun[node] || b->r->in->nodes[node].slow_milli > 0);
}

/* The best node for n devices side by side; -1: none. */
static int64_t find_gap(const struct board *b, int type, int32_t n, bool multi, int64_t but)
{
    const struct round *r = b->r;
    int64_t best = -1;

    for (size_t i = b->first[type]; i < b->first[type + 1]; i++) {
        uint32_t at = b->nodes[i];
        int32_t gap = room_on(b, at), leaf = b->leaf_free[r->in->nodes[at].leaf];

        if (gap < n || (multi && b->multi[at]) || (int64_t)at == but || shunned(b, at))
            continue;
        if (b->own[at])
            return at;
        if (best < 0 || gap < room_on(b, (uint32_t)best) ||
            (gap == room_on(b, (uint32_t)best) && leaf < b->leaf_free[r->in->nodes[best].leaf]))
            best = at;
    }
    return best;
}

static inline bool is_whole(const struct board *b, uint32_t node, int type)
{
    const struct round *r = b->r;
    int32_t size = r->node_size[type];

    return r->node_free[node] == size && room_on(b, node) == size && !shunned(b, node);
}

/* The leaf to take whole nodes from: the least that has enough, else the one with most; -1: no node is free. */
static int64_t find_leaf(struct board *b, int type, int32_t want)
{
    const struct round *r = b->r;
    int64_t best = -1;

    for (size_t i = b->first[type]; i < b->first[type + 1]; i++)
        b->leaf_whole[r->in->nodes[b->nodes[i]].leaf] += is_whole(b, b->nodes[i], type);
    for (size_t i = b->first[type]; i < b->first[type + 1]; i++) {
        uint32_t leaf = r->in->nodes[b->nodes[i]].leaf;
        int32_t n = b->leaf_whole[leaf], most = best < 0 ? 0 : b->leaf_whole[best];

        if (n == 0)
            continue;
        if (best < 0 || (most >= want ? n >= want && n < most : n > most))
            best = leaf;
    }
    for (size_t i = b->first[type]; i < b->first[type + 1]; i++)
        b->leaf_whole[r->in->nodes[b->nodes[i]].leaf] = 0;
    return best;
}

static int32_t take_whole(struct board *b, int type, int32_t want, int64_t leaf)
{
    for (size_t i = b->first[type]; i < b->first[type + 1] && want > 0; i++) {
        uint32_t at = b->nodes[i];

        if (!is_whole(b, at, type) || (leaf < 0 ? !b->own[at] : b->r->in->nodes[at].leaf != (uint64_t)leaf))
            continue;
        take(b, at, b->r->node_size[type]);
        want--;
    }
    return want;
}

/* turns: 1, or 2 to take slow devices where no others do. */
static bool take_by_rule(struct board *b, int type, int32_t n, int turns)
{
    int32_t size = b->r->node_size[type], whole = size > 0 ? n / size : 0, rest;
    int64_t leaf, at = -1;

    if (size == 0)
        return false;
    rest = n - whole * size;
    for (int turn = 0; turn < turns && whole > 0; turn++) {
        b->take_slow = turn > 0;
        whole = take_whole(b, type, whole, -1);
        while (whole > 0 && (leaf = find_leaf(b, type, whole)) >= 0)
            whole = take_whole(b, type, whole, leaf);
    }
    if (whole > 0)
        return false;
    for (int turn = 0; turn < turns && rest > 0 && at < 0; turn++) {
        b->take_slow = turn > 0;
        at = find_gap(b, type, rest, n > size, -1);
    }
    if (at >= 0)
        take(b, (uint32_t)at, rest);
    return rest == 0 || at >= 0;
}

/* The node that holds most of n, its own first: the tightest of those that hold all. -1: none has a device. */
static int64_t find_most(const struct board *b, int type, int32_t n)
{
    int64_t best = find_gap(b, type, n, false, -1);

    for (size_t i = b->first[type]; best < 0 && i < b->first[type + 1]; i++)
        if (b->own[b->nodes[i]] && room_on(b, b->nodes[i]) > 0 && !shunned(b, b->nodes[i]))
            best = b->nodes[i];
    for (size_t i = b->first[type]; i < b->first[type + 1]; i++) {
        uint32_t at = b->nodes[i];

        if (shunned(b, at))
            continue;
        if (best < 0 ? room_on(b, at) > 0
                     : !b->own[best] && room_on(b, (uint32_t)best) < n && room_on(b, at) > room_on(b, (uint32_t)best))
            best = at;
    }
    return best;
}

/* Slow devices where no other is left. */
static bool take_anywhere(struct board *b, int type, int32_t n, int turns)
{
    b->take_slow = false;
    while (n > 0) {
        int64_t at = find_most(b, type, n);
        int32_t some = at < 0 ? 0 : room_on(b, (uint32_t)at);

        if (some == 0 && turns > 1 && !b->take_slow) {
            b->take_slow = true;
            continue;
        }
        if (some == 0)
            return false;
        some = some < n ? some : n;
        take(b, (uint32_t)at, some);
        n -= some;
    }
    return true;
}

static void give_back_from(struct board *b, size_t first)
{
    for (; b->n_taken > first; b->n_taken--)
        give_back(b, b->taken[b->n_taken - 1], b->taken_n[b->n_taken - 1]);
}

/* Slow devices and avoided nodes in a second turn. */
static int turns_of(const struct board *b, const struct sched_shape *s)
{
    return b->avoids || b->slow[s->type[0]] || (s->type[1] >= 0 && b->slow[s->type[1]]) ? 2 : 1;
}

static bool place_part(struct board *b, int type, int32_t n, int turns, bool spread)
{
    size_t before = b->n_taken;
    bool good = take_by_rule(b, type, n, turns);

    if (!good)
        give_back_from(b, before);
    if (!good && spread)
        good = take_anywhere(b, type, n, turns);
    if (!good)
        give_back_from(b, before);
    b->take_slow = false;
    return good;
}

static bool place_parts(struct board *b, const struct sched_shape *s, int turns, bool spread)
{
    bool good = true;

    for (int k = 0; good && k < 2; k++)
        if (s->type[k] >= 0)
            good = place_part(b, s->type[k], s->n[k], turns, spread);
    if (!good)
        give_back_from(b, 0);
    return good;
}

/* Whether what was taken is all of one leaf. */
static bool is_in_one_leaf(const struct board *b)
{
    const struct sched_node *nodes = b->r->in->nodes;

    for (size_t i = 1; i < b->n_taken; i++)
        if (nodes[b->taken[i]].leaf != nodes[b->taken[0]].leaf)
            return false;
    return true;
}

/* Keep the job to one leaf after the other that has room for all of it: the one where it is, else the fullest. */
static bool place_in_a_leaf(struct board *b, const struct sched_job *job, const struct sched_shape *s, int turns,
                            bool spread)
{
    int32_t n = shape_size(s);
    bool good = false;
    int64_t best;

    memset(b->leaf_room, 0, b->n_leaves * sizeof(*b->leaf_room));
    for (int k = 0; k < 2; k++)
        for (size_t i = s->type[k] < 0 ? 0 : b->first[s->type[k]]; s->type[k] >= 0 && i < b->first[s->type[k] + 1]; i++)
            b->leaf_room[b->r->in->nodes[b->nodes[i]].leaf] += room_on(b, b->nodes[i]);
    if (job->n_places > 0) {
        b->only = b->r->in->nodes[job->places[0].node].leaf;
        good = b->leaf_room[b->only] >= n && place_parts(b, s, turns, spread);
        b->leaf_room[b->only] = 0;
    }
    for (int tries = 0; !good && tries < LEAVES_TRIED; tries++) {
        best = -1;
        for (size_t l = 0; l < b->n_leaves; l++)
            if (b->leaf_room[l] >= n && (best < 0 || b->leaf_room[l] < b->leaf_room[best]))
                best = (int64_t)l;
        if (best < 0)
            break;
        b->only = best;
        good = place_parts(b, s, turns, spread);
        b->leaf_room[best] = 0;
    }
    b->only = -1;
    return good;
}

static bool place_shape(struct board *b, const struct sched_job *job, const struct sched_shape *s)
{
    bool spread = b->r->in->config.spread, good = false;
    int most = turns_of(b, s);

    for (int turns = 1; turns <= most && !good; turns++) {
        good = (!job->within || b->n_leaves == 1) && place_parts(b, s, turns, spread && b->n_leaves == 1);
        if (b->n_leaves > 1 && (job->within || (spread && !good) || (good && !is_in_one_leaf(b)))) {
            bool several = good;

            give_back_from(b, 0);
            good = place_in_a_leaf(b, job, s, turns, false) || (spread && place_in_a_leaf(b, job, s, turns, true)) ||
                   (several && place_parts(b, s, turns, false));
        }
        if (!good && !job->within && spread && b->n_leaves > 1)
            good = place_parts(b, s, turns, true);
    }
    return good;
}

static int by_node(const void *a, const void *b)
{
    const struct sched_place *x = a, *y = b;

    return (x->node > y->node) - (x->node < y->node);
}

/* Write down what was taken. */
static int commit(struct board *b, struct rjob *j)
{
    struct round *r = b->r;

    if (r->n_places + b->n_taken > r->places_cap) {
        size_t cap = 2 * r->places_cap + b->n_taken + 1024;
        struct sched_place *v = realloc(r->places, cap * sizeof(*v));

        if (!v)
            return -ENOMEM;
        r->places = v;
        r->places_cap = cap;
    }
    j->place_first = (uint32_t)r->n_places;
    j->place_n = (uint32_t)b->n_taken;
    for (size_t i = 0; i < b->n_taken; i++) {
        r->places[r->n_places++] = (struct sched_place){.node = b->taken[i], .devices = b->taken_n[i]};
        b->multi[b->taken[i]] = b->multi[b->taken[i]] || b->n_taken > 1;
    }
    qsort(r->places + j->place_first, j->place_n, sizeof(*r->places), by_node);
    j->placed = true;
    j->kept = j->place_n == j->job->n_places;
    for (size_t i = 0; j->kept && i < j->place_n; i++)
        j->kept = r->places[j->place_first + i].node == j->job->places[i].node &&
                  r->places[j->place_first + i].devices == j->job->places[i].devices;
    return 0;
}

static void unplace(struct board *b, struct rjob *j)
{
    for (uint32_t i = 0; i < j->place_n; i++) {
        const struct sched_place *p = &b->r->places[j->place_first + i];

        give_back(b, p->node, p->devices);
        b->multi[p->node] = b->multi[p->node] && j->place_n == 1;
    }
    j->placed = false;
}

/* A node that closes is for nobody whose time limit runs into that; who has none goes elsewhere where that is possible.
 * Whoever is there may stay. */
static void mark_avoided(struct board *b, const struct sched_job *job, bool on)
{
    for (size_t i = 0; i < b->r->n_closing; i++) {
        uint32_t node = b->r->closing[i];

        b->shun[node] = !on || b->own[node] ? 0 : closing_bars(b->r, job, node) ? 2 : job->limit_us == 0;
    }
    for (size_t i = 0; i < job->n_avoid; i++)
        b->shun[job->avoid[i]] = !on ? 0 : i < job->n_barred ? 2 : 1;
    b->avoids = on && (job->n_avoid > 0 || b->r->n_closing > 0);
}

/* 1 when the job got its nodes, 0 when they do not exist, -ENOMEM. */
static int place_job(struct board *b, struct rjob *j)
{
    const struct sched_shape s = cand_of(b->r, j, j->chosen)->shape;
    bool good;

    b->n_taken = 0;
    b->held_off = b->r->kept && !(j->urgent && j->job->class_ == SCHED_GUARANTEED) && !reserve_lets_pass(b->r, j) &&
                  (b->r->in->config.mode == SCHED_FAST || (b->r->closed & sched_job_types(j->job)) ||
                   (j->job->fixed && j->current == NONE));
    for (size_t i = 0; i < j->job->n_places; i++)
        b->own[j->job->places[i].node] = true;
    mark_avoided(b, j->job, true);
    good = place_shape(b, j->job, &s);
    for (size_t i = 0; i < j->job->n_places; i++)
        b->own[j->job->places[i].node] = false;
    mark_avoided(b, j->job, false);
    b->held_off = false;
    if (good && commit(b, j) < 0)
        return -ENOMEM;
    return good;
}

static bool may_move(const struct rjob *j)
{
    return j->placed && j->place_n == 1 && !j->pinned && !j->job->fixed && j->job->n_avoid == 0 && j->reach == 0;
}

/* Move one small job so that j fits beside the rest of a node. 1: it fits now. */
static int defragment(struct board *b, struct rjob *j)
{
    struct round *r = b->r;
    const struct sched_shape *s = &cand_of(r, j, j->chosen)->shape;
    int32_t n = s->n[0];

    if (b->moves >= DEFRAG_MOVES || b->attempts++ >= DEFRAG_ATTEMPTS || s->type[1] >= 0 || n > r->node_size[s->type[0]])
        return 0;
    for (size_t i = 0; i < r->n_jobs; i++) {
        struct rjob *o = &r->jobs[i];
        struct sched_place at;
        int64_t to;

        if (!may_move(o))
            continue;
        at = r->places[o->place_first];
        if (r->in->nodes[at.node].type != s->type[0] || at.devices >= n || r->node_free[at.node] + at.devices < n)
            continue;
        to = find_gap(b, s->type[0], at.devices, false, at.node);
        if (to < 0)
            continue;
        unplace(b, o);
        b->n_taken = 0;
        take(b, (uint32_t)to, at.devices);
        b->moves++;
        return commit(b, o) < 0 ? -ENOMEM : place_job(b, j);
    }
    return 0;
}

/* The largest smaller candidate that can be placed; else the job waits. */
static int settle_for_less(struct board *b, struct rjob *j)
{
    struct round *r = b->r;

    for (int c = j->chosen - 1; c >= 0; c--) {
        int16_t before = j->chosen;
        int status;

        if (!choice_fits(r, j, c))
            continue;
        choice_set(r, j, c);
        status = place_job(b, j);
        if (status != 0)
            return status;
        choice_set(r, j, before);
    }
    choice_set(r, j, NONE);
    j->reason = SCHED_FRAGMENTED;
    return 0;
}

static int keep_job(struct board *b, struct rjob *j)
{
    b->n_taken = 0;
    for (size_t i = 0; i < j->job->n_places; i++)
        take(b, j->job->places[i].node, j->job->places[i].devices);
    return commit(b, j);
}

struct by_need {
    int urgent; /* 2: granted */
    int32_t n;
    size_t job;
};

static int largest_first(const void *a, const void *b)
{
    const struct by_need *x = a, *y = b;

    if (x->urgent != y->urgent)
        return x->urgent > y->urgent ? -1 : 1;
    if (x->n != y->n)
        return x->n > y->n ? -1 : 1;
    return (x->job > y->job) - (x->job < y->job);
}

/* Place all once. *ret_failed: an urgent job found no room (only when it may be tried again), or any when strict. */
static int place_once(struct board *b, bool keep_all, struct by_need *need, bool *ret_failed)
{
    struct round *r = b->r;
    size_t n = 0;

    *ret_failed = false;
    for (size_t i = 0; i < r->n_jobs; i++) {
        struct rjob *j = &r->jobs[i];

        j->placed = false;
        if (j->chosen == NONE)
            continue;
        if (j->chosen == j->current && (keep_all || j->pinned)) {
            if (keep_job(b, j) < 0)
                return -ENOMEM;
        } else {
            int32_t devices = shape_size(&cand_of(r, j, j->chosen)->shape);

            need[n] = (struct by_need){.urgent = j->granted != NONE ? 2 : j->urgent, .n = devices, .job = i};
            n++;
        }
    }
    qsort(need, n, sizeof(*need), largest_first);
    for (size_t i = 0; i < n; i++) {
        struct rjob *j = &r->jobs[need[i].job];
        int placed = place_job(b, j);

        if (placed == 0)
            placed = defragment(b, j);
        if (placed == 0 && (b->strict || (j->urgent && keep_all))) {
            *ret_failed = true;
            return 0;
        }
        if (placed == 0)
            placed = settle_for_less(b, j);
        if (placed < 0)
            return -ENOMEM;
    }
    return 0;
}

/* Take everybody off the nodes and try again. As place_once. */
static int place_anew(struct round *r, bool keep_all, bool strict, struct by_need *need, bool *ret_failed)
{
    struct board b;
    int status;

    r->n_places = 0;
    for (size_t i = 0; i < r->in->n_nodes; i++)
        r->node_free[i] = r->in->nodes[i].devices;
    status = board_init(&b, r);
    if (status < 0)
        return status;
    b.strict = strict;
    status = place_once(&b, keep_all, need, ret_failed);
    board_clear(&b);
    return status;
}

int place_all(struct round *r)
{
    struct by_need *need = malloc((r->n_jobs + 1) * sizeof(*need));
    bool failed = true;
    int status = need ? 0 : -ENOMEM;

    for (int turn = 0; turn < 2 && failed && status == 0; turn++)
        status = place_anew(r, turn == 0, false, need, &failed);
    free(need);
    return status;
}

int place_possible(struct round *r)
{
    struct by_need *need = malloc((r->n_jobs + 1) * sizeof(*need));
    bool failed = true;
    int status = need ? place_anew(r, true, true, need, &failed) : -ENOMEM;

    r->n_places = 0;
    free(need);
    return status < 0 ? status : !failed;
}
