#include "api/protocol/incident.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/protocol/assignment.h"
#include "base/utf8.h"
#include "scheduler/diagnose/words.h"

const char *const incident_kind_names[INCIDENT_KINDS] = {"hang", "failure", "look"};

static const struct wire_field verdict_fields[] = {
    {.name = "class",
     .kind = WIRE_TEXT,
     WIRE_AT(incident_verdict, class_),
     .what = "`none`, `stopped`, `not-entered`, `phase`, `in-call`, `cycle`, `differs`; of a failure: `failure`"},
    {.name = "text", .kind = WIRE_TEXT, .flags = WIRE_CUT, WIRE_AT(incident_verdict, text), .what = "in one sentence"},
    {.name = "roots",
     .kind = WIRE_INTS,
     WIRE_AT(incident_verdict, roots),
     WIRE_COUNT(incident_verdict, n_roots),
     .min = 0,
     .max = PLAN_RANKS_MAX - 1,
     .most = HANG_ROOTS_MAX,
     .what = "ranks at fault, as many as are named"},
    {.name = "waiting",
     .kind = WIRE_LONG,
     WIRE_AT(incident_verdict, waiting),
     .min = 0,
     .max = PLAN_RANKS_MAX,
     .what = "ranks that wait in something"},
    {.name = "waiter",
     .kind = WIRE_INT,
     WIRE_AT(incident_verdict, waiter),
     .min = -1,
     .max = PLAN_RANKS_MAX - 1,
     .fallback = -1,
     .what = "one that waits for the first of `roots`; -1: none"},
};

const struct wire_message incident_verdict_message = {
    .name = "incident-verdict",
    .what = "Who holds up a run.",
    WIRE_MESSAGE(incident_verdict, verdict_fields),
};

static const struct wire_field rank_fields[] = {
    {.name = "node", .kind = WIRE_TEXT, .flags = WIRE_CUT, WIRE_AT(incident_rank, node), .what = "where it runs"},
    {.name = "told",
     .kind = WIRE_STRUCT,
     .flags = WIRE_NEEDED,
     WIRE_AT(incident_rank, told),
     .of = &report_rank_message,
     .what = "what its agent told of it last"},
};

const struct wire_message incident_rank_message = {
    .name = "incident-rank",
    .what = "A rank in an incident.",
    WIRE_MESSAGE(incident_rank, rank_fields),
};

static const struct wire_field fields[] = {
    {.name = "version",
     .kind = WIRE_INT,
     .flags = WIRE_NEEDED,
     WIRE_AT(incident, version),
     .min = 1,
     .max = INT32_MAX,
     .what = "of this form"},
    {.name = "job", .kind = WIRE_TEXT, .flags = WIRE_NEEDED, WIRE_AT(incident, job), .min = 1, .what = "its id"},
    {.name = "generation",
     .kind = WIRE_LONG,
     .flags = WIRE_NEEDED,
     WIRE_AT(incident, generation),
     .min = 1,
     .max = INT64_MAX,
     .what = "of the job: the run's number"},
    {.name = "number",
     .kind = WIRE_LONG,
     WIRE_AT(incident, number),
     .min = 0,
     .max = INT64_MAX,
     .what = "of the run's incidents; 0: it is kept nowhere"},
    {.name = "kind",
     .kind = WIRE_ENUM,
     WIRE_AT(incident, kind),
     WIRE_NAMES(incident_kind_names),
     .what = "it stood still, a rank failed, or somebody looked"},
    {.name = "at_ms", .kind = WIRE_LONG, WIRE_AT(incident, at_ms), .min = 0, .max = INT64_MAX, .what = "wall time"},
    {.name = "layout",
     .kind = WIRE_STRUCT,
     WIRE_AT(incident, layout),
     .of = &assignment_layout_message,
     .what = "of the ranks"},
    {.name = "verdict",
     .kind = WIRE_STRUCT,
     WIRE_AT(incident, verdict),
     .of = &incident_verdict_message,
     .what = "as it was told"},
    {.name = "ranks",
     .kind = WIRE_LIST,
     WIRE_AT(incident, ranks),
     WIRE_COUNT(incident, n_ranks),
     .most = PLAN_RANKS_MAX,
     .of = &incident_rank_message,
     .what = "by rank: what the verdict comes from, and nothing else"},
    {.name = "parts",
     .kind = WIRE_JSON,
     .flags = WIRE_OMIT,
     WIRE_AT(incident, parts),
     .type = JSON_ARRAY,
     .what = "what machines told beyond that, as `evidence` messages"},
};

const struct wire_message incident_message = {
    .name = "incident",
    .what = "What was known of a run's ranks when it stood still or failed, or was looked at; `GET "
            "/v1/jobs/{id}/incidents/{n}`, and a file for `muster diagnose --dump`.",
    WIRE_MESSAGE(incident, fields),
};

int incident_read(const json_t *doc, struct incident *ret, struct merr *err)
{
    const json_t *version = json_object_get(doc, "version");
    struct incident i = {.version = 0};
    int r;

    if (json_is_integer(version) && json_integer_value(version) != INCIDENT_VERSION)
        return merr_set(err, -EPROTO,
                        "the dump is of version %lld, this program reads version %d: use the muster of the release "
                        "that wrote it",
                        (long long)json_integer_value(version), INCIDENT_VERSION);
    r = wire_read(&incident_message, doc, &i, err);
    if (r < 0)
        return r;
    for (size_t k = 0; k < i.n_ranks; k++)
        if (i.ranks[k].told.rank != (int)k) {
            r = merr_set(err, -EINVAL, "ranks[%zu] is rank %d: they stand in order, from 0", k, i.ranks[k].told.rank);
            incident_clear(&i);
            return r;
        }
    *ret = i;
    return 0;
}

json_t *incident_write(const struct incident *i)
{
    struct incident now = *i;

    now.version = INCIDENT_VERSION;
    return wire_write(&incident_message, &now);
}

void incident_clear(struct incident *i)
{
    wire_clear(&incident_message, i);
}

/* --- judging ----------------------------------------------------------------------------------------- */

static const char *group_name(const struct report_stall *s)
{
    for (size_t i = 0; i < s->n_groups; i++)
        if (s->groups[i].key == s->key)
            return s->groups[i].name;
    return "";
}

struct order { /* of a rank, with its window */
    struct order_list list;
    uint32_t window[OPS_WINDOW];
};

/* A window that cannot be read says nothing. */
static void take_order(const struct report_order *told, struct order *ret)
{
    size_t n = strlen(told->window) / 8;

    ret->list.n = 0;
    if (strspn(told->window, "0123456789abcdef") != 8 * n)
        return;
    for (size_t i = 0; i < n; i++) {
        char word[9];

        (void)snprintf(word, sizeof(word), "%.8s", told->window + 8 * i);
        ret->window[i] = (uint32_t)strtoul(word, NULL, 16);
    }
    ret->list = (struct order_list){.role = (uint32_t)told->role,
                                    .span = {(uint64_t)told->span, (uint64_t)told->span_before},
                                    .ops = {(uint64_t)told->ops, (uint64_t)told->ops_before},
                                    .odd = (uint64_t)told->odd,
                                    .window = ret->window,
                                    .n = n};
}

static enum hang_phase phase_of(const struct report_rank *told)
{
    return told->stall.beats ? HANG_RUNS : words_phase(told->phase);
}

int64_t incident_limit_us(const struct report_rank *told)
{
    const struct report_stall *s = &told->stall;

    return hang_limit_us(
        &(struct hang_rank){
            .stopped = s->stopped, .phase = phase_of(told), .usual_us = s->usual_us, .allowed_us = s->allowed_us},
        s->gap_us);
}

/* A rank as the judge takes it; group has room for all of its groups. */
static void take_rank(const struct incident_rank *from, size_t n, struct hang_group *group, struct order *order,
                      struct hang_rank *ret, struct words_rank *ret_of)
{
    const struct report_stall *s = &from->told.stall;

    take_order(&s->order, order);
    for (size_t i = 0; i < s->n_groups; i++)
        group[i] = (struct hang_group){.key = (uint64_t)s->groups[i].key,
                                       .entered = (uint64_t)s->groups[i].entered,
                                       .size = s->groups[i].size,
                                       .digest = (uint32_t)s->groups[i].digest};
    *ret_of = (struct words_rank){.node = from->node,
                                  .phase = from->told.phase,
                                  .op = s->op,
                                  .group = group_name(s),
                                  .section = s->section,
                                  .beats = s->beats,
                                  .frozen = s->frozen,
                                  .step = from->told.step < 0 ? 0 : (uint64_t)from->told.step};
    *ret = (struct hang_rank){.told = s->idle_us > 0,
                              .stopped = s->stopped,
                              .inside = s->op[0] != '\0',
                              .peer = s->peer < (int)n ? s->peer : -1,
                              .key = (uint64_t)s->key,
                              .call = (uint64_t)s->call,
                              .sends = strcmp(s->op, "send") == 0,
                              .phase = phase_of(&from->told),
                              .step = ret_of->step,
                              .idle_us = s->idle_us,
                              .gap_us = s->gap_us,
                              .usual_us = s->usual_us,
                              .allowed_us = s->allowed_us,
                              .order = order->list.n > 0 ? &order->list : NULL,
                              .group = group,
                              .n_groups = s->n_groups};
}

static int judge(bool odd, const struct incident_rank *ranks, size_t n, struct hang_verdict *ret, struct buf *text)
{
    struct hang_rank *hang = calloc(n + 1, sizeof(*hang));
    struct words_rank *of = calloc(n + 1, sizeof(*of));
    struct order *order = malloc((n + 1) * sizeof(*order));
    struct hang_group *group;
    size_t groups = 0;
    bool beats = false; /* nothing else is known */
    int r = -ENOMEM;

    for (size_t i = 0; i < n; i++) {
        groups += ranks[i].told.stall.n_groups;
        beats = beats || ranks[i].told.stall.beats;
    }
    beats = beats && groups == 0;
    group = calloc(groups + 1, sizeof(*group));
    if (hang && of && group && order) {
        groups = 0;
        for (size_t i = 0; i < n; i++) {
            take_rank(&ranks[i], n, &group[groups], &order[i], &hang[i], &of[i]);
            groups += hang[i].n_groups;
        }
        if (beats && !odd)
            hang_judge_beats(hang, n, ret);
        r = odd ? hang_odd(hang, n, ret) : beats ? 0 : hang_judge(hang, n, ret);
        if (r == 0 && text)
            words_verdict(hang, of, n, ret, text);
    }
    free(hang);
    free(of);
    free(group);
    free(order);
    return r;
}

int incident_judge(const struct incident_rank *ranks, size_t n, struct hang_verdict *ret, struct buf *text)
{
    return judge(false, ranks, n, ret, text);
}

int incident_judge_odd(const struct incident_rank *ranks, size_t n, struct hang_verdict *ret, struct buf *text)
{
    return judge(true, ranks, n, ret, text);
}

int incident_verdict(const struct hang_verdict *v, const char *text, struct incident_verdict *ret)
{
    size_t n = v->roots < HANG_ROOTS_MAX ? v->roots : HANG_ROOTS_MAX;
    struct incident_verdict to = {.waiting = (int64_t)v->waiting, .waiter = v->waiter, .n_roots = n};

    to.roots = calloc(n + 1, sizeof(*to.roots));
    if (!to.roots)
        return -ENOMEM;
    memcpy(to.roots, v->root, n * sizeof(*to.roots));
    (void)snprintf(to.class_, sizeof(to.class_), "%s", hang_class_name(v->class_));
    utf8_copy(to.text, sizeof(to.text), text);
    *ret = to;
    return 0;
}
