#include "server/control/kinds.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "scheduler/cluster/learned.h"
#include "scheduler/plan/site.h"
#include "server/control/state.h"

int kinds_workers(const struct entry *e)
{
    int n = e->job.kind == JOB_COMMAND ? e->job.max : e->plan.facts.virtual_workers;

    return n < 1 ? 1 : n;
}

int kinds_replica(const struct entry *e)
{
    int n = plan_replica_devices(&e->plan.facts);

    return n < 1 ? 1 : n;
}

static uint64_t key_of(const void *data, size_t len)
{
    uint64_t key = hash_xxh3(data, len);

    return key ? key : 1;
}

static uint64_t owner_of(const struct entry *e)
{
    uint64_t of[] = {hash_xxh3(e->job.user, strlen(e->job.user)), hash_xxh3(e->job.name, strlen(e->job.name))};

    return key_of(of, sizeof(of));
}

static uint64_t key(const struct entry *e)
{
    const struct plan_facts *f = &e->plan.facts;
    bool command = e->job.kind == JOB_COMMAND;
    uint64_t of[] = {e->alike,
                     command ? owner_of(e) : 0,
                     (uint64_t)kinds_replica(e),
                     command ? 0 : (uint64_t)f->virtual_workers,
                     command ? 0 : (uint64_t)f->tp << 32 | (uint32_t)f->pp,
                     command ? 0 : (uint64_t)f->micro};

    return key_of(of, sizeof(of));
}

static struct learned_kind *kind_of(struct core *c, const struct entry *e)
{
    return learned_kind(c->learned, key(e), e->job.kind == JOB_COMMAND, kinds_workers(e), kinds_replica(e));
}

void kinds_take_speed(struct core *c, const struct entry *e, double steps_per_s)
{
    struct learned_kind *k = kind_of(c, e);

    if (k)
        learned_take_speed(c->learned, k, e->pace.home_class, (int32_t)e->job.n_places, steps_per_s);
}

void kinds_take_restart(struct core *c, const struct entry *e, double restart_s)
{
    struct learned_kind *k = kind_of(c, e);

    if (k)
        learned_take_restart(c->learned, k, restart_s);
}

void kinds_forget(struct core *c, const struct entry *e)
{
    struct learned_kind *k = kind_of(c, e);

    if (k)
        learned_forget(c->learned, k, e->pace.home_class, (int32_t)e->job.n_places);
}

void kinds_end(struct core *c, const struct entry *e)
{
    struct learned_kind *k;

    if (e->job.kind != JOB_COMMAND || e->job.state != JOB_SUCCEEDED || e->job.tasks > 0)
        return;
    k = learned_kind(c->learned, owner_of(e), true, 1, 1);
    if (k)
        learned_take_end(k, (double)e->job.device_us / 1e6);
}

/* By what the planner assumes of such devices, and what runs have shown of it. */
void kinds_expect(struct core *c, const uint8_t *classes, size_t n)
{
    double flops[RATES_TYPES_MAX] = {0}, sum = 0;

    for (size_t t = 0; t < n; t++) {
        const struct slot *s = NULL;

        for (size_t i = 0; i < c->cluster.n_nodes && !s; i++)
            for (size_t k = 0; k < c->cluster.nodes[i]->n_slots && !s; k++)
                s = c->cluster.nodes[i]->slots[k].class_ == classes[t] ? &c->cluster.nodes[i]->slots[k] : NULL;
        if (s)
            flops[t] = plan_device_times(plan_device_assumed(s->kind, s->threads, false, 0),
                                         classes_speed(&c->cluster.classes, classes[t], false))
                           .flops;
        sum += flops[t];
    }
    for (size_t t = 0; t < n && sum > 0; t++)
        learned_expect(c->learned, classes[t], flops[t] / sum * (double)n);
}

/* --- rates -------------------------------------------------------------------------------------------------- */

/* Whether anything is known of how fast it is. */
static bool is_known(struct core *c, const struct entry *e, const struct learned_kind **ret)
{
    *ret = learned_find(c->learned, key(e));
    return (*ret && (*ret)->n_speeds > 0) || e->pace.n_leaf_times > 0 || e->plan.prior.steps_per_s > 0;
}

uint64_t kinds_rates_key(struct core *c, const struct entry *e)
{
    const struct learned_kind *k;
    uint64_t of[] = {is_known(c, e, &k) ? key(e) : (uint64_t)e->job.kind, (uint64_t)kinds_workers(e),
                     (uint64_t)kinds_replica(e), e->pace.n_leaf_times > 0 ? e->job.id : 0};

    return key_of(of, sizeof(of));
}

bool kinds_rates(struct core *c, const struct entry *e, const uint8_t *classes, size_t n, struct rates_profile *ret)
{
    struct learned_kind none = {.command = e->job.kind == JOB_COMMAND};
    struct profile_type types[RATES_TYPES_MAX];
    const struct learned_kind *k;
    bool known = is_known(c, e, &k);

    for (size_t t = 0; t < n; t++)
        types[t] = (struct profile_type){.class_ = classes[t],
                                         .worker_ms = pace_worker_ms(&e->pace, c->cluster.classes.name[classes[t]])};
    none.workers = kinds_workers(e);
    none.replica = kinds_replica(e);
    none.fixed = -1;
    if (k) /* the job's own number of workers, and what others have shown */
        memcpy(none.speeds, k->speeds, sizeof(none.speeds));
    none.n_speeds = k ? k->n_speeds : 0;
    /* a command of which nothing is known may gain nothing from a fast class */
    return learned_rates(c->learned, &none, types, n, e->plan.prior.steps_per_s > 0 ? &e->plan.prior : NULL,
                         known || e->job.kind == JOB_TRAIN, ret);
}

struct view_work kinds_work(struct core *c, const struct entry *e, bool rated)
{
    const struct learned_kind *k = learned_find(c->learned, key(e)), *others = learned_find(c->learned, owner_of(e));
    json_int_t done = json_integer_value(json_object_get(e->job.progress, "step"));
    struct view_work w = {.rated = rated};

    w.restart_s = e->pace.restart_us > 0 ? (double)e->pace.restart_us / 1e6 : learned_restart_s(c->learned, k);
    if (e->job.kind == JOB_TRAIN) {
        w.steps_u = (int64_t)e->steps * 1000000;
        w.done_u = done < e->steps ? done * 1000000 : w.steps_u;
    } else if (!rated && others) {
        w.device_s = others->device_s;
    }
    return w;
}

/* --- what the store keeps ---------------------------------------------------------------------------------------- */

json_t *kinds_record(const struct core *c, const struct learned_kind *k)
{
    json_t *speeds = json_array();

    for (size_t i = 0; i < k->n_speeds; i++)
        (void)json_array_append_new(speeds, json_pack("[s, i, f, f, I]", c->cluster.classes.name[k->speeds[i].class_],
                                                      (int)k->speeds[i].devices, k->speeds[i].steps_per_s,
                                                      k->speeds[i].spread, (json_int_t)k->speeds[i].n));
    return json_pack("{s:b, s:i, s:i, s:f, s:I, s:f, s:o}", "command", k->command, "workers", k->workers, "replica",
                     k->replica, "device_s", k->device_s, "ended", (json_int_t)k->ended, "restart_s", k->restart_s,
                     "speeds", speeds);
}

bool kinds_take_record(struct core *c, uint64_t number, json_t *o)
{
    json_int_t ended = 0, n = 0;
    int command, workers, replica, devices = 0;
    double device_s, restart_s, rate, spread;
    json_t *speeds, *one;
    struct learned_kind *k;
    const char *name;
    size_t i;

    if (number == 0 ||
        json_unpack(o, "{s:b, s:i, s:i, s:F, s:I, s:F, s:o}", "command", &command, "workers", &workers, "replica",
                    &replica, "device_s", &device_s, "ended", &ended, "restart_s", &restart_s, "speeds", &speeds) < 0 ||
        workers < 1 || replica < 1 || ended < 0 || ended > UINT32_MAX || !(device_s >= 0) || !(restart_s >= 0))
        return false;
    k = learned_kind(c->learned, number, command, workers, replica);
    if (!k)
        return true;
    k->device_s = device_s;
    k->ended = (uint32_t)ended;
    if (restart_s > 0)
        learned_take_restart(c->learned, k, restart_s);
    json_array_foreach (speeds, i, one) {
        if (json_unpack(one, "[s, i, F, F, I]", &name, &devices, &rate, &spread, &n) == 0 &&
            classes_find(&c->cluster.classes, name) < CLASSES_MAX && n > 0 && n <= UINT32_MAX && spread >= 0)
            learned_restore(c->learned, k,
                            &(struct learned_speed){.class_ = classes_find(&c->cluster.classes, name),
                                                    .devices = devices,
                                                    .steps_per_s = rate,
                                                    .spread = spread,
                                                    .n = (uint32_t)n});
    }
    k->changed = false;
    return true;
}

/* --- showing ------------------------------------------------------------------------------------------------- */

static json_t *rate_json(const struct core *c, const struct learned_kind *k, uint8_t class_, int32_t devices,
                         double steps_per_s, const char *basis)
{
    json_t *o = json_pack("{s:s, s:i, s:f, s:s}", "class", c->cluster.classes.name[class_], "devices", (int)devices,
                          "steps_per_s", steps_per_s, "from", basis);

    for (size_t i = 0; k && i < k->n_speeds; i++)
        if (k->speeds[i].class_ == class_ && k->speeds[i].devices == devices) {
            (void)json_object_set_new(o, "from", json_string("measured"));
            (void)json_object_set_new(o, "count", json_integer(k->speeds[i].n));
            (void)json_object_set_new(o, "spread", json_real(k->speeds[i].spread));
        }
    return o;
}

static const char *basis_of(const struct learned_kind *k, const struct entry *e, uint8_t class_, const char *name)
{
    for (size_t i = 0; k && i < k->n_speeds; i++)
        if (k->speeds[i].class_ == class_)
            return "other numbers of devices";
    if (pace_worker_ms(&e->pace, name) > 0)
        return "single workers";
    return k && k->n_speeds > 0 ? "other classes" : "the planner";
}

json_t *kinds_view(struct core *c, const struct entry *e)
{
    const struct learned_kind *k;
    uint64_t of = is_known(c, e, &k) ? entry_classes(e, &c->cluster.classes) : 0;
    struct rates_profile *p = calloc(1, sizeof(*p));
    uint8_t classes[RATES_TYPES_MAX];
    json_t *all = json_array();
    size_t n = 0;

    for (uint8_t i = 0; i < c->cluster.classes.n && n < RATES_TYPES_MAX; i++)
        if (of >> i & 1)
            classes[n++] = i;
    if (p && kinds_rates(c, e, classes, n, p))
        for (size_t t = 0; t < n; t++)
            (void)json_array_append_new(
                all, rate_json(c, k, classes[t], e->job.min, (double)rates_at(p, (int)t, e->job.min, NULL) / 1e6,
                               basis_of(k, e, classes[t], c->cluster.classes.name[classes[t]])));
    free(p);
    return all;
}
