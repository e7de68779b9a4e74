/* Devices kept for urgent jobs that wait and do not fit beside what runs: for each those that come free first. All else
 * is for the others.
 *
 * Urgent jobs go by age. One that fits on what is free, or in a full round on what elastic jobs can give, starts,
 * whatever others would gain; for one that does not, devices are kept, and no younger one gets them. They are those
 * whose last holder ends first: by its time limit, else who has run longest. What is kept goes to nobody who is there
 * longer, so from round to round that time only comes nearer, even when others turn out to come free sooner: the job
 * starts when what then held its devices has ended.
 *
 * Between full rounds nobody else gets what is kept. In a full round only jobs that are never touched once they run are
 * held off: anyone else gives way when it is time. A job whose time limit ends it before that may have what is kept
 * meanwhile (EASY backfilling). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/cluster/sched_priv.h"
#include "scheduler/cluster/closing_priv.h"
#include "scheduler/cluster/tenants_priv.h"

#define RESERVED_MAX 8             /* jobs; those after them get their turn when these run */
#define LOOKED_MAX 24              /* urgent jobs that are looked at by age */
#define UNKNOWN_US (INT64_MAX / 2) /* from here on an end that nobody knows: who began later ends later */

struct lot {         /* devices of a node that come free at the same time */
    int64_t free_us; /* 0: now, or in a full round */
    uint32_t node;
    int32_t n;
    bool idle;       /* nobody holds them */
    uint32_t holder; /* index of who does */
};

struct spot { /* part of a wish */
    uint32_t lot;
    int32_t n;
};

struct rank { /* of lots or nodes */
    int64_t at_us;
    bool idle;
    uint32_t index;
};

struct wish {        /* devices of one configuration */
    int64_t free_us; /* the last of them */
    int32_t held;    /* of those that are there now, some that elastic jobs hold */
    int cand;
    size_t n;
    struct spot *spots;
};

struct survey {       /* of the nodes, for one job after another */
    struct lot *lots; /* n_lots, by node and by when they come free */
    size_t n_lots;
    size_t *first;      /* lot of each node; n_nodes + 1 of them */
    struct rank *ranks; /* scratch */
    bool *barred;       /* nodes, for the job at hand */
    int64_t only;       /* leaf that it is kept to; -1: none */
    struct wish now, best;
};

static void survey_clear(struct survey *s)
{
    free(s->lots);
    free(s->first);
    free(s->ranks);
    free(s->barred);
    free(s->now.spots);
    free(s->best.spots);
}

static int by_node_and_time(const void *a, const void *b)
{
    const struct lot *x = a, *y = b;

    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    if (x->free_us != y->free_us)
        return x->free_us < y->free_us ? -1 : 1;
    return y->idle - x->idle;
}

/* When what a job holds comes free. One that can give way does so when it has had them for as long as anyone;
 * a guarantee never. */
static int64_t end_of(const struct round *r, const struct rjob *j)
{
    const struct sched_job *job = j->job;
    int64_t held_until = job->class_ == SCHED_OPPORTUNISTIC ? 0 : job->changed_us + candidates_hold_us(r, job);
    int64_t known = job->limit_us > 0 ? r->in->config.now_us + job->limit_us : UNKNOWN_US + job->changed_us;

    if (job->fixed || (j->urgent && job->class_ == SCHED_GUARANTEED))
        return known;
    if (held_until <= r->in->config.now_us)
        return 0;
    return held_until < known ? held_until : known;
}

static int survey_init(const struct round *r, struct survey *s)
{
    size_t n = r->in->n_nodes, lots = n;

    for (size_t i = 0; i < r->n_jobs; i++)
        lots += r->jobs[i].job->n_places;
    *s = (struct survey){.lots = calloc(lots + 1, sizeof(*s->lots)),
                         .first = calloc(n + 1, sizeof(*s->first)),
                         .ranks = calloc(lots + 1, sizeof(*s->ranks)),
                         .barred = calloc(n + 1, sizeof(*s->barred)),
                         .only = -1};
    s->now.spots = calloc(lots + 1, sizeof(*s->now.spots));
    s->best.spots = calloc(lots + 1, sizeof(*s->best.spots));
    if (!s->lots || !s->first || !s->ranks || !s->barred || !s->now.spots || !s->best.spots) {
        survey_clear(s);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < n; i++)
        s->lots[s->n_lots++] = (struct lot){.node = i, .n = r->in->nodes[i].devices, .idle = true};
    for (size_t i = 0; i < r->n_jobs; i++) {
        const struct rjob *j = &r->jobs[i];

        for (size_t p = 0; j->current != NONE && p < j->job->n_places; p++) {
            const struct sched_place *at = &j->job->places[p];

            s->lots[at->node].n -= at->devices;
            s->lots[s->n_lots++] =
                (struct lot){.node = at->node, .n = at->devices, .free_us = end_of(r, j), .holder = (uint32_t)i};
        }
    }
    qsort(s->lots, s->n_lots, sizeof(*s->lots), by_node_and_time);
    for (size_t i = s->n_lots; i-- > 0;)
        s->first[s->lots[i].node] = i;
    s->first[n] = s->n_lots;
    return 0;
}

static bool is_barred(const struct round *r, const struct survey *s, uint32_t node)
{
    return s->barred[node] || (s->only >= 0 && s->only != r->in->nodes[node].leaf);
}

/* When n devices of a node are free; INT64_MAX: never. */
static int64_t node_free_us(const struct round *r, const struct survey *s, uint32_t node, int32_t n)
{
    size_t i = s->first[node];

    while (n > 0 && i < s->first[node + 1])
        n -= s->lots[i++].n;
    return n > 0 || is_barred(r, s, node) ? INT64_MAX : i > s->first[node] ? s->lots[i - 1].free_us : 0;
}

static void want_lot(struct wish *w, const struct survey *s, uint32_t lot, int32_t n)
{
    if (n < 1)
        return;
    w->free_us = s->lots[lot].free_us > w->free_us ? s->lots[lot].free_us : w->free_us;
    w->held += s->lots[lot].idle ? 0 : n;
    w->spots[w->n++] = (struct spot){.lot = lot, .n = n};
}

static void want_node(struct wish *w, const struct survey *s, uint32_t node, int32_t n)
{
    for (size_t i = s->first[node]; n > 0 && i < s->first[node + 1]; i++) {
        int32_t some = n < s->lots[i].n ? n : s->lots[i].n;

        want_lot(w, s, (uint32_t)i, some);
        n -= some;
    }
}

static int by_rank(const void *a, const void *b)
{
    const struct rank *x = a, *y = b;

    if (x->at_us != y->at_us)
        return x->at_us < y->at_us ? -1 : 1;
    if (x->idle != y->idle)
        return x->idle ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static void wish_for_nodes(const struct round *r, struct survey *s, int type, int32_t n)
{
    int32_t size = r->node_size[type], rest = n % size;
    int64_t best_us = INT64_MAX;
    size_t k = 0, whole = (size_t)(n / size);
    uint32_t best = 0;

    for (uint32_t i = 0; i < r->in->n_nodes; i++)
        if (r->in->nodes[i].type == type && r->in->nodes[i].devices > 0)
            s->ranks[k++] = (struct rank){.at_us = node_free_us(r, s, i, whole > 0 ? size : rest), .index = i};
    qsort(s->ranks, k, sizeof(*s->ranks), by_rank);
    for (size_t i = 0; i < whole && i < k && s->ranks[i].at_us < INT64_MAX; i++) {
        want_node(&s->now, s, s->ranks[i].index, size);
        n -= size;
    }
    for (size_t i = whole; i < k && n == rest && rest > 0; i++) {
        int64_t at_us = node_free_us(r, s, s->ranks[i].index, rest);

        if (at_us < best_us) {
            best_us = at_us;
            best = s->ranks[i].index;
        }
    }
    if (n == rest && best_us < INT64_MAX) {
        want_node(&s->now, s, best, rest);
        n = 0;
    }
    s->now.free_us = n > 0 ? INT64_MAX : s->now.free_us;
}

static void wish_for_any(const struct round *r, struct survey *s, int type, int32_t n)
{
    size_t k = 0;

    for (size_t i = 0; i < s->n_lots; i++) {
        const struct lot *l = &s->lots[i];

        if (r->in->nodes[l->node].type == type && l->n > 0 && !is_barred(r, s, l->node))
            s->ranks[k++] = (struct rank){.at_us = l->free_us, .idle = l->idle, .index = (uint32_t)i};
    }
    qsort(s->ranks, k, sizeof(*s->ranks), by_rank);
    for (size_t i = 0; i < k && n > 0; i++) {
        int32_t some = n < s->lots[s->ranks[i].index].n ? n : s->lots[s->ranks[i].index].n;

        want_lot(&s->now, s, s->ranks[i].index, some);
        n -= some;
    }
    s->now.free_us = n > 0 ? INT64_MAX : s->now.free_us;
}

/* Add n devices of a type to a wish: whole nodes and one part, or where that is allowed parts of any. */
static void wish_for(const struct round *r, struct survey *s, const struct sched_shape *shape)
{
    s->now.n = 0;
    s->now.held = 0;
    s->now.free_us = 0;
    for (int k = 0; k < 2 && s->now.free_us < INT64_MAX; k++)
        if (shape->type[k] >= 0 && r->node_size[shape->type[k]] > 0) {
            if (r->in->config.spread)
                wish_for_any(r, s, shape->type[k], shape->n[k]);
            else
                wish_for_nodes(r, s, shape->type[k], shape->n[k]);
        }
}

/* Of its smallest configurations (only: of that candidate) what comes free first, into s->best, if it is better. */
static void find_on_leaf(const struct round *r, struct survey *s, const struct rjob *j, int only)
{
    for (int c = 0; c < j->n && shape_size(&cand_of(r, j, c)->shape) == shape_size(&cand_of(r, j, 0)->shape); c++) {
        if (only != NONE)
            c = only;
        wish_for(r, s, &cand_of(r, j, c)->shape);
        s->now.cand = c;
        if (s->now.free_us < s->best.free_us ||
            (s->now.free_us == s->best.free_us && s->now.free_us < INT64_MAX && s->now.held < s->best.held)) {
            struct wish better = s->now;

            s->now = s->best;
            s->best = better;
        }
        if (only != NONE)
            break;
    }
}

/* On any nodes, or on those of one leaf if the job asks for that. False: there are none. */
static bool find_wish(const struct round *r, struct survey *s, const struct rjob *j, int only)
{
    for (size_t i = 0; i < j->job->n_barred; i++)
        s->barred[j->job->avoid[i]] = true;
    for (size_t i = 0; i < r->n_closing; i++)
        s->barred[r->closing[i]] |= closing_bars(r, j->job, r->closing[i]);
    s->best.free_us = INT64_MAX;
    for (s->only = 0; j->job->within && s->only < (int64_t)r->n_leaves; s->only++)
        find_on_leaf(r, s, j, only);
    s->only = -1;
    if (!j->job->within)
        find_on_leaf(r, s, j, only);
    for (size_t i = 0; i < j->job->n_barred; i++)
        s->barred[j->job->avoid[i]] = false;
    for (size_t i = 0; i < r->n_closing; i++)
        s->barred[r->closing[i]] = false;
    return s->best.free_us < INT64_MAX;
}

/* Nobody younger gets what is wished for. */
static void take_wish(struct survey *s)
{
    for (size_t i = 0; i < s->best.n; i++)
        s->lots[s->best.spots[i].lot].n -= s->best.spots[i].n;
}

static void keep(struct round *r, struct survey *s, struct rjob *j)
{
    int64_t until_us = s->best.free_us < UNKNOWN_US ? s->best.free_us : 0;

    j->starts_us = until_us;
    for (size_t i = 0; i < s->best.n; i++) {
        const struct lot *l = &s->lots[s->best.spots[i].lot];
        int type = r->in->nodes[l->node].type;

        if (r->kept_for[type] == 0 || until_us < r->kept_until_us[type])
            r->kept_until_us[type] = until_us;
        if (r->in->config.mode == SCHED_FULL && until_us > 0 &&
            until_us <= r->in->config.now_us + candidates_hold_us(r, NULL))
            r->closed |= UINT32_C(1) << type; /* whoever got it would hold it for longer */
        r->kept_for[type] = r->kept_for[type] ? r->kept_for[type] : j->job->id;
        if (!l->idle) { /* who changed its devices now would hold them from now on */
            r->jobs[l->holder].pinned = true;
            continue;
        }
        r->kept[l->node] += s->best.spots[i].n;
        r->kept_devices[type] += s->best.spots[i].n;
        j->kept_n += s->best.spots[i].n;
        if (r->in->config.mode == SCHED_FAST)
            r->total[type] -= s->best.spots[i].n;
    }
    take_wish(s);
}

bool reserve_lets_pass(const struct round *r, const struct rjob *j)
{
    bool passes = r->in->config.policy == SCHED_POLICY_MUSTER && j->job->limit_us > 0;

    for (int t = 0; t < RATES_TYPES_MAX && passes; t++)
        passes = !(sched_job_types(j->job) >> t & 1) || r->kept_devices[t] == 0 ||
                 r->in->config.now_us + j->job->limit_us <= r->kept_until_us[t];
    return passes;
}

static bool waits(const struct rjob *j)
{
    return j->current == NONE && j->chosen == NONE && j->granted == NONE;
}

/* Its tenant's limit is in the way, not devices. */
static bool is_limited(const struct round *r, const struct rjob *j)
{
    return j->least > tenants_room(r, j->job);
}

/* In a full round it starts on what is wished for; the others are weighed against each other. */
static void grant(struct round *r, struct survey *s, struct rjob *j)
{
    const struct sched_shape *shape = &cand_of(r, j, s->best.cand)->shape;

    if (!tenants_allow(r, j->job->tenant, NULL, shape))
        return;
    tenants_count(r, j->job->tenant, shape, 1);
    j->granted = (int16_t)s->best.cand;
    j->pinned = true;
    for (size_t i = 0; i < s->best.n; i++) {
        const struct lot *l = &s->lots[s->best.spots[i].lot];

        r->granted_idle[r->in->nodes[l->node].type] += l->idle ? s->best.spots[i].n : 0;
    }
    take_wish(s);
}

/* Whether enough of its types is idle or held by jobs that give way to a guarantee. */
static bool can_take(const struct round *r, const struct survey *s, const struct rjob *j)
{
    int64_t n = 0;

    for (size_t i = 0; i < s->n_lots; i++) {
        const struct lot *l = &s->lots[i];
        const struct rjob *holder = &r->jobs[l->holder];

        if ((sched_job_types(j->job) >> r->in->nodes[l->node].type & 1) &&
            (l->idle || !(holder->job->fixed || (holder->urgent && holder->job->class_ == SCHED_GUARANTEED))))
            n += l->n;
    }
    return n >= j->least;
}

/* One urgent job that waits. Returns 1 when devices are kept for it, 0 when not. */
static int serve(struct round *r, struct survey *s, struct rjob *j)
{
    bool full = r->in->config.mode == SCHED_FULL, guaranteed = j->job->class_ == SCHED_GUARANTEED, now;

    if (j->chosen != NONE) { /* it takes what others have, if need be */
        if (find_wish(r, s, j, j->chosen))
            take_wish(s);
        return 0;
    }
    if (j->n == 0 || is_limited(r, j) || !find_wish(r, s, j, NONE))
        return 0;
    if (full && guaranteed && can_take(r, s, j))
        return 0;
    now = s->best.free_us == 0 && (full || s->best.held == 0);
    if (!now) {
        keep(r, s, j);
        return 1;
    }
    if (full && !guaranteed) {
        grant(r, s, j);
    } else if (full || choice_fits(r, j, s->best.cand)) {
        if (!full)
            choice_set(r, j, s->best.cand);
        take_wish(s);
    }
    return 0;
}

struct turn {
    bool guaranteed;
    int64_t waiting_us;
    size_t job;
};

static int by_age(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;

    if (x->guaranteed != y->guaranteed)
        return x->guaranteed ? -1 : 1;
    if (x->waiting_us != y->waiting_us)
        return x->waiting_us < y->waiting_us ? -1 : 1;
    return (x->job > y->job) - (x->job < y->job);
}

static bool is_served(const struct rjob *j)
{
    return j->urgent && j->current == NONE;
}

static bool any_is_served(const struct round *r)
{
    for (size_t i = 0; i < r->n_jobs; i++)
        if (is_served(&r->jobs[i]))
            return true;
    return false;
}

/* Urgent jobs, the oldest first: they start, or devices are kept for them. 0 or -ENOMEM. */
static int serve_all(struct round *r)
{
    struct turn *turns = calloc(r->n_jobs + 1, sizeof(*turns));
    struct survey s = {.lots = NULL};
    int reserved = 0, status = turns ? 0 : -ENOMEM;
    size_t n = 0;

    for (size_t i = 0; i < r->n_jobs && turns; i++)
        if (is_served(&r->jobs[i]))
            turns[n++] = (struct turn){.guaranteed = r->jobs[i].job->class_ == SCHED_GUARANTEED,
                                       .waiting_us = r->jobs[i].job->waiting_us,
                                       .job = i};
    if (turns) {
        qsort(turns, n, sizeof(*turns), by_age);
        r->kept = calloc(r->in->n_nodes + 1, sizeof(*r->kept));
        status = r->kept ? survey_init(r, &s) : -ENOMEM;
    }
    for (size_t i = 0; i < n && i < LOOKED_MAX && reserved < RESERVED_MAX && status == 0; i++)
        reserved += serve(r, &s, &r->jobs[turns[i].job]);
    survey_clear(&s);
    free(turns);
    return status;
}

int reserve_between(struct round *r)
{
    return any_is_served(r) ? serve_all(r) : 0;
}

void reserve_backfill(struct round *r)
{
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        r->total[t] += r->kept_devices[t];
    for (size_t i = 0; i < r->n_jobs && r->kept; i++) {
        struct rjob *j = &r->jobs[i];
        int best = NONE;

        for (int c = 0; waits(j) && !j->pinned && reserve_lets_pass(r, j) && c < j->n; c++)
            if (choice_fits(r, j, c) && (best == NONE || cand_of(r, j, c)->utility > cand_of(r, j, best)->utility))
                best = c;
        if (best != NONE)
            choice_set(r, j, best);
    }
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        r->total[t] -= r->kept_devices[t];
}

/* The job waits behind the one that devices of its types are kept for. */
static void mark_behind(const struct round *r, struct rjob *j)
{
    for (int t = RATES_TYPES_MAX - 1; t >= 0; t--)
        if ((sched_job_types(j->job) >> t & 1) && r->kept_devices[t] > 0)
            j->behind = r->kept_for[t];
    j->reason = SCHED_BEHIND;
}

void reserve_end(struct round *r)
{
    bool full = r->in->config.mode == SCHED_FULL;

    for (size_t i = 0; i < r->n_jobs && r->kept; i++) {
        struct rjob *j = &r->jobs[i];
        int64_t room = 0, kept = 0; /* in a full round room is with what is kept */

        for (int t = 0; t < RATES_TYPES_MAX; t++)
            if (sched_job_types(j->job) >> t & 1) {
                room += r->total[t] - r->used[t] + (full ? 0 : r->kept_devices[t]);
                kept += r->kept_devices[t];
            }
        if (waits(j) && j->starts_us == 0 && j->kept_n == 0 &&
            (!full || j->job->fixed || (r->closed & sched_job_types(j->job))) && !is_limited(r, j) && kept > 0 &&
            room >= j->least)
            mark_behind(r, j);
    }
}

static bool is_left(const struct round *r, const int32_t rest[RATES_TYPES_MAX], int type, int32_t n)
{
    return type < 0 || r->kept_devices[type] == 0 || rest[type] >= n;
}

/* Leave the job the candidates that need nothing of what is kept; the most that one of them takes is its own then. */
static void leave_rest(const struct round *r, int32_t rest[RATES_TYPES_MAX], struct rjob *j)
{
    int32_t most[RATES_TYPES_MAX] = {0};
    int n = 0;

    for (int c = 0; c < j->n; c++) {
        const struct cand from = *cand_of(r, j, c);
        const struct sched_shape *s = &from.shape;

        if (!is_left(r, rest, s->type[0], s->n[0]) || !is_left(r, rest, s->type[1], s->n[1]))
            continue;
        *cand_of(r, j, n++) = from;
        for (int k = 0; k < 2; k++)
            if (s->type[k] >= 0 && s->n[k] > most[s->type[k]])
                most[s->type[k]] = s->n[k];
    }
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        rest[t] -= most[t];
    j->n = (uint16_t)n;
}

/* What runs for its tenant already: all of what is never touched, else the least. */
static void count_running(struct round *r, int sign)
{
    for (size_t i = 0; i < r->n_jobs; i++) {
        const struct rjob *j = &r->jobs[i];

        if (j->current != NONE)
            tenants_count(r, j->job->tenant, &cand_of(r, j, j->job->fixed ? j->current : 0)->shape, sign);
    }
}

int reserve_at_full(struct round *r)
{
    int32_t rest[RATES_TYPES_MAX];
    int status;

    if (!any_is_served(r))
        return 0;
    count_running(r, 1);
    status = serve_all(r);
    for (size_t i = 0; i < r->n_jobs; i++)
        if (r->jobs[i].granted != NONE)
            tenants_count(r, r->jobs[i].job->tenant, &cand_of(r, &r->jobs[i], r->jobs[i].granted)->shape, -1);
    count_running(r, -1);
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        rest[t] = r->free[t] - r->kept_devices[t] - r->granted_idle[t];
    for (size_t i = 0; i < r->n_jobs && r->kept && status == 0; i++) {
        struct rjob *j = &r->jobs[i];

        if (!waits(j) || !(j->job->fixed || (r->closed & sched_job_types(j->job))) || j->n == 0 ||
            (j->urgent && j->job->class_ == SCHED_GUARANTEED) || reserve_lets_pass(r, j))
            continue;
        leave_rest(r, rest, j);
        if (j->n > 0)
            continue;
        j->pinned = j->crowded = true; /* not in this round */
        mark_behind(r, j);
    }
    return status;
}
