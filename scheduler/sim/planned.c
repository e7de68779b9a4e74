#include "scheduler/sim/planned.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

struct answer {
    int type, devices, node_devices;
    int64_t rate_ups;
};

struct asked { /* a spec */
    struct plan_job job;
    struct plan_wish wish;
    int devices; /* at most */
    int replica;
    struct answer *answers;
    size_t n, cap;
};

struct planned {
    struct planned_class classes[2][RATES_TYPES_MAX]; /* by precision: bf16 is the second */
    size_t n_classes;
    struct asked specs[PLANNED_SPECS_MAX];
    int n;
    struct kept *kept;
};

struct planned *planned_new(const struct planned_class *f32, const struct planned_class *bf16, size_t n)
{
    struct planned *p = calloc(1, sizeof(*p));

    assert(n <= RATES_TYPES_MAX);
    if (!p)
        return NULL;
    for (size_t t = 0; t < n; t++) {
        p->classes[0][t] = f32[t];
        p->classes[1][t] = bf16[t];
    }
    p->n_classes = n;
    p->kept = kept_new();
    if (!p->kept) {
        free(p);
        return NULL;
    }
    return p;
}

void planned_free(struct planned *p)
{
    for (int i = 0; p && i < p->n; i++)
        free(p->specs[i].answers);
    if (p)
        kept_free(p->kept);
    free(p);
}

static const struct planned_class *class_of(const struct planned *p, const struct asked *a, int type)
{
    return &p->classes[a->job.bf16][type];
}

static int plan(struct planned *p, const struct asked *a, int type, int devices, int node_devices,
                struct plan_result *ret, struct merr *err)
{
    struct plan_site site = class_of(p, a, type)->site;
    struct plan_job job = a->job;

    site.group[0].n = devices;
    site.groups = 1;
    site.node_devices = node_devices;
    site.kept = p->kept;
    site.net = NULL;
    job.program_bytes = class_of(p, a, type)->program_bytes;
    return plan_search(&job, &a->wish, &site, ret, err);
}

static int most_on(const struct planned *p, const struct asked *a, int type)
{
    int there = class_of(p, a, type)->devices, most = there < a->devices ? there : a->devices;

    return most < PLAN_RANKS_MAX ? most : PLAN_RANKS_MAX;
}

/* Fix the replica by the class with most devices that can run it. */
static int settle(struct planned *p, struct asked *a, struct merr *err)
{
    struct plan_result plans;
    struct merr why = {""};
    bool tried[RATES_TYPES_MAX] = {false}, said = false;

    for (size_t turn = 0; turn < p->n_classes; turn++) {
        int type = -1, r;

        for (size_t t = 0; t < p->n_classes; t++)
            if (!tried[t] && (type < 0 || class_of(p, a, (int)t)->devices > class_of(p, a, type)->devices))
                type = (int)t;
        if (type < 0 || class_of(p, a, type)->devices == 0)
            break;
        tried[type] = true;
        r = plan(p, a, type, most_on(p, a, type), class_of(p, a, type)->site.node_devices, &plans, said ? NULL : &why);
        if (r == -ENOMEM)
            return merr_set(err, -ENOMEM, "no memory to plan");
        said = true;
        if (r < 0)
            continue;
        a->job.virtual_workers = plans.job.virtual_workers;
        a->job.sequence_parallel = plans.job.sequence_parallel;
        a->wish.any_workers = a->wish.any_cp = a->wish.any_sequence_parallel = false;
        a->wish.tp = plans.best.shape.tp;
        a->wish.pp = plans.best.shape.pp;
        a->wish.cp = plan_cp(&plans.best.shape);
        a->replica = a->wish.tp * a->wish.pp * a->wish.cp;
        return 0;
    }
    return merr_set(err, -EINVAL, "%s", said ? why.text : "the cluster has no class of devices");
}

int planned_add(struct planned *p, const struct plan_job *job, const struct plan_wish *wish, int devices,
                struct merr *err)
{
    struct asked *a = &p->specs[p->n];
    int r;

    if (p->n == PLANNED_SPECS_MAX)
        return merr_set(err, -E2BIG, "more than %d specs", PLANNED_SPECS_MAX);
    *a = (struct asked){.job = *job, .wish = *wish, .devices = devices};
    r = settle(p, a, err);
    return r < 0 ? r : p->n++;
}

int planned_replica(const struct planned *p, int spec)
{
    return p->specs[spec].replica;
}

int planned_workers(const struct planned *p, int spec)
{
    return p->specs[spec].job.virtual_workers;
}

/* One that finds no room is made again when it is asked for again. */
static void keep(struct asked *a, struct answer one)
{
    if (a->n == a->cap) {
        struct answer *v = realloc(a->answers, (a->cap ? 2 * a->cap : 32) * sizeof(*v));

        if (!v)
            return;
        a->answers = v;
        a->cap = a->cap ? 2 * a->cap : 32;
    }
    a->answers[a->n++] = one;
}

int64_t planned_rate(struct planned *p, int spec, int type, int devices, int node_devices)
{
    struct answer one = {.type = type, .devices = devices, .node_devices = node_devices};
    struct asked *a;
    struct plan_result plans;
    double ups;

    assert(spec >= 0 && spec < p->n && type >= 0 && (size_t)type < p->n_classes && devices > 0 && node_devices > 0);
    a = &p->specs[spec];
    one.devices = devices < PLAN_RANKS_MAX ? devices : PLAN_RANKS_MAX;
    for (size_t i = 0; i < a->n; i++)
        if (a->answers[i].type == type && a->answers[i].devices == one.devices &&
            a->answers[i].node_devices == node_devices)
            return a->answers[i].rate_ups;
    if (plan(p, a, type, one.devices, node_devices, &plans, NULL) == 0) {
        ups = 1e6 / plans.best.cost.step_s;
        one.rate_ups = ups < 1 ? 1 : ups > (double)RATES_UPS_MAX ? RATES_UPS_MAX : (int64_t)(ups + 0.5);
    }
    keep(a, one);
    return one.rate_ups;
}

static void add_point(struct planned *p, int spec, int type, int replicas, struct rates_profile *ret)
{
    int count = replicas * p->specs[spec].replica, here = class_of(p, &p->specs[spec], type)->site.node_devices;
    int64_t rate = planned_rate(p, spec, type, count, count < here ? count : here);

    if (rate > 0 && ret->n[type] < RATES_POINTS_MAX)
        ret->points[type][ret->n[type]++] = (struct rates_point){.count = count, .rate_ups = rate};
}

void planned_profile(struct planned *p, int spec, struct rates_profile *ret)
{
    const struct asked *a = &p->specs[spec];

    *ret = (struct rates_profile){.n = {0}};
    for (size_t t = 0; t < p->n_classes; t++) {
        int most = most_on(p, a, (int)t) / a->replica, last = 0;

        most = most < a->job.virtual_workers ? most : a->job.virtual_workers;
        for (int k = 1; k <= most; k *= 2) { /* 1, 2, 3, 4, 6, 8, 12, ... and the most */
            add_point(p, spec, (int)t, last = k, ret);
            if (k > 1 && k + k / 2 <= most)
                add_point(p, spec, (int)t, last = k + k / 2, ret);
        }
        if (most > last)
            add_point(p, spec, (int)t, most, ret);
    }
}
