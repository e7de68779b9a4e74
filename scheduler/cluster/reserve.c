/* Devices kept for urgent jobs that wait and do not fit beside what runs: of one configuration each, the one that lacks
 * least, on the nodes where it lacks least. All else is for the others.
 *
 * Between full rounds nobody else gets what is kept, since the next full round may give it to the job together with
 * what others then lose. In a full round only jobs that are never touched once they run are held off, and only where
 * such are in the way already: anyone else gives way when these have ended.
 *
 * A job whose time limit ends it before that may have what is kept meanwhile (EASY backfilling). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/cluster/sched_priv.h"

#define RESERVED_MAX 8 /* jobs; those after them get their turn when these run */

struct spot {
    uint32_t node;
    int32_t room; /* devices that the job may count on there */
    int32_t free; /* that nobody holds and that are not kept yet */
};

struct wish { /* what one configuration lacks, and what would be kept for it */
    int32_t missing;
    size_t n;
    struct spot *spots;
    int32_t *keep;
};

struct survey {           /* of the nodes, for one job after another */
    int32_t *room, *free; /* by node */
    struct spot *spots;   /* of one type, most room first; scratch */
    struct wish now, best;
};

static void survey_clear(struct survey *s)
{
    free(s->room);
    free(s->free);
    free(s->spots);
    free(s->now.spots);
    free(s->now.keep);
    free(s->best.spots);
    free(s->best.keep);
}

/* What a job that goes on holds, off free; and off room where it stays whatever comes. */
static void take_off(const struct round *r, struct survey *s, const struct rjob *j)
{
    bool stays = j->job->fixed || r->in->config.mode == SCHED_FAST;

    for (size_t p = 0; j->current != NONE && p < j->job->n_places; p++) {
        s->free[j->job->places[p].node] -= j->job->places[p].devices;
        s->room[j->job->places[p].node] -= stays ? j->job->places[p].devices : 0;
    }
}

static int survey_init(const struct round *r, struct survey *s)
{
    size_t n = r->in->n_nodes + 1;

    *s = (struct survey){.room = calloc(n, sizeof(*s->room)),
                         .free = calloc(n, sizeof(*s->free)),
                         .spots = calloc(n, sizeof(*s->spots))};
    s->now.spots = calloc(2 * n, sizeof(*s->now.spots));
    s->now.keep = calloc(2 * n, sizeof(*s->now.keep));
    s->best.spots = calloc(2 * n, sizeof(*s->best.spots));
    s->best.keep = calloc(2 * n, sizeof(*s->best.keep));
    if (!s->room || !s->free || !s->spots || !s->now.spots || !s->now.keep || !s->best.spots || !s->best.keep) {
        survey_clear(s);
        return -ENOMEM;
    }
    for (size_t i = 0; i < r->in->n_nodes; i++)
        s->room[i] = s->free[i] = r->in->nodes[i].devices;
    for (size_t i = 0; i < r->n_jobs; i++)
        take_off(r, s, &r->jobs[i]);
    return 0;
}

static int most_room_first(const void *a, const void *b)
{
    const struct spot *x = a, *y = b;

    if (x->room != y->room)
        return x->room > y->room ? -1 : 1;
    if (x->free != y->free)
        return x->free > y->free ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

static void want(struct wish *w, const struct spot *at, int32_t n)
{
    w->missing += n > at->room ? n - at->room : 0;
    w->spots[w->n] = *at;
    w->keep[w->n++] = n < at->free ? n : at->free;
}

/* Add n devices of a type to a wish: whole nodes and one part, or where that is allowed parts of any. */
static void wish_for(const struct round *r, struct survey *s, int type, int32_t n)
{
    int32_t size = r->node_size[type];
    struct wish *w = &s->now;
    size_t k = 0;

    for (uint32_t i = 0; i < r->in->n_nodes; i++)
        if (r->in->nodes[i].type == type && r->in->nodes[i].devices > 0)
            s->spots[k++] = (struct spot){.node = i, .room = s->room[i], .free = s->free[i]};
    qsort(s->spots, k, sizeof(*s->spots), most_room_first);
    for (size_t i = 0; i < k && n > 0; i++) {
        int32_t some = n < size ? n : size;

        if (r->in->config.spread && s->spots[i].room < some)
            some = s->spots[i].room;
        if (some < 1)
            break;
        want(w, &s->spots[i], some);
        n -= some;
    }
    w->missing += n;
}

/* What the job lacks least for, into s->best. False: it has a configuration that lacks nothing, or none at all. */
static bool find_wish(const struct round *r, struct survey *s, const struct rjob *j)
{
    s->best.missing = INT32_MAX;
    for (int c = 0; c < j->n && s->best.missing > 0; c++) {
        const struct sched_shape *shape = &cand_of(r, j, c)->shape;

        s->now.missing = 0;
        s->now.n = 0;
        for (int k = 0; k < 2; k++)
            if (shape->type[k] >= 0)
                wish_for(r, s, shape->type[k], shape->n[k]);
        if (s->now.missing < s->best.missing) {
            struct wish better = s->now;

            s->now = s->best;
            s->best = better;
        }
    }
    return s->best.missing > 0 && s->best.missing < INT32_MAX;
}

/* Its tenant's limit is in the way, not devices. */
static bool is_limited(const struct round *r, const struct rjob *j)
{
    return j->least > tenants_room(r, j->job);
}

struct ending {
    int64_t at_us;
    int32_t devices;
};

static int by_end(const void *a, const void *b)
{
    const struct ending *x = a, *y = b;

    return (x->at_us > y->at_us) - (x->at_us < y->at_us);
}

/* Devices of these types that a run holds which nobody takes them from; 0: none. */
static int32_t holds_for_good(const struct round *r, const struct rjob *holder, uint32_t types)
{
    int32_t n = 0;

    for (size_t p = 0; holder->job->fixed && holder->current != NONE && p < holder->job->n_places; p++)
        n += types >> r->in->nodes[holder->job->places[p].node].type & 1 ? holder->job->places[p].devices : 0;
    return n;
}

/* When the job can start on devices of these types, at the earliest, by the ends of what is not touched. 0: nobody
 * knows, or in the next round. */
static int64_t starts_us(const struct round *r, const struct rjob *j, uint32_t types)
{
    struct ending *ends = calloc(r->n_jobs + 1, sizeof(*ends));
    int64_t have = 0, at_us = 0;
    size_t n = 0;

    for (int t = 0; t < RATES_TYPES_MAX; t++)
        have += types >> t & 1 ? r->total[t] - r->kept_devices[t] : 0;
    for (size_t i = 0; ends && i < r->n_jobs; i++) {
        const struct rjob *holder = &r->jobs[i];
        int32_t devices = holds_for_good(r, holder, types);
        int64_t left =
            devices > 0 ? sched_left_us(holder->job, cand_of(r, holder, holder->current)->shape.rate_ups) : 0;

        have -= devices;
        if (devices > 0 && left < SCHED_LEFT_UNKNOWN)
            ends[n++] = (struct ending){.devices = devices, .at_us = r->in->config.now_us + left};
    }
    if (n > 0)
        qsort(ends, n, sizeof(*ends), by_end);
    for (size_t i = 0; i < n && have < j->least; i++) {
        have += ends[i].devices;
        at_us = ends[i].at_us;
    }
    free(ends);
    return have < j->least ? 0 : at_us;
}

static void keep(struct round *r, struct survey *s, const struct rjob *j)
{
    uint32_t types = 0;
    int64_t until_us;

    for (size_t i = 0; i < s->best.n; i++)
        types |= UINT32_C(1) << r->in->nodes[s->best.spots[i].node].type;
    until_us = starts_us(r, j, types);
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        if ((types >> t & 1) && (r->kept_for[t] == 0 || until_us < r->kept_until_us[t]))
            r->kept_until_us[t] = until_us;
    for (size_t i = 0; i < s->best.n; i++) {
        uint32_t node = s->best.spots[i].node;
        int32_t n = s->best.keep[i];
        int type = r->in->nodes[node].type;

        r->kept_for[type] = r->kept_for[type] ? r->kept_for[type] : j->job->id;
        r->kept[node] += n;
        r->kept_devices[type] += n;
        s->free[node] -= n;
        s->room[node] -= s->room[node] < n ? s->room[node] : n;
    }
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
    return j->current == NONE && j->chosen == NONE;
}

/* Keep devices for those that lack some. 0 or -ENOMEM. */
static int keep_for_all(struct round *r)
{
    struct survey s;
    int reserved = 0;
    bool any = false;

    for (size_t i = 0; i < r->n_jobs && !any; i++)
        any = r->jobs[i].urgent && waits(&r->jobs[i]);
    if (!any)
        return 0;
    r->kept = calloc(r->in->n_nodes + 1, sizeof(*r->kept));
    if (!r->kept || survey_init(r, &s) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < r->n_jobs && reserved < RESERVED_MAX; i++) {
        const struct rjob *j = &r->jobs[i];

        if (!j->urgent || !waits(j) || is_limited(r, j) || !find_wish(r, &s, j))
            continue;
        keep(r, &s, j);
        reserved++;
    }
    survey_clear(&s);
    return 0;
}

int reserve_between(struct round *r)
{
    int status = keep_for_all(r);

    for (int t = 0; t < RATES_TYPES_MAX; t++)
        r->total[t] -= r->kept_devices[t];
    return status;
}

void reserve_backfill(struct round *r)
{
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        r->total[t] += r->kept_devices[t];
    for (size_t i = 0; i < r->n_jobs && r->kept; i++) {
        struct rjob *j = &r->jobs[i];
        int best = NONE;

        for (int c = 0; waits(j) && !j->urgent && !j->pinned && reserve_lets_pass(r, j) && c < j->n; c++)
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
                room += r->total[t] - r->used[t];
                kept += r->kept_devices[t];
            }
        if (waits(j) && !j->urgent && (!full || j->job->fixed) && !is_limited(r, j) && kept > 0 &&
            room + (full ? 0 : kept) >= j->least)
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

int reserve_at_full(struct round *r)
{
    int32_t rest[RATES_TYPES_MAX];
    int status = keep_for_all(r);

    for (int t = 0; t < RATES_TYPES_MAX; t++)
        rest[t] = r->free[t] - r->kept_devices[t];
    for (size_t i = 0; i < r->n_jobs && r->kept && status == 0; i++) {
        struct rjob *j = &r->jobs[i];

        if (!waits(j) || j->urgent || !j->job->fixed || j->n == 0 || reserve_lets_pass(r, j))
            continue;
        leave_rest(r, rest, j);
        if (j->n > 0)
            continue;
        j->pinned = j->crowded = true; /* not in this round */
        mark_behind(r, j);
    }
    return status;
}
