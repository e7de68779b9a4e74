#include "server/cluster/job_record.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void read_text(char *to, size_t size, const json_t *text)
{
    (void)snprintf(to, size, "%s", json_is_string(text) ? json_string_value(text) : "");
}

static json_t *holders_json(const struct job *j)
{
    json_t *all = j->n_holders > 0 ? json_array() : NULL;

    for (size_t i = 0; i < j->n_holders; i++)
        (void)json_array_append_new(all, json_pack("{s:s, s:s, s:b, s:b}", "node", j->holders[i].node, "address",
                                                   j->holders[i].address, "done", j->holders[i].done, "taken",
                                                   j->holders[i].taken));
    return all;
}

/* [[17, 0, 1], ...]: job, when, is. */
static json_t *after_json(const struct job *j)
{
    json_t *all = j->n_after > 0 ? json_array() : NULL;

    for (size_t i = 0; i < j->n_after; i++)
        (void)json_array_append_new(
            all, json_pack("[I, i, i]", (json_int_t)j->after[i].job, (int)j->after[i].when, (int)j->after[i].is));
    return all;
}

static int read_after(const json_t *list, struct job *j)
{
    size_t n = json_array_size(list);

    if (n == 0)
        return 0;
    j->after = n <= SPEC_AFTER_MAX ? calloc(n, sizeof(*j->after)) : NULL;
    if (!j->after)
        return n <= SPEC_AFTER_MAX ? -ENOMEM : -EINVAL;
    j->n_after = n;
    for (size_t i = 0; i < n; i++) {
        json_int_t v[3] = {0};

        for (size_t k = 0; k < 3; k++)
            v[k] = json_integer_value(json_array_get(json_array_get(list, i), k));
        if (v[0] < 1 || v[1] < 0 || v[1] >= JOB_WHENS || v[2] < 0 || v[2] > JOB_IS_BROKEN)
            return -EINVAL;
        j->after[i] = (struct job_after){(uint64_t)v[0], (enum job_when)v[1], (enum job_is)v[2]};
    }
    return 0;
}

enum field_kind { ARRAY_OF_CHAR, TEXT, OBJECT, BOOL, INT, INT32U, INT64, INT64_EVEN_0, REAL };

/* Members that are kept as they are. What is 0 or empty is left out, as most of a new job's record is; but of records
 * from before the two times were kept, the absence means another thing. */
#define FIELD(kind, member)                                                                                            \
    {                                                                                                                  \
#member, offsetof(struct job, member), sizeof(((struct job *)NULL)->member), kind                              \
    }
static const struct field {
    const char *name;
    size_t at, size;
    enum field_kind kind;
} fields[] = {
    FIELD(INT64, id),
    FIELD(ARRAY_OF_CHAR, name),
    FIELD(ARRAY_OF_CHAR, project),
    FIELD(ARRAY_OF_CHAR, user),
    FIELD(ARRAY_OF_CHAR, unix_user),
    FIELD(ARRAY_OF_CHAR, trace),
    FIELD(INT, priority),
    FIELD(INT, min),
    FIELD(INT, max),
    FIELD(INT, retry_max),
    FIELD(INT, retry_user),
    FIELD(BOOL, live),
    FIELD(INT32U, generation),
    FIELD(INT64, version),
    FIELD(INT, restarts_user),
    FIELD(INT, restarts_system),
    FIELD(INT, restarts_node),
    FIELD(INT64, submitted_us),
    FIELD(INT64, started_us),
    FIELD(INT64, finished_us),
    FIELD(INT64, retry_us),
    FIELD(INT, master_port),
    FIELD(OBJECT, outcome),
    FIELD(ARRAY_OF_CHAR, reason_code),
    FIELD(TEXT, reason_text),
    FIELD(OBJECT, progress),
    FIELD(OBJECT, eval),
    FIELD(OBJECT, checkpoint),
    FIELD(OBJECT, config),
    FIELD(OBJECT, summary),
    FIELD(INT64_EVEN_0, waiting_us),
    FIELD(INT64_EVEN_0, changed_us),
    FIELD(INT64, device_us),
    FIELD(INT, rescales),
    FIELD(ARRAY_OF_CHAR, home),
    FIELD(OBJECT, plan),
    FIELD(REAL, step_ms),
    FIELD(INT64, drain_by_us),
    FIELD(REAL, energy_j),
    FIELD(REAL, run_energy_j),
    FIELD(INT64, energy_us),
    FIELD(INT64, run_energy_us),
    FIELD(BOOL, moves),
    FIELD(INT64, estimate.made_us),
    FIELD(INT64, estimate.start_us),
    FIELD(INT64, estimate.late_us),
    FIELD(INT64, estimate.after),
    FIELD(ARRAY_OF_CHAR, estimate.basis),
    FIELD(INT64, assigned),
    FIELD(BOOL, link_suspect),
    FIELD(OBJECT, labels),
    FIELD(INT64, shipped),
    FIELD(INT64, saved_step),
    FIELD(INT, tasks),
    FIELD(INT, max_running),
    FIELD(INT64, array),
    FIELD(INT, task_index),
    FIELD(OBJECT, params),
    FIELD(BOOL, after_hold),
    FIELD(BOOL, singleton),
    FIELD(ARRAY_OF_CHAR, reservation),
    FIELD(INT, time_s),
    FIELD(INT, queue_s),
    FIELD(INT, warn_s),
    FIELD(INT64, finish_by_us),
    FIELD(BOOL, told_late),
    FIELD(INT64, ran_us),
    FIELD(INT, warned_s),
    FIELD(INT32U, warned_in),
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static json_t *integer_unless_0(json_int_t n)
{
    return n != 0 ? json_integer(n) : NULL;
}

/* New; NULL: it is left out, or no memory. */
static json_t *field_json(const struct job *j, const struct field *f)
{
    const void *at = (const char *)j + f->at;
    json_t *object;
    const char *text;

    switch (f->kind) {
    case ARRAY_OF_CHAR:
        return *(const char *)at ? json_string(at) : NULL;
    case TEXT:
        memcpy(&text, at, sizeof(text));
        return text ? json_string(text) : NULL;
    case OBJECT:
        memcpy(&object, at, sizeof(object));
        return json_incref(object);
    case BOOL:
        return *(const bool *)at ? json_true() : NULL;
    case INT:
        return integer_unless_0(*(const int *)at);
    case INT32U:
        return integer_unless_0(*(const uint32_t *)at);
    case INT64:
        return integer_unless_0(*(const int64_t *)at);
    case INT64_EVEN_0:
        return json_integer(*(const int64_t *)at);
    default:
        return *(const double *)at != 0 ? json_real(*(const double *)at) : NULL;
    }
}

json_t *job_record(const struct job *j)
{
    static const struct act_history none;
    json_t *o =
        json_pack("{s:s, s:s, s:s, s:o*, s:o*, s:o*, s:o*, s:o*}", "kind", j->kind == JOB_TRAIN ? "train" : "command",
                  "state", job_state_name(j->state), "intent", job_intent_name(j->intent), "assignment",
                  j->n_places > 0 ? job_places_json(j->places, j->n_places) : NULL, "layout",
                  j->layout.world > 0 ? job_layout_json(&j->layout) : NULL, "holders", holders_json(j), "after",
                  after_json(j), "past", memcmp(&j->past, &none, sizeof(none)) != 0 ? job_past_json(&j->past) : NULL);

    for (size_t i = 0; i < FIELDS; i++) {
        json_t *value = field_json(j, &fields[i]);

        if (value)
            (void)json_object_set_new_nocheck(o, fields[i].name, value);
    }
    return o;
}

static int read_holders(const json_t *list, struct job *j)
{
    size_t n = json_array_size(list);
    struct job_holder *h = n > 0 && n <= PLAN_RANKS_MAX ? calloc(n, sizeof(*h)) : NULL;

    if (n > 0 && !h)
        return n > PLAN_RANKS_MAX ? -EINVAL : -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const json_t *o = json_array_get(list, i);

        read_text(h[i].node, sizeof(h[i].node), json_object_get(o, "node"));
        read_text(h[i].address, sizeof(h[i].address), json_object_get(o, "address"));
        h[i].done = json_is_true(json_object_get(o, "done"));
        h[i].taken = json_is_true(json_object_get(o, "taken"));
    }
    job_hold(j, h, n);
    return 0;
}

/* What has the wrong type stays as it is. */
static void read_field(const json_t *o, const struct field *f, struct job *j)
{
    json_t *v = json_object_get(o, f->name);
    const char *text = json_string_value(v);
    void *at = (char *)j + f->at;

    if (f->kind == ARRAY_OF_CHAR) {
        read_text(at, f->size, v);
    } else if (f->kind == TEXT && text) {
        text = strdup(text);
        memcpy(at, &text, sizeof(text));
    } else if (f->kind == OBJECT && json_is_object(v)) {
        memcpy(at, &v, sizeof(v));
        json_incref(v);
    } else if (f->kind == BOOL) {
        *(bool *)at = json_is_true(v);
    } else if (f->kind == INT && json_is_integer(v)) {
        *(int *)at = (int)json_integer_value(v);
    } else if (f->kind == INT32U) {
        *(uint32_t *)at = (uint32_t)json_integer_value(v);
    } else if ((f->kind == INT64 || f->kind == INT64_EVEN_0) && json_is_integer(v)) {
        *(int64_t *)at = json_integer_value(v);
    } else if (f->kind == REAL) {
        *(double *)at = json_number_value(v);
    }
}

/* Whether the rest of the server can work with it: what a record has beyond this cannot hurt. */
static bool is_sound(const struct job *j, const char *kind)
{
    if ((j->kind == JOB_COMMAND && strcmp(kind, "command") != 0) || j->priority < 0 || j->priority > 100 ||
        j->min < 1 || j->max < j->min || j->time_s < 0 || j->queue_s < 0 || j->warn_s < 0 ||
        j->generation > INT32_MAX || j->tasks < 0 || (j->tasks > 0 && j->live))
        return false;
    for (size_t i = 0; i < j->n_places; i++)
        if (j->places[i].slot < 0 || j->places[i].leaves < 0)
            return false;
    if (!j->live)
        return j->n_places == 0;
    return !job_ended(j->state) && j->n_places > 0 && j->generation > 0;
}

int job_from_record(const json_t *o, struct job *j)
{
    const char *kind = json_string_value(json_object_get(o, "kind"));
    const json_t *layout = json_object_get(o, "layout"), *submitted = json_object_get(o, "submitted_us");
    int intent = job_intent_parse(json_string_value(json_object_get(o, "intent"))), r;
    struct job new = {.intent = (enum job_intent)intent};

    if (json_integer_value(json_object_get(o, "id")) == 0 || !kind || intent < 0 ||
        job_state_parse(json_string_value(json_object_get(o, "state")), &new.state) < 0)
        return -EINVAL;
    r = job_read_places(json_object_get(o, "assignment"), &new.places, &new.n_places);
    if (r == 0)
        r = read_holders(json_object_get(o, "holders"), &new);
    if (r == 0)
        r = read_after(json_object_get(o, "after"), &new);
    if (r < 0) {
        job_clear(&new);
        return r;
    }
    new.kind = strcmp(kind, "train") == 0 ? JOB_TRAIN : JOB_COMMAND;
    new.waiting_us = new.changed_us = json_integer_value(submitted); /* of records before these were kept */
    for (size_t i = 0; i < FIELDS; i++)
        read_field(o, &fields[i], &new);
    if (layout)
        job_read_layout(layout, &new.layout);
    job_read_past(json_object_get(o, "past"), &new.past);
    if (!is_sound(&new, kind)) {
        job_clear(&new);
        return -EINVAL;
    }
    *j = new;
    return 0;
}
