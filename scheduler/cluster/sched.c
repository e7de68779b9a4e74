#include "scheduler/cluster/sched.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "scheduler/cluster/closing_priv.h"
#include "scheduler/cluster/sched_priv.h"
#include "scheduler/cluster/tenants_priv.h"

/* --- the snapshot ---------------------------------------------------------------------------------------- */

#define LOOKS_COLD 1500000 /* some 100 ms */

static int check_job(const struct sched_input *in, const struct sched_job *j, int32_t *held, struct merr *err)
{
    unsigned long long id = (unsigned long long)j->id;

    if (j->id == 0 || j->tenant >= in->n_tenants || j->min < 1 || j->max < j->min || j->max > RATES_COUNT_MAX)
        return merr_set(err, -EINVAL, "job %llu: want an id, a tenant that is there and 1 <= min <= max", id);
    if (!j->profile || j->weight_milli < 1 || j->restart_us < 0 || j->workers < 0 || j->submit_us > in->config.now_us)
        return merr_set(err, -EINVAL, "job %llu: want a profile, a weight and times that are not ahead", id);
    for (size_t i = 0; i < j->n_avoid; i++)
        if (j->avoid[i] >= in->n_nodes || j->n_barred > j->n_avoid)
            return merr_set(err, -EINVAL, "job %llu: it avoids a node that is not there", id);
    for (size_t p = 0; p < j->n_places; p++) {
        if (j->places[p].node >= in->n_nodes || j->places[p].devices < 1 ||
            (p > 0 && j->places[p].node <= j->places[p - 1].node))
            return merr_set(err, -EINVAL, "job %llu: its places must name nodes in their order", id);
        held[j->places[p].node] += j->places[p].devices;
    }
    return 0;
}

/* Whether the tenants that this one is within are there and come to an end. */
static bool tenants_end(const struct sched_input *in, size_t tenant)
{
    size_t up = in->tenants[tenant].within, depth = 0;

    while (up > 0 && up <= in->n_tenants && depth++ < SCHED_WITHIN_MAX)
        up = in->tenants[up - 1].within;
    return up == 0;
}

static int check(const struct sched_input *in, struct merr *err)
{
    int32_t *held;
    int r = 0;

    if (in->n_nodes > SCHED_NODES_MAX || in->n_jobs > SCHED_JOBS_MAX || in->n_tenants < 1 ||
        in->n_tenants > SCHED_TENANTS_MAX)
        return merr_set(err, -EINVAL, "want at most %d nodes, %d jobs and 1 to %d tenants", SCHED_NODES_MAX,
                        SCHED_JOBS_MAX, SCHED_TENANTS_MAX);
    for (size_t t = 0; t < in->n_tenants; t++)
        if (!tenants_end(in, t))
            return merr_set(err, -EINVAL, "tenant %zu: want it within at most %d others that are there", t,
                            SCHED_WITHIN_MAX);
    for (size_t i = 0; i < in->n_nodes; i++)
        if (in->nodes[i].type >= RATES_TYPES_MAX || in->nodes[i].devices < 0 ||
            in->nodes[i].devices > SCHED_NODE_DEVICES_MAX || in->nodes[i].leaf >= SCHED_NODES_MAX ||
            in->nodes[i].slow_milli < 0 || in->nodes[i].slow_milli > SCHED_SLOW_MAX)
            return merr_set(err, -EINVAL, "node %zu: want type below %d, 0 to %d devices, leaf below %d, slow to %d", i,
                            RATES_TYPES_MAX, SCHED_NODE_DEVICES_MAX, SCHED_NODES_MAX, SCHED_SLOW_MAX);
    held = calloc(in->n_nodes + 1, sizeof(*held));
    if (!held)
        return merr_set(err, -ENOMEM, "no memory to check %zu nodes", in->n_nodes);
    for (size_t i = 0; i < in->n_jobs && r == 0; i++)
        r = check_job(in, &in->jobs[i], held, err);
    for (size_t i = 0; i < in->n_nodes && r == 0; i++)
        if (in->nodes[i].devices > 0 && held[i] > in->nodes[i].devices)
            r = merr_set(err, -EINVAL, "node %zu: its jobs hold %d devices of %d", i, held[i], in->nodes[i].devices);
    free(held);
    return r;
}

static int by_number(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Whether each id is there once. 0, -EINVAL with words, or -ENOMEM. */
static int check_ids(const struct sched_input *in, struct merr *err)
{
    uint64_t *ids, twice = 0;
    bool sorted = true;

    for (size_t i = 1; i < in->n_jobs && sorted; i++)
        sorted = in->jobs[i].id > in->jobs[i - 1].id;
    if (sorted)
        return 0;
    ids = calloc(in->n_jobs, sizeof(*ids));
    if (!ids)
        return -ENOMEM;
    for (size_t i = 0; i < in->n_jobs; i++)
        ids[i] = in->jobs[i].id;
    qsort(ids, in->n_jobs, sizeof(*ids), by_number);
    for (size_t i = 1; i < in->n_jobs; i++)
        twice = ids[i] == ids[i - 1] ? ids[i] : twice;
    free(ids);
    return twice ? merr_set(err, -EINVAL, "two jobs have the id %llu", (unsigned long long)twice) : 0;
}

/* Only where a job asks for one leaf. 0 or -ENOMEM. */
static int count_leaves(struct round *r)
{
    int32_t *room;
    size_t i = 0;

    while (i < r->n_jobs && !r->jobs[i].job->within)
        i++;
    if (i == r->n_jobs)
        return 0;
    for (i = 0; i < r->in->n_nodes; i++)
        r->n_leaves = r->in->nodes[i].leaf >= r->n_leaves ? r->in->nodes[i].leaf + (size_t)1 : r->n_leaves;
    room = calloc((r->n_leaves + 1) * RATES_TYPES_MAX, sizeof(*room));
    r->leaf_most = calloc(RATES_TYPES_MAX, sizeof(*r->leaf_most));
    if (!room || !r->leaf_most) {
        free(room);
        return -ENOMEM;
    }
    for (i = 0; i < r->in->n_nodes; i++) {
        const struct sched_node *n = &r->in->nodes[i];
        int32_t *at = &room[n->leaf * RATES_TYPES_MAX + n->type];

        *at += n->devices;
        r->leaf_most[n->type] = *at > r->leaf_most[n->type] ? *at : r->leaf_most[n->type];
    }
    free(room);
    return 0;
}

int sched_round_init(struct round *r, const struct sched_input *in)
{
    *r = (struct round){.in = in, .n_jobs = in->n_jobs, .looks = LOOKS_COLD};
    /* What is written before it is read is not zeroed; one block is less for the allocator to take and give back. */
    r->jobs = malloc((in->n_jobs + 1) * (sizeof(*r->jobs) + sizeof(*r->by_age)));
    r->order = malloc((in->n_jobs + 1) * sizeof(*r->order));
    r->node_free = calloc(in->n_nodes + 1, sizeof(*r->node_free));
    r->tenant_used = calloc(in->n_tenants, sizeof(*r->tenant_used));
    r->tenant_prices = calloc(in->n_tenants, sizeof(*r->tenant_prices));
    r->tenant_cap = calloc(in->n_tenants, sizeof(*r->tenant_cap));
    r->tenant_type_used = calloc(in->n_tenants * RATES_TYPES_MAX, sizeof(*r->tenant_type_used));
    r->memo = in->cache ? NULL : calloc(ROUND_MEMO, sizeof(*r->memo));
    r->masks[r->n_masks++] = UINT32_MAX;
    if ((!in->cache && !r->memo) || !r->jobs || !r->order || !r->node_free || !r->tenant_used || !r->tenant_cap ||
        !r->tenant_prices || !r->tenant_type_used)
        return -ENOMEM;
    r->by_age = (struct sched_job *)(r->jobs + in->n_jobs + 1);
    for (size_t i = 0; i < in->n_nodes; i++) {
        const struct sched_node *node = &in->nodes[i];

        r->node_free[i] = node->devices;
        r->total[node->type] += node->devices;
        if (node->devices > r->node_size[node->type])
            r->node_size[node->type] = node->devices;
    }
    tenants_init(r);
    memcpy(r->prices, in->prices, sizeof(r->prices));
    TRY(age_sort(r));
    TRY(count_leaves(r));
    return closing_init(r);
}

void sched_round_clear(struct round *r)
{
    free(r->jobs);
    free(r->order);
    free(r->node_free);
    free(r->kept);
    free(r->closing);
    free(r->tenant_used);
    free(r->tenant_prices);
    free(r->tenant_cap);
    free(r->tenant_type_used);
    free(r->memo);
    free(r->cands);
    free(r->places);
    free(r->leaf_most);
}

/* --- the plan -------------------------------------------------------------------------------------------- */

static enum sched_action action_of(const struct round *r, const struct rjob *j)
{
    int32_t had = 0, has = j->chosen == NONE ? 0 : shape_size(&cand_of(r, j, j->chosen)->shape);

    for (size_t i = 0; i < j->job->n_places; i++)
        had += j->job->places[i].devices;
    if (has == 0)
        return had ? SCHED_STOP : SCHED_WAIT;
    if (had == 0)
        return SCHED_START;
    if (has != had)
        return has < had ? SCHED_SHRINK : SCHED_GROW;
    return j->kept ? SCHED_KEEP : SCHED_MOVE;
}

static enum sched_reason reason_of(const struct round *r, const struct rjob *j)
{
    const struct sched_job *job = j->job;
    int64_t total = 0;

    if (j->chosen != NONE)
        return j->relieved ? SCHED_SLOW : SCHED_RUNS;
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        total += sched_job_types(job) >> t & 1 ? r->total[t] : 0;
    if (job->n_places == 0 && total >= job->min && (closing_blames(r, j) || (j->n == 0 && !j->crowded && j->reach > 0)))
        return SCHED_CLOSING;
    if ((j->n == 0 && !j->crowded) || total < job->min)
        return SCHED_TOO_BIG;
    if (job->n_places > 0)
        return SCHED_RECLAIMED;
    if (j->reason != SCHED_RUNS)
        return j->reason;
    return job->min > tenants_room(r, job)         ? SCHED_LIMIT
           : tenants_lacks_power(r, job, j->least) ? SCHED_POWER
                                                   : SCHED_BUSY;
}

static void divide_workers(const struct sched_job *job, struct sched_verdict *v)
{
    size_t n = v->shape.type[1] >= 0 ? 2 : 1;

    for (size_t k = 0; k < n; k++) {
        int64_t one = rates_at(job->profile, v->shape.type[k], 1, NULL);
        double ns = one > 0 ? 1e15 / ((double)one * job->workers) : 1;
        int64_t whole = ns < 1 ? 1 : ns > 1e15 ? (int64_t)1e15 : (int64_t)(ns + 0.5);

        v->est[k] = (struct rates_est){.devices = v->shape.n[k], .worker_ns = whole};
    }
    (void)rates_map_workers(v->est, n, job->workers);
}

static struct sched_verdict verdict_of(struct round *r, const struct rjob *j)
{
    struct sched_verdict v = {.action = action_of(r, j), .reason = reason_of(r, j), .shape = {.type = {-1, -1}}};

    if (v.reason == SCHED_BEHIND)
        v.behind = j->behind;
    if (j->chosen == NONE) {
        v.kept = j->kept_n;
        v.starts_us = j->starts_us;
    }
    if (j->chosen != NONE) {
        v.shape = cand_of(r, j, j->chosen)->shape;
        v.first = j->place_first;
        v.n = j->place_n;
        if (j->job->workers > 0 && j->job->replica <= 1)
            divide_workers(j->job, &v);
    }
    if (v.action == SCHED_STOP || v.action == SCHED_SHRINK || v.action == SCHED_MOVE)
        v.deadline_us = r->in->config.now_us + r->in->config.grace_us;
    return v;
}

static int make_plan(struct round *r, struct sched_plan *p)
{
    size_t n = 0; /* that change */

    for (int t = 0; t < RATES_TYPES_MAX; t++)
        r->total[t] += r->in->config.mode == SCHED_FAST ? r->kept_devices[t] : 0;
    r->value = 0; /* of what could be placed, not of what was wished */
    for (size_t i = 0; i < r->n_jobs && r->dual > 0; i++)
        r->value += r->jobs[i].chosen == NONE ? 0 : cand_of(r, &r->jobs[i], r->jobs[i].chosen)->utility;
    if (r->dual > 0 && r->dual < r->value)
        r->dual = r->value; /* they meet, but for rounding */
    *p = (struct sched_plan){.n_verdicts = r->n_jobs, .places = r->places, .n_places = r->n_places};
    p->verdicts = malloc((r->n_jobs + 1) * sizeof(*p->verdicts));
    p->order = malloc((r->n_jobs + 1) * sizeof(*p->order));
    if (!p->verdicts || !p->order) {
        free(p->verdicts);
        free(p->order);
        return -ENOMEM;
    }
    r->places = NULL;
    for (size_t i = 0; i < r->n_jobs; i++) {
        struct sched_verdict v = verdict_of(r, &r->jobs[i]);

        p->verdicts[r->jobs[i].index] = v;
        if (v.action != SCHED_KEEP && v.action != SCHED_WAIT)
            r->order[n++] = r->jobs[i].index;
    }
    for (int action = SCHED_STOP; action <= SCHED_START; action++)
        for (size_t i = 0; i < n; i++)
            if ((int)p->verdicts[r->order[i]].action == action)
                p->order[p->n_order++] = r->order[i];
    memcpy(p->prices, r->prices, sizeof(p->prices));
    p->value_u = (int64_t)(r->value * 1e6);
    p->dual_u = (int64_t)(r->dual * 1e6);
    p->gap_ppm = p->dual_u > p->value_u ? (int64_t)((r->dual - r->value) / r->dual * 1e6) : 0;
    return 0;
}

static int choose(struct round *r)
{
    const struct sched_config *cfg = &r->in->config;
    int status;

    if (policy_solves(r) && cfg->mode == SCHED_FULL) {
        status = cfg->policy == SCHED_POLICY_MUSTER ? reserve_at_full(r) : 0;
        status = status < 0 ? status : attempts_choose(r);
        status = status < 0 ? status : relieve_all(r);
        if (status == 0 && cfg->policy == SCHED_POLICY_MUSTER)
            reserve_end(r);
        return status;
    }
    status = policy_solves(r) ? fill_choose(r) : policy_choose(r);
    return status < 0 ? status : place_all(r);
}

static int decide(struct round *r, const struct sched_input *in, struct sched_plan *ret, struct merr *err)
{
    TRY(sched_round_init(r, in));
    TRY(check_ids(in, err));
    TRY(candidates_fill(r));
    TRY(choose(r));
    return make_plan(r, ret);
}

int sched_schedule(const struct sched_input *in, struct sched_plan *ret, struct merr *err)
{
    struct sched_plan plan;
    struct round r;
    int status;

    TRY(check(in, err));
    status = decide(&r, in, &plan, err);
    sched_round_clear(&r);
    if (status == -ENOMEM)
        return merr_set(err, -ENOMEM, "no memory for a round of %zu jobs", in->n_jobs);
    if (status < 0)
        return status;
    *ret = plan;
    return 0;
}

void sched_plan_clear(struct sched_plan *plan)
{
    free(plan->verdicts);
    free(plan->places);
    free(plan->order);
    *plan = (struct sched_plan){0};
}

struct named {
    uint64_t id;
    size_t index;
};

static int by_name(const void *a, const void *b)
{
    const struct named *x = a, *y = b;

    return (x->id > y->id) - (x->id < y->id);
}

int sched_plan_print(const struct sched_input *in, const struct sched_plan *plan, struct buf *out)
{
    struct named *jobs = calloc(in->n_jobs + 1, sizeof(*jobs));

    if (!jobs)
        return -ENOMEM;
    for (size_t i = 0; i < in->n_jobs; i++)
        jobs[i] = (struct named){.id = in->jobs[i].id, .index = i};
    qsort(jobs, in->n_jobs, sizeof(*jobs), by_name);
    (void)buf_printf(out, "value %" PRId64 " dual %" PRId64 "\n", plan->value_u, plan->dual_u);
    for (size_t i = 0; i < in->n_jobs; i++) {
        const struct sched_verdict *v = &plan->verdicts[jobs[i].index];

        (void)buf_printf(out, "job %" PRIu64 " %s %s %d:%d %d:%d rate %" PRId64 " est %d-%d %d-%d at", jobs[i].id,
                         sched_action_name(v->action), sched_reason_name(v->reason), v->shape.type[0], v->shape.n[0],
                         v->shape.type[1], v->shape.n[1], v->shape.rate_ups, v->est[0].each, v->est[0].fewer,
                         v->est[1].each, v->est[1].fewer);
        for (size_t p = 0; p < v->n; p++)
            (void)buf_printf(out, " %u:%d", plan->places[v->first + p].node, plan->places[v->first + p].devices);
        (void)buf_printf(out, "\n");
    }
    for (size_t i = 0; i < plan->n_order; i++)
        (void)buf_printf(out, "then %" PRIu64 "\n", in->jobs[plan->order[i]].id);
    free(jobs);
    return buf_failed(out) ? -EMSGSIZE : 0;
}
