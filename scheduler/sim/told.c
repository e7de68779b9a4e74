/* What the scheduler is told of the jobs of a trace. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/cluster/learned.h"
#include "scheduler/sim/sim_priv.h"

/* A job with a spec is a training job, whose replicas wait for each other. */
static struct learned_kind *kind_of(struct told *t, uint32_t kind)
{
    int spec = sim_spec_of(t->s, kind);

    if (spec >= 0)
        return learned_kind(t->learned, kind + 1, false, planned_workers(t->s->planned, spec),
                            planned_replica(t->s->planned, spec));
    return learned_kind(t->learned, kind + 1, true, t->workers[kind] > 0 ? t->workers[kind] : 1, 1);
}

/* The server plans a job that waits for the class with most devices. False: the kind has no spec. */
static bool predict(const struct told *t, uint32_t kind, struct profile_speed *ret)
{
    const struct rates_profile *p = &t->s->profiles[kind];
    int best = -1;

    for (size_t k = 0; sim_spec_of(t->s, kind) >= 0 && k < t->s->n_types; k++)
        if (p->n[k] > 0 && (best < 0 || t->most[k] > t->most[best]))
            best = (int)k;
    if (best < 0)
        return false;
    *ret = (struct profile_speed){.class_ = (uint8_t)best,
                                  .devices = p->points[best][p->n[best] - 1].count,
                                  .steps_per_s = (double)p->points[best][p->n[best] - 1].rate_ups / 1e6};
    return true;
}

int told_init(struct told *t, const struct sim_setup *s, const struct sim_trace *trace)
{
    double sum = 0, n = 0;

    *t = (struct told){.s = s};
    if (!s->as_server)
        return 0;
    t->learned = learned_new();
    t->profiles = calloc(s->n_profiles + 1, sizeof(*t->profiles));
    t->rated = calloc(s->n_profiles + 1, sizeof(*t->rated));
    t->workers = calloc(s->n_profiles + 1, sizeof(*t->workers));
    if (!t->learned || !t->profiles || !t->rated || !t->workers)
        return -ENOMEM;
    for (size_t i = 0; i < trace->n; i++) {
        const struct sim_job *j = &trace->jobs[i];

        t->workers[j->profile] = j->max > t->workers[j->profile] ? j->max : t->workers[j->profile];
    }
    for (size_t i = 0; i < s->n_nodes; i++)
        t->most[s->nodes[i].type] += s->nodes[i].devices;
    for (size_t k = 0; k < s->n_types; k++) {
        sum += s->class_speed[k];
        n += s->class_speed[k] > 0;
    }
    for (size_t k = 0; k < s->n_types && n > 0; k++) /* beside their mean */
        learned_expect(t->learned, (uint8_t)k, s->class_speed[k] * n / sum);
    for (uint32_t k = 0; k < s->n_profiles; k++)
        if (!kind_of(t, k))
            return -ENOMEM;
    return 0;
}

void told_clear(struct told *t)
{
    learned_free(t->learned);
    free(t->profiles);
    free(t->rated);
    free(t->workers);
}

/* Of a mix each class's single workers are measured, as a job's ranks tell them. */
int told_run(struct told *t, uint32_t kind, const int32_t by_type[RATES_TYPES_MAX], double rate_ups)
{
    struct learned_kind *k = t->learned ? kind_of(t, kind) : NULL;
    int types = 0;

    if (!t->learned)
        return 0;
    if (!k)
        return -ENOMEM;
    for (int i = 0; i < RATES_TYPES_MAX; i++)
        types += by_type[i] > 0;
    for (int i = 0; i < RATES_TYPES_MAX; i++) {
        double ups = types > 1 ? (double)rates_at(&t->s->profiles[kind], i, 1, NULL) : rate_ups;

        if (by_type[i] > 0)
            learned_take_speed(t->learned, k, (uint8_t)i, types > 1 ? 1 : by_type[i], ups / 1e6);
    }
    return 0;
}

int told_restart(struct told *t, uint32_t kind, int64_t restart_us)
{
    struct learned_kind *k = t->learned ? kind_of(t, kind) : NULL;

    if (k)
        learned_take_restart(t->learned, k, (double)restart_us / 1e6);
    return t->learned && !k ? -ENOMEM : 0;
}

bool told_refresh(struct told *t)
{
    struct profile_type types[RATES_TYPES_MAX] = {{0}};

    if (!t->learned || t->version == learned_version(t->learned) + 1)
        return false;
    t->version = learned_version(t->learned) + 1;
    for (size_t i = 0; i < t->s->n_types; i++)
        types[i].class_ = (uint8_t)i;
    for (uint32_t k = 0; k < t->s->n_profiles; k++) {
        const struct learned_kind *kind = learned_find(t->learned, k + 1);
        struct profile_speed plan;

        t->rated[k] = learned_rates(t->learned, kind, types, t->s->n_types, predict(t, k, &plan) ? &plan : NULL, true,
                                    &t->profiles[k]);
        for (size_t i = 0; i < t->s->n_types; i++) /* what a kind does not run on is told at the submit */
            t->profiles[k].n[i] = t->s->profiles[k].n[i] > 0 ? t->profiles[k].n[i] : 0;
    }
    return true;
}

const struct rates_profile *told_profile(const struct told *t, uint32_t kind, bool *ret_rated)
{
    *ret_rated = !t->learned || t->rated[kind];
    return t->learned ? &t->profiles[kind] : &t->s->profiles[kind];
}

double told_restart_s(struct told *t, uint32_t kind)
{
    return t->learned ? learned_restart_s(t->learned, learned_find(t->learned, kind + 1))
                      : (double)t->s->restart_us / 1e6;
}
