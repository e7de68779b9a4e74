#include "scheduler/sim/sim.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "base/try.h"
#include "scheduler/cluster/view.h"
#include "scheduler/sim/sim_priv.h"

#define NEVER INT64_MAX
#define DURATIONS_MAX 2000000
#define NOISE 0.05 /* measured rates are off by so much at most */

struct live { /* a job that has arrived and is not done; index like engine.jobs */
    size_t job;
    struct sched_place *places; /* NULL: it waits */
    size_t n_places;
    int32_t devices, by_type[RATES_TYPES_MAX];
    int64_t rate_ups;
    int64_t left_u;     /* micro-steps to go at `since_us` */
    int64_t since_us;   /* when it began to progress, or was last looked at */
    int64_t run_us;     /* when it began on these devices: periodic checkpoints count from there */
    int64_t done_run_u; /* progress on these devices, micro-steps */
    int64_t end_us;
    int64_t changed_us, waiting_us, attained_us;
    int32_t restarts;
    int8_t home;
    bool shown;   /* its rate on these devices was seen */
    double load0; /* integral of the number of live jobs when it came */
};

struct engine {
    const struct sim_setup *s;
    const struct sim_trace *trace;
    struct live *live; /* n of them, in order of arrival */
    size_t n;
    size_t next; /* job of the trace to arrive */
    int64_t now_us;
    struct sched_node *nodes; /* as they are now */
    int64_t *node_event_us;   /* when it fails or comes back, NEVER */
    uint32_t *node_draws;
    int32_t total[RATES_TYPES_MAX], by_type[RATES_TYPES_MAX];
    int32_t capacity, used;
    double load; /* integral over time of the number of live jobs, seconds */
    double prices[RATES_TYPES_MAX];
    struct sched_cache *cache;
    struct told told;
    struct sched_job *view; /* what the scheduler sees: cap of them */
    size_t view_cap;
    struct durations fast, full;
    int64_t sample_gap_us;
    struct sim_result out;
};

static int64_t steps_in(int64_t rate_ups, int64_t span_us)
{
    return (int64_t)((__int128)rate_ups * span_us / 1000000);
}

static int64_t time_for(int64_t left_u, int64_t rate_ups)
{
    __int128 us = ((__int128)left_u * 1000000 + rate_ups - 1) / rate_ups;

    return us > SIM_TIME_MAX_US * 4 ? SIM_TIME_MAX_US * 4 : (int64_t)us;
}

/* --- start ------------------------------------------------------------------------------------------------- */

static int64_t draw_us(const struct engine *e, size_t node, int64_t mean_us)
{
    uint32_t key[2], ctr[4] = {e->node_draws[node], 0, 0, 0}, out[4];
    double u, us;

    philox_key(e->s->seed, 0x6e6f6465, (uint32_t)node, 0, key);
    philox4x32(ctr, key, out);
    e->node_draws[node]++;
    u = ((double)out[0] + 0.5) * 0x1p-32;
    us = -log(u) * (double)mean_us;
    return us < 1 ? 1 : us > (double)SIM_TIME_MAX_US ? SIM_TIME_MAX_US : (int64_t)us;
}

static int check_job(const struct engine *e, const struct sim_job *j, struct merr *err)
{
    const struct sched_tenant *t = &e->s->tenants[j->tenant];
    int64_t most = 0;

    for (size_t k = 0; k < e->s->n_types; k++)
        if ((j->types >> k & 1) && e->s->profiles[j->profile].n[k] > 0 && e->total[k] > most)
            most = e->total[k];
    if (most < j->min)
        return merr_set(err, -EINVAL,
                        "job '%s' can never run: it wants %d devices of one class that its kind runs on, "
                        "the cluster has %lld",
                        j->name, j->min, (long long)most);
    if (t->borrow >= 0 && (int64_t)t->quota + t->borrow < j->min)
        return merr_set(err, -EINVAL, "job '%s' can never run: it wants %d devices, its tenant may hold %lld", j->name,
                        j->min, (long long)t->quota + t->borrow);
    return 0;
}

static void engine_clear(struct engine *e)
{
    for (size_t i = 0; i < e->n; i++)
        free(e->live[i].places);
    free(e->live);
    free(e->nodes);
    free(e->node_event_us);
    free(e->node_draws);
    free(e->view);
    sched_cache_free(e->cache);
    told_clear(&e->told);
    free(e->fast.v);
    free(e->full.v);
    sim_result_clear(&e->out);
}

static int engine_init(struct engine *e, const struct sim_setup *s, const struct sim_trace *t, struct merr *err)
{
    int r = 0;

    *e = (struct engine){.s = s, .trace = t, .sample_gap_us = 1};
    e->live = calloc(t->n + 1, sizeof(*e->live));
    e->nodes = calloc(s->n_nodes + 1, sizeof(*e->nodes));
    e->node_event_us = calloc(s->n_nodes + 1, sizeof(*e->node_event_us));
    e->node_draws = calloc(s->n_nodes + 1, sizeof(*e->node_draws));
    e->view = calloc(t->n + 1, sizeof(*e->view));
    e->cache = sched_cache_new();
    e->out.jobs = calloc(t->n + 1, sizeof(*e->out.jobs));
    e->out.samples = calloc(SIM_SAMPLES_MAX, sizeof(*e->out.samples));
    if (told_init(&e->told, s, t) < 0 || !e->live || !e->nodes || !e->node_event_us || !e->node_draws || !e->view ||
        !e->cache || !e->out.jobs || !e->out.samples)
        return merr_set(err, -ENOMEM, "no memory for %zu jobs", t->n);
    e->out.n_jobs = t->n;
    for (size_t i = 0; i < s->n_nodes; i++) {
        e->nodes[i] = s->nodes[i];
        e->total[s->nodes[i].type] += s->nodes[i].devices;
        e->capacity += s->nodes[i].devices;
        e->node_event_us[i] = s->mtbf_us > 0 ? draw_us(e, i, s->mtbf_us) : NEVER;
    }
    for (size_t i = 0; i < t->n && r == 0; i++)
        r = check_job(e, &t->jobs[i], err);
    return r;
}

/* --- time -------------------------------------------------------------------------------------------------- */

/* Bring a running job's progress up to now. */
static void progress(struct live *l, int64_t now_us)
{
    int64_t done;

    if (!l->places || now_us <= l->since_us)
        return;
    done = steps_in(l->rate_ups, now_us - l->since_us);
    done = done < l->left_u ? done : l->left_u;
    l->left_u -= done;
    l->done_run_u += done;
    l->since_us = now_us;
}

static void advance(struct engine *e, int64_t to_us)
{
    int64_t span = to_us - e->now_us;

    assert(span >= 0);
    for (size_t i = 0; i < e->n; i++)
        e->live[i].attained_us += e->live[i].devices * span;
    e->out.capacity_us += e->capacity * span;
    e->out.used_us += e->used * span;
    e->out.idle_us += (e->capacity - e->used) * span;
    e->load += (double)e->n * (double)span / 1e6;
    e->now_us = to_us;
}

/* Take the job's devices away; the caller says what that costs. */
static void vacate(struct engine *e, struct live *l)
{
    for (int t = 0; t < RATES_TYPES_MAX; t++) {
        e->by_type[t] -= l->by_type[t];
        l->by_type[t] = 0;
    }
    e->used -= l->devices;
    l->devices = 0;
    free(l->places);
    l->places = NULL;
    l->n_places = 0;
    l->rate_ups = 0;
    l->end_us = NEVER;
}

static void complete(struct engine *e, size_t i)
{
    struct live *l = &e->live[i];
    struct sim_outcome *o = &e->out.jobs[l->job];
    const struct sim_job *j = &e->trace->jobs[l->job];
    double took_s = (double)(e->now_us - j->submit_us) / 1e6;

    vacate(e, l);
    o->finish_us = e->now_us;
    o->attained_us = l->attained_us;
    o->restarts = l->restarts;
    o->rho = sim_rho(e->s, e->total, j, took_s, took_s > 0 ? (e->load - l->load0) / took_s : 1);
    memmove(l, l + 1, (e->n - i - 1) * sizeof(*l));
    e->n--;
}

/* What ran on the node loses its devices and what it did since its last periodic checkpoint. */
static void lose_node(struct engine *e, uint32_t node)
{
    for (size_t i = 0; i < e->n; i++) {
        struct live *l = &e->live[i];
        int64_t span, lost;
        bool here = false;

        for (size_t p = 0; p < l->n_places; p++)
            here = here || l->places[p].node == node;
        if (!here)
            continue;
        progress(l, e->now_us);
        span = e->now_us > l->run_us ? (e->now_us - l->run_us) % e->s->checkpoint_us : 0;
        lost = steps_in(l->rate_ups, span);
        lost = lost < l->done_run_u ? lost : l->done_run_u;
        l->left_u += lost;
        e->out.lost_steps_u += lost;
        vacate(e, l);
        l->waiting_us = e->now_us;
    }
}

static bool node_events(struct engine *e)
{
    bool any = false;

    for (size_t i = 0; e->s->mtbf_us > 0 && i < e->s->n_nodes; i++) {
        if (e->node_event_us[i] > e->now_us)
            continue;
        any = true;
        if (e->nodes[i].devices > 0) {
            lose_node(e, (uint32_t)i);
            e->out.failures++;
            e->capacity -= e->nodes[i].devices;
            e->nodes[i].devices = 0;
            e->node_event_us[i] = e->now_us + e->s->repair_us;
        } else {
            e->nodes[i].devices = e->s->nodes[i].devices;
            e->capacity += e->nodes[i].devices;
            e->node_event_us[i] = e->now_us + draw_us(e, i, e->s->mtbf_us);
        }
    }
    return any;
}

static void arrive(struct engine *e)
{
    const struct sim_job *j = &e->trace->jobs[e->next];

    e->live[e->n++] = (struct live){
        .job = e->next++,
        .left_u = j->steps * 1000000,
        .end_us = NEVER,
        .waiting_us = e->now_us,
        .changed_us = e->now_us,
        .home = -1,
        .load0 = e->load,
    };
}

/* --- rounds ------------------------------------------------------------------------------------------------ */

/* Two steps say how fast a run is; its first one also says what the change before it cost. */
static int observe(struct engine *e, struct live *l)
{
    uint32_t kind = e->trace->jobs[l->job].profile, key[2], ctr[4] = {(uint32_t)l->restarts, 0, 0, 0}, out[4];

    if (l->shown || !l->places || l->done_run_u < 2000000)
        return 0;
    l->shown = true;
    TRY(l->restarts > 0 ? told_restart(&e->told, kind, e->s->restart_us) : 0);
    philox_key(e->s->seed, 0x6e6f6973, (uint32_t)l->job, 0, key);
    philox4x32(ctr, key, out);
    return told_run(&e->told, kind, l->by_type, (double)l->rate_ups * (1 + NOISE * ((double)out[0] * 0x1p-31 - 1)));
}

static void show_job(struct engine *e, const struct live *l, const struct view_cluster *cluster, struct sched_job *v)
{
    const struct sim_job *j = &e->trace->jobs[l->job];
    struct view_work work = {.steps_u = j->steps * 1000000,
                             .done_u = j->steps * 1000000 - l->left_u,
                             .restart_s = told_restart_s(&e->told, j->profile)};

    *v = (struct sched_job){
        .id = l->job + 1,
        .tenant = j->tenant,
        .class_ = e->s->tenant_class[j->tenant],
        .submit_us = j->submit_us,
        .min = j->min,
        .max = j->max,
        .workers = j->workers,
        .replica = j->replica,
        .types = j->types,
        .hetero_ok = j->hetero_ok,
        .home = l->home,
        .weight_milli = j->weight_milli,
        .restarts = l->restarts,
        .changed_us = l->changed_us,
        .waiting_us = l->waiting_us,
        .attained_us = l->attained_us,
        .profile = told_profile(&e->told, j->profile, &work.rated),
        .places = l->places,
        .n_places = l->n_places,
    };
    view_fill(v, &work, cluster, e->now_us);
}

/* How fast it truly is on what it was given: as the planner foretells it for as many devices a node, where it has a
 * spec. */
static int64_t true_rate(const struct engine *e, const struct sim_job *j, const struct sched_shape *s,
                         const struct sched_place *places, size_t n)
{
    const struct rates_profile *p = &e->s->profiles[j->profile];
    int spec = sim_spec_of(e->s, j->profile), here = INT32_MAX;
    double idle;
    int64_t rate;

    for (size_t i = 0; i < n; i++)
        here = places[i].devices < here ? places[i].devices : here;
    if (spec >= 0 && s->type[1] < 0) {
        rate = planned_rate(e->s->planned, spec, s->type[0], s->n[0], here);
        return rate > 0 ? rate : 1;
    }
    rate = s->type[1] < 0 ? rates_at(p, s->type[0], s->n[0], NULL)
                          : rates_mixed(p, s->type[0], s->n[0], s->type[1], s->n[1], j->workers, &idle);
    return rate > 0 ? rate : 1;
}

static int settle(struct engine *e, struct live *l, const struct sched_plan *plan, const struct sched_verdict *v)
{
    struct sched_place *places = NULL;
    struct sim_outcome *o = &e->out.jobs[l->job];
    bool first = l->home < 0;
    int32_t devices = 0;

    if (v->action == SCHED_KEEP || v->action == SCHED_WAIT)
        return 0;
    if (v->n > 0) {
        places = calloc(v->n, sizeof(*places));
        if (!places)
            return -ENOMEM;
        memcpy(places, &plan->places[v->first], v->n * sizeof(*places));
    }
    vacate(e, l);
    l->changed_us = e->now_us;
    if (v->n == 0) {
        l->waiting_us = e->now_us;
        return 0;
    }
    l->places = places;
    l->n_places = v->n;
    for (size_t i = 0; i < v->n; i++) {
        devices += places[i].devices;
        l->by_type[e->nodes[places[i].node].type] += places[i].devices;
    }
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        e->by_type[t] += l->by_type[t];
    l->devices = devices;
    e->used += devices;
    l->rate_ups = true_rate(e, &e->trace->jobs[l->job], &v->shape, places, v->n);
    l->home = v->shape.type[0];
    l->since_us = l->run_us = e->now_us + (first ? 0 : e->s->restart_us);
    l->done_run_u = 0;
    l->shown = false;
    l->restarts += !first;
    l->end_us = l->since_us + time_for(l->left_u, l->rate_ups);
    if (first)
        o->start_us = e->now_us;
    return 0;
}

static void note_time(struct durations *d, int64_t us)
{
    if (d->n == d->cap) {
        size_t cap = d->cap ? 2 * d->cap : 1024;
        int32_t *v = cap <= DURATIONS_MAX ? realloc(d->v, cap * sizeof(*v)) : NULL;

        if (!v)
            return; /* more are not counted: the first two millions say enough */
        d->v = v;
        d->cap = cap;
    }
    d->v[d->n++] = us > INT32_MAX ? INT32_MAX : (int32_t)us;
}

static void sample(struct engine *e)
{
    struct sim_result *o = &e->out;
    struct sim_sample s = {.at_us = e->now_us, .capacity = e->capacity, .used = e->used};

    for (size_t i = 0; i < e->n; i++) {
        s.running += e->live[i].places != NULL;
        s.waiting += e->live[i].places == NULL;
    }
    memcpy(s.by_type, e->by_type, sizeof(s.by_type));
    if (o->n_samples > 0 && e->now_us - o->samples[o->n_samples - 1].at_us < e->sample_gap_us) {
        s.at_us = o->samples[o->n_samples - 1].at_us;
        o->samples[o->n_samples - 1] = s;
        return;
    }
    if (o->n_samples == SIM_SAMPLES_MAX) {
        for (size_t i = 0; i < SIM_SAMPLES_MAX / 2; i++)
            o->samples[i] = o->samples[2 * i];
        o->n_samples = SIM_SAMPLES_MAX / 2;
        e->sample_gap_us = 2 * (e->now_us / SIM_SAMPLES_MAX + 1);
    }
    o->samples[o->n_samples++] = s;
}

static int run_round(struct engine *e, enum sched_mode mode, struct merr *err)
{
    struct sched_input in = {
        .config = {.policy = e->s->policy,
                   .objective = e->s->objective,
                   .mode = mode,
                   .now_us = e->now_us,
                   .round_us = e->s->round_us,
                   .starve_us = e->s->starve_us,
                   .grace_us = e->s->grace_us,
                   .las_us = e->s->las_us,
                   .hold_us = SIM_HOLD_US},
        .nodes = e->nodes,
        .n_nodes = e->s->n_nodes,
        .tenants = e->s->tenants,
        .n_tenants = e->s->n_tenants,
        .jobs = e->view,
        .n_jobs = e->n,
        .cache = e->cache,
    };
    struct view_cluster cluster = view_cluster_of(e->nodes, e->s->n_nodes, e->n);
    struct sched_plan plan;
    int64_t began = e->s->clock_us ? e->s->clock_us() : 0;
    int r;

    for (size_t i = 0; i < e->n; i++) {
        progress(&e->live[i], e->now_us);
        TRY(observe(e, &e->live[i]));
    }
    if (told_refresh(&e->told)) { /* a cache holds what profiles said */
        sched_cache_free(e->cache);
        e->cache = in.cache = sched_cache_new();
        if (!e->cache)
            return -ENOMEM;
    }
    for (size_t i = 0; i < e->n; i++)
        show_job(e, &e->live[i], &cluster, &e->view[i]);
    memcpy(in.prices, e->prices, sizeof(in.prices));
    r = sched_schedule(&in, &plan, err);
    if (r < 0)
        return r;
    note_time(mode == SCHED_FAST ? &e->fast : &e->full, e->s->clock_us ? e->s->clock_us() - began : 0);
    memcpy(e->prices, plan.prices, sizeof(e->prices));
    if (plan.gap_ppm > e->out.gap_worst_ppm)
        e->out.gap_worst_ppm = plan.gap_ppm;
    for (size_t i = 0; i < plan.n_order && r == 0; i++)
        r = settle(e, &e->live[plan.order[i]], &plan, &plan.verdicts[plan.order[i]]);
    sched_plan_clear(&plan);
    assert(e->used <= e->capacity);
    return r;
}

/* --- the loop ---------------------------------------------------------------------------------------------- */

static int64_t next_event(const struct engine *e)
{
    int64_t at = NEVER, tick;

    for (size_t i = 0; i < e->n; i++)
        at = e->live[i].end_us < at ? e->live[i].end_us : at;
    for (size_t i = 0; e->s->mtbf_us > 0 && i < e->s->n_nodes; i++)
        at = e->node_event_us[i] < at ? e->node_event_us[i] : at;
    if (e->next < e->trace->n && e->trace->jobs[e->next].submit_us < at)
        at = e->trace->jobs[e->next].submit_us;
    if (e->n > 0) { /* ticks lie at multiples of the round */
        tick = (e->now_us / e->s->round_us + 1) * e->s->round_us;
        at = tick < at ? tick : at;
    }
    return at;
}

static int turn(struct engine *e, struct merr *err)
{
    bool any = false, tick = e->now_us % e->s->round_us == 0;
    int r;

    for (size_t i = 0; i < e->n;) {
        if (e->live[i].end_us <= e->now_us) {
            progress(&e->live[i], e->now_us);
            TRY(observe(e, &e->live[i]));
            complete(e, i);
            any = true;
        } else {
            i++;
        }
    }
    any = node_events(e) || any;
    while (e->next < e->trace->n && e->trace->jobs[e->next].submit_us <= e->now_us) {
        arrive(e);
        any = true;
    }
    if (e->n > 0 && (any || tick)) {
        r = run_round(e, tick ? SCHED_FULL : SCHED_FAST, err);
        if (r < 0)
            return r;
    }
    sample(e);
    return 0;
}

int sim_run(const struct sim_setup *setup, const struct sim_trace *trace, struct sim_result *ret, struct merr *err)
{
    int64_t last = trace->n > 0 ? trace->jobs[trace->n - 1].submit_us : 0;
    struct engine e;
    int r = engine_init(&e, setup, trace, err);

    assert(setup->round_us >= 1 && setup->checkpoint_us >= 1 && setup->repair_us >= 1);
    while (r == 0 && (e.next < trace->n || e.n > 0)) {
        int64_t at = next_event(&e);

        if (at == NEVER || at > last + SIM_TIME_MAX_US) {
            r = merr_set(err, -ETIMEDOUT, "job '%s' is not done ten years after the last arrival",
                         trace->jobs[e.n > 0 ? e.live[0].job : e.next].name);
            break;
        }
        advance(&e, at);
        r = turn(&e, err);
    }
    if (r == 0) {
        sim_summarise_times(&e.fast, &e.out.fast);
        sim_summarise_times(&e.full, &e.out.full);
        r = sim_summarise(trace, &e.out);
    }
    if (r == 0) {
        *ret = e.out;
        e.out = (struct sim_result){.n_jobs = 0};
    }
    engine_clear(&e);
    return r == -ENOMEM ? merr_set(err, -ENOMEM, "no memory for %zu jobs", trace->n) : r;
}

void sim_result_clear(struct sim_result *r)
{
    free(r->jobs);
    free(r->samples);
    *r = (struct sim_result){.n_jobs = 0};
}
