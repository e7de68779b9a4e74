#include "scheduler/cluster/explain.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

const char *explain_code_name(enum explain_code code)
{
    static const char *const name[] = {
        [EXPLAIN_ASSIGNED] = "assigned",       [EXPLAIN_INSUFFICIENT] = "insufficient-devices",
        [EXPLAIN_BEHIND] = "behind",           [EXPLAIN_LIMIT] = "tenant-limit",
        [EXPLAIN_FRAGMENTED] = "fragmented",   [EXPLAIN_FREEING] = "devices-being-freed",
        [EXPLAIN_DRAINED] = "nodes-drained",   [EXPLAIN_TOO_SMALL] = "cluster-too-small",
        [EXPLAIN_NO_CLASS] = "no-such-class",  [EXPLAIN_NO_NODES] = "no-nodes",
        [EXPLAIN_BACK_OFF] = "back-off",       [EXPLAIN_NO_LAYOUT] = "no-layout",
        [EXPLAIN_SHRUNK] = "shrunk",           [EXPLAIN_SLOW] = "slow-devices",
        [EXPLAIN_POWER] = "power-cap",         [EXPLAIN_CLOSING] = "closing",
        [EXPLAIN_RESERVATION] = "reservation", [EXPLAIN_ARRAY] = "array-max-running",
        [EXPLAIN_DEPENDENCY] = "dependency",   [EXPLAIN_SINGLETON] = "singleton",
        [EXPLAIN_MAX_RUNNING] = "max-running", [EXPLAIN_MAX_DEVICES] = "max-devices-per-user",
        [EXPLAIN_SPARES] = "spares-kept",
    };

    assert((size_t)code < sizeof(name) / sizeof(name[0]));
    return name[code];
}

static int32_t sum(const int32_t v[RATES_TYPES_MAX], uint32_t types)
{
    int64_t n = 0;

    for (int t = 0; t < RATES_TYPES_MAX; t++)
        n += types >> t & 1 ? v[t] : 0;
    return n > INT32_MAX ? INT32_MAX : (int32_t)n;
}

void explain_count(const struct sched_input *in, const struct sched_plan *plan, struct explain_tally *ret)
{
    int32_t *free_here = calloc(in->n_nodes + 1, sizeof(*free_here)); /* without it less is told */

    *ret = (struct explain_tally){.total = {0}};
    for (size_t i = 0; i < in->n_nodes; i++) {
        const struct sched_node *n = &in->nodes[i];

        ret->total[n->type] += n->devices + n->drained + n->silent + n->spare;
        ret->drained[n->type] += n->drained;
        ret->spare[n->type] += n->spare;
        ret->free[n->type] += n->devices;
        if (free_here)
            free_here[i] = n->devices;
    }
    for (size_t p = 0; p < plan->n_places; p++) {
        int type = in->nodes[plan->places[p].node].type;

        ret->free[type] -= plan->places[p].devices;
        ret->drawn_w += (int64_t)plan->places[p].devices * in->power_w[type];
        if (free_here)
            free_here[plan->places[p].node] -= plan->places[p].devices;
    }
    for (size_t i = 0; free_here && i < in->n_nodes; i++) {
        const struct sched_node *n = &in->nodes[i];
        int64_t *closes = &ret->closes_us[n->type];

        if (free_here[i] > ret->side_by_side[n->type])
            ret->side_by_side[n->type] = free_here[i];
        if (free_here[i] > 0 && n->closes_us > 0 && (*closes == 0 || n->closes_us < *closes))
            *closes = n->closes_us;
    }
    free(free_here);
    for (size_t i = 0; i < in->n_jobs; i++)
        for (uint32_t t = in->jobs[i].tenant + 1; t > 0; t = in->tenants[t - 1].within)
            ret->held[t - 1] += plan->verdicts[i].shape.n[0] + plan->verdicts[i].shape.n[1];
}

/* The limit that is in the way: of its tenant, or of the first one up that has no room for it. */
static void find_limit(const struct explain_tally *tally, const struct sched_input *in, const struct sched_job *j,
                       struct explain_wait *w)
{
    for (uint32_t t = j->tenant + 1; t > 0; t = in->tenants[t - 1].within) {
        const struct sched_tenant *of = &in->tenants[t - 1];

        if (of->borrow < 0 || of->quota + of->borrow - tally->held[t - 1] - of->leaving >= w->need)
            continue;
        w->limit = of->quota + of->borrow;
        w->held = tally->held[t - 1] + of->leaving;
        return;
    }
}

struct explain_wait explain_wait(const struct explain_tally *tally, const struct sched_input *in,
                                 const struct sched_plan *plan, size_t job)
{
    static const enum explain_code by_reason[] = {
        [SCHED_RUNS] = EXPLAIN_INSUFFICIENT,      [SCHED_BUSY] = EXPLAIN_INSUFFICIENT,
        [SCHED_BEHIND] = EXPLAIN_BEHIND,          [SCHED_LIMIT] = EXPLAIN_LIMIT,
        [SCHED_TOO_BIG] = EXPLAIN_TOO_SMALL,      [SCHED_FRAGMENTED] = EXPLAIN_FRAGMENTED,
        [SCHED_RECLAIMED] = EXPLAIN_INSUFFICIENT, [SCHED_SLOW] = EXPLAIN_INSUFFICIENT,
        [SCHED_CLOSING] = EXPLAIN_CLOSING,        [SCHED_POWER] = EXPLAIN_POWER,
    };
    const struct sched_job *j = &in->jobs[job];
    const struct sched_verdict *v = &plan->verdicts[job];
    uint32_t types = sched_job_types(j);
    struct explain_wait w = {.free = sum(tally->free, types),
                             .total = sum(tally->total, types),
                             .spare = sum(tally->spare, types),
                             .elsewhere = sum(tally->free, j->types & ~types),
                             .drained = sum(tally->drained, types),
                             .power_w = in->config.power_w,
                             .drawn_w = tally->drawn_w,
                             .behind = v->behind,
                             .bound = types != j->types,
                             .rack = j->within};
    int64_t shared;
    int32_t most;

    sched_job_range(j, &w.need, &most);
    w.replica = j->replica > 1 ? j->replica : 1;
    shared = j->workers > 0 ? (int64_t)j->workers * w.replica : j->max;
    w.most = shared < j->max ? (int32_t)shared : j->max;
    w.code = v->n > 0                                                  ? EXPLAIN_ASSIGNED
             : in->n_nodes == 0                                        ? EXPLAIN_NO_NODES
             : most < w.need                                           ? EXPLAIN_NO_LAYOUT
             : w.total == 0                                            ? EXPLAIN_NO_CLASS
             : w.total < w.need                                        ? EXPLAIN_TOO_SMALL
             : w.total - sum(tally->drained, types) < w.need           ? EXPLAIN_DRAINED
             : w.total - w.spare < w.need                              ? EXPLAIN_SPARES
             : v->reason == SCHED_TOO_BIG && w.total > w.free + w.need ? EXPLAIN_INSUFFICIENT
                                                                       : by_reason[v->reason];
    if (w.rack && w.code == EXPLAIN_INSUFFICIENT && w.free >= w.need)
        w.code = EXPLAIN_FRAGMENTED;
    for (int t = 0; t < RATES_TYPES_MAX; t++) {
        int64_t watts = (int64_t)in->power_w[t] * w.need, closes = tally->closes_us[t];

        if (!(types >> t & 1) || tally->total[t] == 0)
            continue;
        w.side_by_side = tally->side_by_side[t] > w.side_by_side ? tally->side_by_side[t] : w.side_by_side;
        w.need_w = w.need_w == 0 || watts < w.need_w ? watts : w.need_w;
        if (w.code == EXPLAIN_CLOSING && closes > 0 && (w.until_us == 0 || closes < w.until_us))
            w.until_us = closes;
    }
    if (w.code == EXPLAIN_LIMIT)
        find_limit(tally, in, j, &w);
    return w;
}

/* --- the whole of it ------------------------------------------------------------------------------------- */

/* The job's devices of the types that the plan leaves it. */
static int32_t holds(const struct sched_input *in, const struct sched_plan *plan, size_t job, uint32_t types)
{
    const struct sched_verdict *v = &plan->verdicts[job];
    int32_t n = 0;

    for (size_t p = v->first; p < v->first + v->n; p++)
        n += types >> in->nodes[plan->places[p].node].type & 1 ? plan->places[p].devices : 0;
    return n;
}

/* Of those the slow ones. */
static int32_t holds_slow(const struct sched_input *in, const struct sched_plan *plan, size_t job)
{
    const struct sched_verdict *v = &plan->verdicts[job];
    int32_t n = 0;

    for (size_t p = v->first; p < v->first + v->n; p++)
        n += in->nodes[plan->places[p].node].slow_milli > 0 ? plan->places[p].devices : 0;
    return n;
}

static void add_help(struct explain_cause *c, enum explain_help_kind kind, uint64_t job, int32_t n)
{
    if (c->n_help < EXPLAIN_HELP_MAX)
        c->help[c->n_help++] = (struct explain_help){.kind = kind, .job = job, .n = n};
}

/* Jobs that hold what it could use: those that hold most of it first, for their end helps most; equals as they come. */
static void blame_holders(const struct sched_input *in, const struct sched_plan *plan, size_t job,
                          struct explain_cause *c)
{
    int32_t held[EXPLAIN_BEHIND_MAX];

    for (size_t i = 0; i < in->n_jobs; i++) {
        int32_t n = i != job ? holds(in, plan, i, sched_job_types(&in->jobs[job])) : 0;
        size_t at = c->n_behind;

        while (at > 0 && held[at - 1] < n)
            at--;
        if (n == 0 || at == EXPLAIN_BEHIND_MAX)
            continue;
        c->n_behind += c->n_behind < EXPLAIN_BEHIND_MAX;
        for (size_t k = c->n_behind - 1; k > at; k--) {
            held[k] = held[k - 1];
            c->behind[k] = c->behind[k - 1];
        }
        held[at] = n;
        c->behind[at] = in->jobs[i].id;
    }
}

/* Of all that wait; this one's is what is wanted. */
static int foresee(const struct sched_input *in, const struct sched_plan *plan, size_t job, struct forecast *ret)
{
    struct forecast *all = calloc(in->n_jobs + 1, sizeof(*all));
    int r = all ? forecast_all(in, plan, all) : -ENOMEM;

    if (r == 0)
        *ret = all[job];
    free(all);
    return r;
}

static void advise(struct explain_cause *c)
{
    const struct explain_wait *w = &c->wait;
    int32_t step = w->replica > 1 ? w->replica : 1, fits = w->free - w->free % step, may;

    switch (w->code) {
    case EXPLAIN_INSUFFICIENT:
    case EXPLAIN_FRAGMENTED:
        for (size_t i = 0; i < c->n_behind && i < 4; i++)
            add_help(c, EXPLAIN_END_JOB, c->behind[i], 0);
        if (fits > 0 && fits < w->need)
            add_help(c, EXPLAIN_LOWER_MIN, 0, fits);
        break;
    case EXPLAIN_BEHIND:
        add_help(c, EXPLAIN_PRIORITY, w->behind, 0);
        add_help(c, EXPLAIN_SHORTEN, 0, 0);
        break;
    case EXPLAIN_POWER:
        add_help(c, EXPLAIN_RAISE_POWER, 0, 0);
        break;
    case EXPLAIN_MAX_RUNNING:
    case EXPLAIN_MAX_DEVICES:
    case EXPLAIN_ARRAY:
        add_help(c, EXPLAIN_RAISE_RUNNING, 0, 0);
        break;
    case EXPLAIN_LIMIT:
        may = w->limit > w->held ? w->limit - w->held : 0;
        may = w->need > w->limit ? w->limit : may;
        add_help(c, EXPLAIN_RAISE_QUOTA, 0, w->limit > 0 && w->need > w->limit ? w->need : 0);
        if (may - may % step > 0)
            add_help(c, EXPLAIN_LOWER_MIN, 0, may - may % step);
        break;
    case EXPLAIN_DRAINED:
        add_help(c, EXPLAIN_UNDRAIN, 0, 0);
        break;
    case EXPLAIN_TOO_SMALL:
    case EXPLAIN_SPARES:
    case EXPLAIN_NO_CLASS:
        if (w->bound)
            add_help(c, EXPLAIN_RELEASE, 0, 0);
        add_help(c, EXPLAIN_ADD_NODE, 0, 0);
        add_help(c, EXPLAIN_WIDEN, 0, 0);
        break;
    case EXPLAIN_NO_NODES:
    case EXPLAIN_SLOW:
        add_help(c, EXPLAIN_ADD_NODE, 0, 0);
        break;
    case EXPLAIN_NO_LAYOUT:
        add_help(c, EXPLAIN_RAISE_MAX, 0, w->need);
        if (w->most >= step)
            add_help(c, EXPLAIN_LOWER_MIN, 0, w->most - w->most % step);
        break;
    case EXPLAIN_CLOSING:
        add_help(c, EXPLAIN_SHORTEN, 0, 0);
        break;
    default:
        break;
    }
}

int explain_job(const struct sched_input *in, const struct sched_plan *plan, size_t job, struct explain_cause *ret)
{
    struct explain_cause c = {.forecast = {.start_us = -1}};
    struct explain_tally tally;
    int32_t least, most, has = holds(in, plan, job, UINT32_MAX);

    explain_count(in, plan, &tally);
    c.wait = explain_wait(&tally, in, plan, job);
    sched_job_range(&in->jobs[job], &least, &most);
    if (c.wait.code == EXPLAIN_ASSIGNED && has < most) {
        c.wait.code = EXPLAIN_SHRUNK;
        c.wait.has = has;
        c.wait.need = most;
    } else if (c.wait.code == EXPLAIN_ASSIGNED && holds_slow(in, plan, job) > 0) {
        c.wait.code = EXPLAIN_SLOW;
        c.wait.need = holds_slow(in, plan, job);
    }
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        if ((sched_job_types(&in->jobs[job]) >> t & 1) && tally.total[t] > 0)
            c.classes[c.n_classes++] = (struct explain_class){.type = t,
                                                              .total = tally.total[t],
                                                              .free = tally.free[t],
                                                              .drained = tally.drained[t],
                                                              .spare = tally.spare[t]};
    if (c.wait.code == EXPLAIN_BEHIND && c.wait.behind)
        c.behind[c.n_behind++] = c.wait.behind;
    else if (c.wait.code == EXPLAIN_INSUFFICIENT || c.wait.code == EXPLAIN_FRAGMENTED || c.wait.code == EXPLAIN_SHRUNK)
        blame_holders(in, plan, job, &c);
    if (plan->verdicts[job].n == 0 && foresee(in, plan, job, &c.forecast) < 0)
        return -ENOMEM;
    advise(&c);
    *ret = c;
    return 0;
}

/* --- words ------------------------------------------------------------------------------------------------- */

static void say_free(int32_t n, char *ret, size_t size)
{
    if (n == 0)
        (void)snprintf(ret, size, "no such device is free");
    else
        (void)snprintf(ret, size, "%d such device%s free", n, n == 1 ? " is" : "s are");
}

static void say_cause(const struct explain_wait *w, char *ret, size_t size)
{
    int lack = w->need - w->free;
    unsigned long long behind = w->behind;
    char free_ones[64], kept[64] = "", at[CLOCK_RFC3339_MAX] = "";

    say_free(w->free, free_ones, sizeof(free_ones));
    if (w->spare > 0)
        (void)snprintf(kept, sizeof(kept), "; %d %s kept as spares", w->spare, w->spare == 1 ? "is" : "are");
    switch (w->code) {
    case EXPLAIN_INSUFFICIENT:
        if (lack > 0)
            (void)snprintf(ret, size, "waits for %d more device%s: it takes %d at once and %s%s", lack,
                           lack == 1 ? "" : "s", w->need, free_ones, kept);
        else
            (void)snprintf(ret, size, "takes %d device%s and %s; it waits for the next full round", w->need,
                           w->need == 1 ? "" : "s", free_ones);
        return;
    case EXPLAIN_BEHIND:
        (void)snprintf(ret, size,
                       "waits behind j%llu, for which devices are kept: it takes %d at once and %s; with a time limit "
                       "that ends before j%llu starts it may have them",
                       behind, w->need, free_ones, behind);
        return;
    case EXPLAIN_LIMIT:
        if (w->limit > 0 && w->need > w->limit)
            (void)snprintf(ret, size,
                           "takes %d device%s; its project, or one that it is within, may hold %d, so that it never "
                           "starts",
                           w->need, w->need == 1 ? "" : "s", w->limit);
        else if (w->limit > 0)
            (void)snprintf(ret, size,
                           "takes %d device%s; its project, or one that it is within, holds %d of the %d that "
                           "it may",
                           w->need, w->need == 1 ? "" : "s", w->held, w->limit);
        else
            (void)snprintf(ret, size, "its project holds as many devices as it may; it takes %d", w->need);
        return;
    case EXPLAIN_POWER:
        (void)snprintf(ret, size, "takes %lld W at least; devices of jobs draw %lld W of the %lld W that they may",
                       (long long)w->need_w, (long long)w->drawn_w, (long long)w->power_w);
        return;
    case EXPLAIN_FRAGMENTED:
        (void)snprintf(ret, size, "%d devices are free, but not %d %s; the most on one node are %d", w->free, w->need,
                       w->rack ? "within one rack" : "side by side", w->side_by_side);
        return;
    case EXPLAIN_FREEING:
        (void)snprintf(ret, size, "starts as soon as other jobs have left its devices");
        return;
    case EXPLAIN_DRAINED:
        (void)snprintf(ret, size, "takes %d device%s; of the %d of its classes %d %s on nodes that are drained",
                       w->need, w->need == 1 ? "" : "s", w->total, w->drained, w->drained == 1 ? "is" : "are");
        return;
    case EXPLAIN_SPARES:
        (void)snprintf(ret, size,
                       "takes %d device%s; the cluster has %d of its classes, and keeps %d of them as spares", w->need,
                       w->need == 1 ? "" : "s", w->total, w->spare);
        return;
    case EXPLAIN_TOO_SMALL:
        (void)snprintf(ret, size, "takes %d device%s; the cluster has %d of its classes", w->need,
                       w->need == 1 ? "" : "s", w->total);
        return;
    case EXPLAIN_NO_CLASS:
        (void)snprintf(ret, size,
                       w->bound ? "no node has devices of the class that it began on, and on which it stays"
                                : "no node has devices of the classes it may use");
        return;
    case EXPLAIN_NO_NODES:
        (void)snprintf(ret, size, "no node has registered yet");
        return;
    case EXPLAIN_BACK_OFF:
        if (w->until_us > 0)
            clock_rfc3339(w->until_us, at);
        (void)snprintf(ret, size, "it failed a moment ago and starts again%s%s", w->until_us > 0 ? " at " : " soon",
                       at);
        return;
    case EXPLAIN_DEPENDENCY:
        (void)snprintf(ret, size, "waits for the jobs that it comes after");
        return;
    case EXPLAIN_SINGLETON:
        (void)snprintf(ret, size, "waits for j%llu, which has the same name and user", behind);
        return;
    case EXPLAIN_MAX_RUNNING:
        (void)snprintf(ret, size, "its project has %d jobs running, or about to, as many as it may", w->total);
        return;
    case EXPLAIN_ARRAY:
        (void)snprintf(ret, size, "its array has %d tasks running, or about to, as many as it may", w->total);
        return;
    case EXPLAIN_MAX_DEVICES:
        (void)snprintf(ret, size, "takes %d device%s; all jobs of its user in the project may hold %d together",
                       w->need, w->need == 1 ? "" : "s", w->total);
        return;
    case EXPLAIN_NO_LAYOUT:
        (void)snprintf(ret, size,
                       "a replica takes %d device%s, and no whole number of them lies between devices.min and "
                       "devices.max: the least is %d, the most that it may have %d",
                       w->replica, w->replica == 1 ? "" : "s", w->need, w->most);
        return;
    case EXPLAIN_SHRUNK:
        (void)snprintf(ret, size, "runs on %d of the %d devices it could use: %s%s", w->has, w->need, free_ones,
                       w->free > 0 ? "; it gets them in a full round, if they gain more than a restart costs" : "");
        return;
    case EXPLAIN_CLOSING:
        if (w->until_us > 0)
            clock_rfc3339(w->until_us, at);
        (void)snprintf(
            ret, size,
            "takes %d device%s; those that are free are to be in maintenance, kept for others or gone%s%s, before its "
            "time limit is over",
            w->need, w->need == 1 ? "" : "s", w->until_us > 0 ? " from " : "", at);
        return;
    case EXPLAIN_RESERVATION:
        if (w->until_us > 0)
            clock_rfc3339(w->until_us, at);
        (void)snprintf(ret, size, "waits for its reservation r%llu to begin%s%s", behind,
                       w->until_us > 0 ? ", at " : "", at);
        return;
    case EXPLAIN_SLOW:
        (void)snprintf(ret, size,
                       "%d of its devices %s slower than others of the class; it moves where as many that "
                       "are well come free and that is worth a restart",
                       w->need, w->need == 1 ? "is" : "are");
        return;
    case EXPLAIN_ASSIGNED:
        break;
    }
    (void)snprintf(ret, size, "waits for the next scheduling round");
}

/* Whether it would have devices, or more, if only more were there. */
static bool lacks_devices(enum explain_code code)
{
    return code == EXPLAIN_INSUFFICIENT || code == EXPLAIN_FRAGMENTED || code == EXPLAIN_DRAINED ||
           code == EXPLAIN_TOO_SMALL || code == EXPLAIN_NO_CLASS || code == EXPLAIN_SHRUNK;
}

void explain_wait_text(const struct explain_wait *w, char *ret, size_t size)
{
    size_t at;

    say_cause(w, ret, size);
    at = strlen(ret);
    if (w->elsewhere > 0 && lacks_devices(w->code))
        (void)snprintf(ret + at, size - at, "; %d of other classes %s free, but it stays on the class it began on",
                       w->elsewhere, w->elsewhere == 1 ? "is" : "are");
}

static void help_text(const struct explain_help *h, char *ret, size_t size)
{
    switch (h->kind) {
    case EXPLAIN_END_JOB:
        (void)snprintf(ret, size, "wait for j%llu to end, or cancel or suspend it", (unsigned long long)h->job);
        return;
    case EXPLAIN_LOWER_MIN:
        (void)snprintf(ret, size, "lower devices.min to %d", h->n);
        return;
    case EXPLAIN_PRIORITY:
        (void)snprintf(ret, size, "raise its priority above that of j%llu", (unsigned long long)h->job);
        return;
    case EXPLAIN_UNDRAIN:
        (void)snprintf(ret, size, "undrain a node");
        return;
    case EXPLAIN_ADD_NODE:
        (void)snprintf(ret, size, "start muster-agent on a node with such devices");
        return;
    case EXPLAIN_WIDEN:
        (void)snprintf(ret, size, "lower devices.min or allow more classes");
        return;
    case EXPLAIN_SHORTEN:
        (void)snprintf(ret, size, "give it a shorter time limit");
        return;
    case EXPLAIN_RELEASE:
        (void)snprintf(ret, size, "let it change classes (devices.class_change: at_checkpoint)");
        return;
    case EXPLAIN_RAISE_RUNNING:
        (void)snprintf(ret, size, "wait for one of those to end, or raise that ceiling");
        return;
    case EXPLAIN_RAISE_POWER:
        (void)snprintf(ret, size, "wait for a job to end, or raise musterd --power-cap");
        return;
    case EXPLAIN_RAISE_MAX:
        (void)snprintf(ret, size, "raise devices.max to %d", h->n);
        return;
    case EXPLAIN_RAISE_QUOTA:
        if (h->n > 0)
            (void)snprintf(ret, size, "raise the quota of its project to %d", h->n);
        else
            (void)snprintf(ret, size, "raise the quota of its project, or end another of its jobs");
        return;
    }
    ret[0] = '\0';
}

static void print_string(const char *text, struct buf *out)
{
    (void)buf_printf(out, "\"");
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        (void)buf_printf(out, *p < 0x20 || *p == '"' || *p == '\\' ? "\\u%04x" : "%c", *p);
    (void)buf_printf(out, "\"");
}

static void print_classes(const struct explain_cause *c, const char *const *types, struct buf *out)
{
    (void)buf_printf(out, ", \"classes\": [");
    for (size_t i = 0; i < c->n_classes; i++) {
        (void)buf_printf(out, "%s{\"class\": ", i ? ", " : "");
        print_string(types[c->classes[i].type], out);
        (void)buf_printf(out, ", \"total\": %d, \"free\": %d, \"drained\": %d, \"spare\": %d}", c->classes[i].total,
                         c->classes[i].free, c->classes[i].drained, c->classes[i].spare);
    }
    (void)buf_printf(out, "]");
}

static void print_time(const char *name, int64_t us, struct buf *out)
{
    char at[CLOCK_RFC3339_MAX];

    if (us > 0)
        clock_rfc3339(us, at);
    (void)buf_printf(out, us > 0 ? "\"%s\": \"%s\"" : "\"%s\": null", name, us > 0 ? at : "");
}

void explain_print_forecast(const struct forecast *f, struct buf *out)
{
    (void)buf_printf(out, "{");
    print_time("at", f->start_us, out);
    (void)buf_printf(out, ", \"basis\": \"%s\", ", forecast_basis_name(f->basis));
    print_time("latest", f->latest_us, out);
    (void)buf_printf(out, f->after ? ", \"after\": \"j%llu\"}" : ", \"after\": null}", (unsigned long long)f->after);
}

int explain_print(const struct explain_cause *c, const char *const *types, struct buf *out)
{
    char text[256];

    explain_wait_text(&c->wait, text, sizeof(text));
    (void)buf_printf(out,
                     "{\"code\": \"%s\", \"text\": \"%s\", \"need\": %d, \"free\": %d, \"elsewhere\": "
                     "%d, \"class\": ",
                     explain_code_name(c->wait.code), text, c->wait.need, c->wait.free, c->wait.elsewhere);
    if (c->n_classes == 1)
        print_string(types[c->classes[0].type], out);
    else
        (void)buf_printf(out, "null");
    (void)buf_printf(out, ", \"behind\": [");
    for (size_t i = 0; i < c->n_behind; i++)
        (void)buf_printf(out, "%s\"j%llu\"", i ? ", " : "", (unsigned long long)c->behind[i]);
    (void)buf_printf(out, "], \"would_help\": [");
    for (size_t i = 0; i < c->n_help; i++) {
        help_text(&c->help[i], text, sizeof(text));
        (void)buf_printf(out, "%s\"%s\"", i ? ", " : "", text);
    }
    (void)buf_printf(out, "]");
    print_classes(c, types, out);
    (void)buf_printf(out, ", \"starts\": ");
    explain_print_forecast(&c->forecast, out);
    (void)buf_printf(out, "}");
    return buf_failed(out) ? -EMSGSIZE : 0;
}
