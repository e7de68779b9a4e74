/* The policies that Muster is compared with: jobs in some order, each as a gang. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "scheduler/cluster/sched_priv.h"
#include "scheduler/cluster/closing_priv.h"
#include "scheduler/cluster/tenants_priv.h"

bool choice_fits(const struct round *r, const struct rjob *j, int c)
{
    const struct sched_shape *to = &cand_of(r, j, c)->shape;
    const struct sched_shape *from = j->chosen == NONE ? NULL : &cand_of(r, j, j->chosen)->shape;

    if (!tenants_allow(r, j->job->tenant, from, to))
        return false;
    for (int k = 0; k < 2; k++) {
        int type = to->type[k];
        int32_t n = to->n[k];

        if (type < 0)
            continue;
        for (int f = 0; from && f < 2; f++)
            n -= from->type[f] == type ? from->n[f] : 0;
        if (n > 0 && (n > r->total[type] - r->used[type] || !closing_fits(r, j, type, n)))
            return false;
    }
    return true;
}

void choice_set(struct round *r, struct rjob *j, int c)
{
    for (int sign = -1; sign <= 1; sign += 2) {
        const struct sched_shape *s;

        if (sign > 0)
            j->chosen = (int16_t)c;
        if (j->chosen == NONE)
            continue;
        s = &cand_of(r, j, j->chosen)->shape;
        for (int k = 0; k < 2; k++)
            if (s->type[k] >= 0)
                r->used[s->type[k]] += sign * s->n[k];
        closing_count(r, j, s, sign);
        tenants_count(r, j->job->tenant, s, sign);
    }
}

struct turn {
    size_t job;
    int64_t key, key2;
    uint64_t id;
};

static int by_turn(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    if (x->key2 != y->key2)
        return x->key2 < y->key2 ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static int64_t best_rate(const struct round *r, const struct rjob *j)
{
    int64_t best = 0;

    for (int c = 0; c < j->n; c++)
        if (cand_of(r, j, c)->shape.rate_ups > best)
            best = cand_of(r, j, c)->shape.rate_ups;
    return best;
}

/* Who is before whom: smaller keys first. */
static struct turn turn_of(const struct round *r, size_t i)
{
    const struct rjob *j = &r->jobs[i];
    const struct sched_job *job = j->job;
    const struct sched_config *cfg = &r->in->config;
    struct turn t = {.job = i, .key = job->submit_us, .id = job->id};
    double weight = (double)job->weight_milli * (double)r->in->tenants[job->tenant].weight_milli / 1e6;

    if (job->fixed && j->current != NONE) {
        t.key = INT64_MIN;
    } else if (cfg->policy == SCHED_POLICY_LAS) {
        bool starved = job->n_places == 0 && cfg->now_us - job->waiting_us > cfg->starve_us;

        t.key = job->attained_us >= cfg->las_us && !starved;
        t.key2 = job->submit_us;
    } else if (cfg->policy == SCHED_POLICY_MAXMIN) {
        double age = (double)(cfg->now_us - job->submit_us) + 1e6;

        t.key = (int64_t)((double)job->attained_us / (age * weight) * 1e3); /* coarse, so that equals stay in place */
        t.key2 = job->submit_us;
    } else if (cfg->policy == SCHED_POLICY_SRTF) {
        t.key = sched_left_us(job, best_rate(r, j));
    }
    return t;
}

/* The fastest candidate that fits. What runs changes in a full round, where the rest of its work is over sooner by
 * that, the restart counted, and a fifth faster. */
static int best_fit(const struct round *r, const struct rjob *j)
{
    bool stays = j->current != NONE && choice_fits(r, j, j->current);
    double now = stays ? 1.2 * (double)cand_of(r, j, j->current)->shape.rate_ups : 0, most = 0;
    int best = NONE;

    if (stays && r->in->config.mode != SCHED_FULL)
        return j->current;
    for (int c = 0; c < j->n; c++) {
        double rate = (double)cand_of(r, j, c)->shape.rate_ups;

        if (cand_of(r, j, c)->shape.type[1] >= 0 || !choice_fits(r, j, c))
            continue;
        if (stays)
            rate *= candidates_rest_factor(j->job, cand_of(r, j, c)->shape.rate_ups);
        if (rate > most && rate > now) {
            most = rate;
            best = c;
        }
    }
    return best != NONE || !stays ? best : j->current;
}

/* Whoever was given devices keeps them for as long as muster leaves them to a job at least, and for a time slice. The
 * oracle stops whom it likes. */
static bool is_held(const struct round *r, const struct rjob *j)
{
    int64_t since = r->in->config.now_us - j->job->changed_us;

    return j->current != NONE && r->in->config.policy != SCHED_POLICY_SRTF &&
           (since < candidates_hold_us(r, j->job) || since < sched_slice_us(r, j->job));
}

struct ending {
    int64_t at_us;
    const struct rjob *job;
};

static int by_end(const void *a, const void *b)
{
    const struct ending *x = a, *y = b;

    if (x->at_us != y->at_us)
        return x->at_us < y->at_us ? -1 : 1;
    return (x->job->job->id > y->job->job->id) - (x->job->job->id < y->job->job->id);
}

struct shadow { /* EASY: of the first job that does not fit */
    const struct rjob *head;
    int type;      /* the one it will get first */
    int64_t at_us; /* when */
    int32_t extra; /* devices of it free then beyond its need */
};

/* When and where the head of the queue will fit, from the known ends of what runs. */
static int find_shadow(const struct round *r, const struct rjob *head, struct shadow *ret)
{
    struct ending *ends = calloc(r->n_jobs + 1, sizeof(*ends));
    int32_t free_then[RATES_TYPES_MAX];
    size_t n = 0;

    if (!ends)
        return -ENOMEM;
    *ret = (struct shadow){.head = head, .type = -1, .at_us = INT64_MAX};
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        free_then[t] = r->total[t] - r->used[t];
    for (size_t i = 0; i < r->n_jobs; i++) {
        const struct rjob *j = &r->jobs[i];

        if (j->chosen != NONE)
            ends[n++] = (struct ending){.job = j,
                                        .at_us = r->in->config.now_us +
                                                 sched_left_us(j->job, cand_of(r, j, j->chosen)->shape.rate_ups)};
    }
    qsort(ends, n, sizeof(*ends), by_end);
    for (size_t i = 0; i < n && ret->type < 0; i++) {
        const struct sched_shape *s = &cand_of(r, ends[i].job, ends[i].job->chosen)->shape;

        for (int k = 0; k < 2; k++)
            if (s->type[k] >= 0)
                free_then[s->type[k]] += s->n[k];
        for (int c = 0; c < head->n && ret->type < 0; c++) {
            const struct sched_shape *want = &cand_of(r, head, c)->shape;

            if (want->type[1] < 0 && want->n[0] <= free_then[want->type[0]]) {
                ret->type = want->type[0];
                ret->at_us = ends[i].at_us;
                ret->extra = free_then[want->type[0]] - want->n[0];
            }
        }
    }
    free(ends);
    return 0;
}

/* Backfill: the fastest candidate that fits and does not delay the head. */
static int fit_behind(const struct round *r, const struct rjob *j, struct shadow *shadow)
{
    int best = NONE;

    for (int c = 0; c < j->n; c++) {
        const struct sched_shape *s = &cand_of(r, j, c)->shape;
        bool ends = r->in->config.now_us + sched_left_us(j->job, s->rate_ups) <= shadow->at_us;

        if (s->type[1] >= 0 || !choice_fits(r, j, c))
            continue;
        if (s->type[0] == shadow->type && !ends && s->n[0] > shadow->extra)
            continue;
        if (best == NONE || s->rate_ups > cand_of(r, j, best)->shape.rate_ups)
            best = c;
    }
    if (best != NONE) {
        const struct sched_shape *s = &cand_of(r, j, best)->shape;

        if (s->type[0] == shadow->type && r->in->config.now_us + sched_left_us(j->job, s->rate_ups) > shadow->at_us)
            shadow->extra -= s->n[0];
    }
    return best;
}

/* FIFO and backfill: what runs goes on. */
static int queue(struct round *r, const struct turn *turns)
{
    struct shadow shadow = {.head = NULL};

    for (size_t i = 0; i < r->n_jobs; i++)
        if (r->jobs[i].current != NONE)
            choice_set(r, &r->jobs[i], r->jobs[i].current);
    for (size_t i = 0; i < r->n_jobs; i++) {
        struct rjob *j = &r->jobs[turns[i].job];
        int c;

        if (j->chosen != NONE || j->n == 0)
            continue;
        if (shadow.head) {
            j->reason = SCHED_BEHIND;
            j->behind = shadow.head->job->id;
        }
        if (shadow.head && r->in->config.policy == SCHED_POLICY_FIFO)
            continue;
        c = shadow.head ? fit_behind(r, j, &shadow) : best_fit(r, j);
        if (c != NONE)
            choice_set(r, j, c);
        else if (!shadow.head && find_shadow(r, j, &shadow) < 0)
            return -ENOMEM;
    }
    return 0;
}

int policy_choose(struct round *r)
{
    struct turn *turns = calloc(r->n_jobs + 1, sizeof(*turns));
    bool preempts = r->in->config.policy != SCHED_POLICY_FIFO && r->in->config.policy != SCHED_POLICY_BACKFILL;
    int status = 0;

    if (!turns)
        return -ENOMEM;
    for (size_t i = 0; i < r->n_jobs; i++)
        turns[i] = turn_of(r, i);
    qsort(turns, r->n_jobs, sizeof(*turns), by_turn);
    if (!preempts) {
        status = queue(r, turns);
    } else {
        for (size_t i = 0; i < r->n_jobs; i++)
            if (r->jobs[i].current != NONE && (r->in->config.mode == SCHED_FAST || is_held(r, &r->jobs[i])))
                choice_set(r, &r->jobs[i], r->jobs[i].current);
        for (size_t i = 0; i < r->n_jobs; i++) {
            struct rjob *j = &r->jobs[turns[i].job];
            int c = j->chosen == NONE ? best_fit(r, j) : NONE;

            if (c != NONE)
                choice_set(r, j, c);
        }
    }
    free(turns);
    return status;
}
