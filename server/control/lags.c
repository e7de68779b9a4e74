#include "server/control/lags.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "scheduler/diagnose/lag.h"
#include "server/cluster/cluster.h"
#include "server/cluster/node.h"
#include "server/cluster/shares.h"
#include "server/control/events.h"
#include "server/control/link_care.h"
#include "server/control/slow_care.h"
#include "server/control/state.h"

#define EVENTS_MAX 32 /* of a run: one that is slow by turns does not push out what else has happened */

static const char *const group_name[LAG_KINDS + 1] = {"tp", "dp", "cp", ""};
static_assert(LAG_SPAN_MAX == REPORT_SPAN_MAX, "what an agent may tell is taken");

/* --- places ------------------------------------------------------------------------------------------- */

struct role { /* ranks that do the same: of a stage, on devices of a class, with equally much work */
    int stage, workers;
    const char *class_;
};

static uint32_t number_of_role(struct role *roles, uint32_t *n, const struct role *r)
{
    for (uint32_t i = 0; i < *n; i++)
        if (roles[i].stage == r->stage && roles[i].workers == r->workers && strcmp(roles[i].class_, r->class_) == 0)
            return i;
    roles[*n] = *r;
    return (*n)++;
}

/* The number of a rank's node: of its first rank. */
static uint32_t number_of_node(const struct job *j, size_t rank, const struct lag_place *places)
{
    if (rank > 0 && strcmp(j->places[rank].node, j->places[rank - 1].node) == 0)
        return places[rank - 1].node;
    for (size_t i = 0; i < rank; i++)
        if (strcmp(j->places[rank].node, j->places[i].node) == 0)
            return places[i].node;
    return (uint32_t)rank;
}

/* Where each rank stands in its run (mesh.h of the ranks: tp fastest, then cp, dp, pp). */
static struct lag *lag_of(const struct entry *e)
{
    const struct job *j = &e->job;
    const struct layout *l = &j->layout;
    struct lag_place *places = calloc(j->n_places + 1, sizeof(*places));
    struct role *roles = calloc(j->n_places + 1, sizeof(*roles));
    struct lag *lag = NULL;
    uint32_t n = 0;

    for (size_t i = 0; places && roles && i < j->n_places; i++) {
        uint32_t tp = (uint32_t)l->tp, cp = (uint32_t)l->cp, dp = (uint32_t)l->dp, rank = (uint32_t)i;
        uint32_t t = rank % tp, c = rank / tp % cp, d = rank / (tp * cp) % dp, stage = rank / (tp * cp * dp);
        struct role role = {(int)stage, shares_workers(j, &e->pace, i), j->places[i].class_};

        places[i] = (struct lag_place){
            .role = number_of_role(roles, &n, &role),
            .replica = d,
            .node = number_of_node(j, i, places),
            .team = {[LAG_TP] = rank / tp, [LAG_DP] = (stage * cp + c) * tp + t, [LAG_CP] = (stage * dp + d) * tp + t}};
    }
    if (places && roles && lag_new(places, j->n_places, &lag) < 0)
        lag = NULL;
    free(places);
    free(roles);
    return lag;
}

static bool is_told_of(const struct entry *e)
{
    const struct layout *l = &e->job.layout;

    return e->job.kind == JOB_TRAIN && e->job.live && l->world > 1 && (size_t)l->world == e->job.n_places &&
           (int64_t)l->tp * l->cp * l->dp * l->pp == l->world;
}

void lags_take(const struct cluster *cl, struct entry *e, const struct report_rank *told)
{
    const struct slot *slot;

    if (told->n_steps < REPORT_STEP_NUMBERS || !is_told_of(e))
        return;
    if (!e->run.lag && !(e->run.lag = lag_of(e)))
        return;
    slot = cluster_slot(cl, &e->job.places[told->rank]);
    for (size_t i = 0; i + REPORT_STEP_NUMBERS <= told->n_steps; i += REPORT_STEP_NUMBERS) {
        const int *v = told->steps + i;
        struct lag_sample s = {.busy = (float)v[REPORT_STEP_BUSY],
                               .data = (float)v[REPORT_STEP_DATA],
                               .cpu = slot && strcmp(slot->kind, "cpu") == 0 ? (float)v[REPORT_STEP_CPU] : 0,
                               .wall = (float)v[REPORT_STEP_WALL],
                               .work = (float)v[REPORT_STEP_WORK],
                               .call = {[LAG_TP] = (float)v[REPORT_STEP_TP],
                                        [LAG_DP] = (float)v[REPORT_STEP_DP],
                                        [LAG_CP] = (float)v[REPORT_STEP_CP]},
                               .kib = (float)v[REPORT_STEP_KIB],
                               .starved = (float)v[REPORT_STEP_STARVED],
                               .throttled = (float)v[REPORT_STEP_THROTTLED]};

        lag_take(
            e->run.lag, (size_t)told->rank,
            &(struct lag_span){(uint64_t)v[REPORT_STEP], (uint32_t)v[REPORT_STEP_SPAN], (uint32_t)v[REPORT_STEP_COUNT]},
            &s);
    }
}

/* --- words -------------------------------------------------------------------------------------------- */

/* Of whom, in the beginning: "rank 5 on n3 (device 1)". */
static void describe_who(const struct entry *e, const struct lag_finding *f, struct buf *out)
{
    const struct job_place *p = &e->job.places[f->rank];

    if (f->class_ == LAG_ROLE)
        (void)buf_printf(out, "stage %d", (int)f->rank / (e->job.layout.tp * e->job.layout.cp * e->job.layout.dp));
    else if (f->class_ == LAG_LINK && f->kind < LAG_KINDS && f->node != UINT32_MAX)
        (void)buf_printf(out, "the links of %s", p->node);
    else if (f->class_ == LAG_LINK)
        (void)buf_printf(out, "a link in the group '%s' of rank %u on %s", group_name[f->kind], f->rank, p->node);
    else
        (void)buf_printf(out, "rank %u on %s (device %d)", f->rank, p->node, p->slot);
}

static void describe_late(const struct lag_finding *f, struct buf *out)
{
    if (f->kind < LAG_KINDS && f->late_us >= 100)
        (void)buf_printf(out, "; the others of '%s' wait %.1f ms for it in each step", group_name[f->kind],
                         f->late_us / 1e3);
}

/* What the node's kernel says of why the rank had no processor. */
static void describe_lack(const struct lag_finding *f, const struct node *n, struct buf *out)
{
    int pressure = n ? n->pressure : -1, steal = n ? n->steal : -1;

    if (f->throttled >= 0.05)
        (void)buf_printf(out, " (its control group was at its limit in %.0f %% of the time)", 100 * f->throttled);
    else if (steal >= 5)
        (void)buf_printf(out, " (its hypervisor took %d %% of the processors' time)", steal);
    else if (f->starved >= 0.05)
        (void)buf_printf(out, " (it waited for one in %.0f %% of the time)", 100 * f->starved);
    else if (pressure >= 0)
        (void)buf_printf(out, " (something there had to wait for a processor in %d %% of the last ten seconds)",
                         pressure);
}

static void describe_link(const struct lag_finding *f, struct buf *out)
{
    (void)buf_printf(out, "calls of '%s' take %.2f times as long as they did, and nobody is late in them",
                     group_name[f->kind], f->factor);
    if (f->kib_s > 0 && f->kib_s_usual > 0)
        (void)buf_printf(out, "; each member sends %.1f MiB/s in them, and sent %.1f", f->kib_s / 1024,
                         f->kib_s_usual / 1024);
}

static void describe(const struct entry *e, const struct lag_finding *f, const struct node *n, struct buf *out)
{
    static const char *const computes = "computes %.2f times as long for each token as others that do the same";

    describe_who(e, f, out);
    (void)buf_addstr(out, ": ");
    if (f->over) {
        (void)buf_addstr(out, "as fast as the others again");
        return;
    }
    switch (f->class_) {
    case LAG_COMPUTE:
        (void)buf_printf(out, computes, f->factor);
        describe_late(f, out);
        (void)buf_addstr(out, ". " SLOW_CARE_UNTESTED);
        return;
    case LAG_BOTH:
        (void)buf_printf(out, computes, f->factor);
        (void)buf_printf(out, ", and the calls of '%s' have become long for all: the device, or what links it",
                         group_name[f->kind]);
        return;
    case LAG_LINK:
        describe_link(f, out);
        return;
    case LAG_ROLE:
        (void)buf_printf(out, "computes %.2f times as long as the other stages, in all replicas: the layout, no device",
                         f->factor);
        return;
    case LAG_HOST:
        if (f->data)
            (void)buf_printf(out, "waits for data in %.0f %% of each step, and others that do the same do not",
                             100 * f->withheld);
        else if (f->away)
            (void)buf_printf(out,
                             "had no processor in %.0f %% more of each step than others that do the same: its host is "
                             "busy, or limits it",
                             100 * f->withheld);
        else
            (void)buf_printf(out,
                             "computes %.2f times as long for each token as it should, and had no processor in %.0f %% "
                             "of that time: its host is busy, or limits it",
                             f->factor, 100 * f->withheld);
        if (!f->data)
            describe_lack(f, n, out);
        describe_late(f, out);
        return;
    default:
        return;
    }
}

static json_t *evidence(const struct entry *e, const struct lag_finding *f, const struct node *n,
                        const struct lag_verdict *v)
{
    const struct job_place *p = &e->job.places[f->rank];
    json_t *o = json_pack("{s:s, s:s, s:b, s:i, s:s, s:i, s:f, s:f, s:f, s:f, s:s, s:f, s:b, s:I, s:I, s:I, s:b}",
                          "type", "slow", "class", lag_class_name(f->class_), "over", f->over, "rank", (int)f->rank,
                          "node", p->node, "slot", p->slot, "factor", f->factor, "sigmas", f->sigmas, "late_us",
                          f->late_us, "p", f->p, "group", group_name[f->kind], "withheld", f->withheld, "data", f->data,
                          "first_step", (json_int_t)v->first_step, "end_step", (json_int_t)v->end_step, "early_step",
                          (json_int_t)f->early, "confirmed", false);

    (void)json_object_set_new(o, "starved", json_real(f->starved));
    (void)json_object_set_new(o, "throttled", json_real(f->throttled));
    (void)json_object_set_new(o, "pressure", json_integer(n ? n->pressure : -1));
    (void)json_object_set_new(o, "steal", json_integer(n ? n->steal : -1));
    (void)json_object_set_new(o, "kib_s", json_real(f->kib_s));
    (void)json_object_set_new(o, "kib_s_usual", json_real(f->kib_s_usual));
    return o;
}

/* --- findings ----------------------------------------------------------------------------------------- */

/* What stands of the job: without that of the rank, or of its links, and with the new one. */
static void keep(struct entry *e, const struct lag_finding *f, const char *text)
{
    json_t *all = json_array(), *one;
    size_t i;

    json_array_foreach (e->run.slow, i, one)
        if (json_integer_value(json_object_get(one, "rank")) != (json_int_t)f->rank ||
            (strcmp(json_string_value(json_object_get(one, "class")), lag_class_name(LAG_LINK)) == 0) !=
                (f->class_ == LAG_LINK))
            (void)json_array_append(all, one);
    if (!f->over && json_array_size(all) < LAG_FOUND_MAX)
        (void)json_array_append_new(all, json_pack("{s:i, s:s, s:s, s:f, s:s}", "rank", (int)f->rank, "node",
                                                   e->job.places[f->rank].node, "class", lag_class_name(f->class_),
                                                   "factor", f->factor, "text", text));
    json_decref(e->run.slow); /* answers under way may have the old one */
    e->run.slow = all;
}

static void find(struct core *c, struct entry *e, const struct lag_finding *f, const struct lag_verdict *v)
{
    const struct node *n = cluster_node(&c->cluster, e->job.places[f->rank].node);
    struct buf text;

    buf_init(&text, 1024);
    describe(e, f, n, &text);
    if (f->class_ != LAG_ROLE)
        keep(e, f, buf_text(&text));
    if (f->class_ == LAG_LINK)
        link_care_found(c, e, f);
    else if (f->class_ == LAG_COMPUTE && !f->over)
        slow_care_found(c, e, f);
    if (e->run.slow_told < EVENTS_MAX) {
        e->run.slow_told++;
        log_info("job j%llu: %s", (unsigned long long)e->job.id, buf_text(&text));
        events_note(c, e->job.id, e->job.user, "note", e->job.generation, "scheduler", f->over ? "slow-over" : "slow",
                    buf_text(&text), evidence(e, f, n, v));
    }
    buf_clear(&text);
}

void lags_look(struct core *c, struct entry *e)
{
    struct lag_verdict v;

    while (e->run.lag && e->job.live && e->job.intent == JOB_GO_ON && e->job.state == JOB_RUNNING &&
           lag_judge(e->run.lag, &v))
        for (size_t i = 0; i < v.n; i++)
            find(c, e, &v.found[i], &v);
    link_care_look(c, e);
}
