#include "server/control/outlook.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "scheduler/cluster/forecast.h"
#include "scheduler/cluster/snapshot.h"
#include "server/cluster/cluster.h"
#include "server/control/readers.h"
#include "server/control/round.h"
#include "server/control/state.h"
#include "server/control/view.h"
#include "server/http/call.h"

/* --- the outlook of a snapshot ------------------------------------------------------------------------ */

struct outlook {
    struct sched_plan plan;
    struct forecast *of; /* in.n_jobs */
};

static void clear(struct outlook *o)
{
    if (o->plan.verdicts)
        sched_plan_clear(&o->plan);
    free(o->of);
}

static int look(struct snapshot *s, struct outlook *ret, struct merr *err)
{
    int r = sched_schedule(&s->in, &ret->plan, err);

    if (r < 0) {
        ret->plan.verdicts = NULL;
        return r;
    }
    ret->of = calloc(s->in.n_jobs + 1, sizeof(*ret->of));
    r = ret->of ? forecast_all(&s->in, &ret->plan, ret->of) : -ENOMEM;
    return r < 0 ? merr_set(err, r, "out of memory") : 0;
}

static bool waits(const struct sched_verdict *v)
{
    return v->n == 0;
}

/* When a job starts, -1: nobody knows. What the round starts at once starts now. */
static int64_t start_us(const struct snapshot *s, const struct outlook *o, size_t i)
{
    return s->jobs[i].n_places > 0 || !waits(&o->plan.verdicts[i]) ? s->in.config.now_us : o->of[i].start_us;
}

/* Until when it runs, from a start on at the speed that the round gives it; -1: nobody knows. */
static int64_t end_us(const struct snapshot *s, const struct outlook *o, size_t i)
{
    const struct sched_verdict *v = &o->plan.verdicts[i];
    int64_t begin = start_us(s, o, i), left;

    if (begin < 0)
        return -1;
    left = sched_left_us(&s->jobs[i], waits(v) ? 0 : v->shape.rate_ups);
    return left >= SCHED_LEFT_UNKNOWN ? -1 : begin + left;
}

static json_t *job_name(uint64_t id)
{
    return id ? json_sprintf("j%llu", (unsigned long long)id) : json_null();
}

static json_t *time_of(int64_t us)
{
    return us > 0 ? cluster_time(us) : json_null();
}

static json_t *classes_of(const struct snapshot *s, const struct sched_job *j, const struct sched_verdict *v)
{
    json_t *list = json_array();

    for (size_t t = 0; t < s->n_types; t++)
        if (waits(v) ? sched_job_types(j) >> t & 1 : v->shape.type[0] == (int8_t)t || v->shape.type[1] == (int8_t)t)
            (void)json_array_append_new(list, json_string(s->types[t]));
    return list;
}

static json_t *view_of(const struct snapshot *s, const struct outlook *o, size_t i)
{
    const struct sched_verdict *v = &o->plan.verdicts[i];
    const struct sched_job *j = &s->jobs[i];
    bool known = start_us(s, o, i) >= 0;

    return json_pack("{s:o, s:b, s:i, s:o, s:o, s:o, s:s, s:o}", "job", job_name(j->id), "runs", j->n_places > 0,
                     "devices", waits(v) ? j->min : v->shape.n[0] + v->shape.n[1], "classes", classes_of(s, j, v),
                     "starts", time_of(start_us(s, o, i)), "ends", time_of(end_us(s, o, i)), "basis",
                     !waits(v) ? "round" : forecast_basis_name(known ? o->of[i].basis : FORECAST_UNKNOWN), "after",
                     job_name(waits(v) ? o->of[i].after : 0));
}

/* --- GET /v1/cluster/plan ----------------------------------------------------------------------------- */

static json_t *plan_new(struct snapshot *s, struct merr *err)
{
    struct outlook o = {.of = NULL};
    json_t *jobs = json_array(), *answer = NULL;
    size_t left = 0;

    if (look(s, &o, err) == 0) {
        for (size_t i = 0; i < s->in.n_jobs; i++) {
            if (json_array_size(jobs) < OUTLOOK_JOBS_MAX)
                (void)json_array_append_new(jobs, view_of(s, &o, i));
            else
                left++;
        }
        answer = json_pack("{s:o, s:O, s:I}", "at", cluster_time(s->in.config.now_us), "jobs", jobs, "left_out",
                           (json_int_t)left);
    }
    json_decref(jobs);
    clear(&o);
    return answer;
}

/* --- POST /v1/cluster/what-if ------------------------------------------------------------------------- */

static struct sched_job *find_job(struct snapshot *s, const json_t *name)
{
    uint64_t id = json_is_string(name) ? job_id_parse(json_string_value(name)) : 0;

    for (size_t i = 0; id != 0 && i < s->in.n_jobs; i++)
        if (s->jobs[i].id == id)
            return &s->jobs[i];
    return NULL;
}

/* {"class", "nodes", "devices"}: so many more nodes. */
static int add_nodes(struct snapshot *s, const json_t *add, struct merr *err)
{
    const char *name = json_string_value(json_object_get(add, "class"));
    json_int_t nodes = json_integer_value(json_object_get(add, "nodes"));
    json_int_t devices = json_integer_value(json_object_get(add, "devices"));
    struct sched_node node = {.leaf = SCHED_NODES_MAX - 1};
    size_t type = 0;

    if (!name || nodes < 1 || nodes > OUTLOOK_NODES_MAX || devices < 1 || devices > SCHED_NODE_DEVICES_MAX)
        return merr_set(err, -EINVAL, "'add_nodes' wants a class, 1 to %d nodes, and 1 to %d devices of each",
                        OUTLOOK_NODES_MAX, SCHED_NODE_DEVICES_MAX);
    while (type < s->n_types && strcmp(s->types[type], name) != 0)
        type++;
    if (type == s->n_types)
        return merr_set(err, -EINVAL,
                        "'add_nodes': no node has devices of class '%.63s', so no job's speed on them is "
                        "known",
                        name);
    node.type = (uint8_t)type;
    node.devices = (int32_t)devices;
    for (json_int_t i = 0; i < nodes; i++)
        if (snapshot_add_node(s, node) < 0)
            return merr_set(err, -EINVAL, "'add_nodes': so many nodes are more than a round takes");
    return 0;
}

static int whole_number(const json_t *ask, const char *name, json_int_t most, json_int_t *ret, struct merr *err)
{
    const json_t *v = json_object_get(ask, name);

    *ret = json_integer_value(v);
    if (v && (!json_is_integer(v) || *ret < 0 || *ret > most))
        return merr_set(err, -EINVAL, "'%s' is a whole number from 0 to %lld", name, (long long)most);
    return v ? 1 : 0;
}

/* Change the snapshot as it is asked for. 0, -EINVAL with words. */
static int change(struct snapshot *s, struct sched_job *j, const json_t *ask, struct merr *err)
{
    const json_t *add = json_object_get(ask, "add_nodes");
    json_int_t priority, min, max;
    int has_priority = whole_number(ask, "priority", 100, &priority, err);
    int has_min = whole_number(ask, "min", INT32_MAX, &min, err);
    int has_max = whole_number(ask, "max", INT32_MAX, &max, err);

    if (has_priority < 0 || has_min < 0 || has_max < 0)
        return -EINVAL;
    if (has_priority)
        j->weight_milli = sched_weight_milli((int)priority);
    j->min = has_min ? (int32_t)min : j->min;
    j->max = has_max ? (int32_t)max : j->max;
    if (j->min < 1 || j->max < j->min)
        return merr_set(err, -EINVAL, "'min' is at least 1, and at most 'max': %d and %d", j->min, j->max);
    return add ? add_nodes(s, add, err) : 0;
}

/* Others for whom the change makes a difference of more than a second. */
static json_t *others_new(const struct snapshot *before, const struct outlook *was, const struct snapshot *after,
                          const struct outlook *is, size_t job)
{
    json_t *list = json_array();

    for (size_t i = 0; i < before->in.n_jobs && json_array_size(list) < OUTLOOK_JOBS_MAX; i++) {
        int64_t a = start_us(before, was, i), b = start_us(after, is, i);
        int32_t had = was->plan.verdicts[i].shape.n[0] + was->plan.verdicts[i].shape.n[1];
        int32_t has = is->plan.verdicts[i].shape.n[0] + is->plan.verdicts[i].shape.n[1];

        if (i != job && (llabs(a - b) > 1000000 || had != has))
            (void)json_array_append_new(
                list, json_pack("{s:o, s:o, s:o, s:i, s:i}", "job", job_name(before->jobs[i].id), "starts_now",
                                time_of(a), "starts_then", time_of(b), "devices_now", had, "devices_then", has));
    }
    return list;
}

static json_t *answer_new(const char *text, const json_t *ask, struct merr *err)
{
    struct snapshot before, after;
    struct outlook was = {.of = NULL}, is = {.of = NULL};
    struct sched_job *j;
    json_t *answer = NULL;
    int r = snapshot_parse(text, strlen(text), &before, err);

    if (r < 0)
        return NULL;
    r = snapshot_parse(text, strlen(text), &after, err);
    if (r < 0) {
        snapshot_clear(&before);
        return NULL;
    }
    j = find_job(&after, json_object_get(ask, "job"));
    r = j ? change(&after, j, ask, err)
          : merr_set(err, -ENOENT, "'job' is the id of a job that runs or waits for devices, such as \"j17\"");
    r = r == 0 ? look(&before, &was, err) : r;
    r = r == 0 ? look(&after, &is, err) : r;
    if (r == 0) {
        size_t at = (size_t)(j - after.jobs);

        answer = json_pack("{s:o, s:o, s:o, s:o}", "at", cluster_time(before.in.config.now_us), "now",
                           view_of(&before, &was, at), "then", view_of(&after, &is, at), "others",
                           others_new(&before, &was, &after, &is, at));
    }
    clear(&was);
    clear(&is);
    snapshot_clear(&before);
    snapshot_clear(&after);
    return answer;
}

/* --- calls -------------------------------------------------------------------------------------------- */

/* On a reader's thread. */
static void run_outlook(void *core, struct call *call)
{
    json_t *answer = NULL;
    struct snapshot s;
    struct merr err = {.text = ""};

    (void)core;
    if (call->body) {
        answer = answer_new(call->text, call->body, &err);
    } else if (snapshot_parse(call->text, strlen(call->text), &s, &err) == 0) {
        answer = plan_new(&s, &err);
        snapshot_clear(&s);
    }
    if (answer)
        call_answer_new(call, 200, answer);
    else
        call_problem(call, 422, "what-if-invalid", "%s", err.text);
    call->unchanged = true;
    call_deliver(call);
}

/* What a full round would see now, for another thread. */
static void take_snapshot(struct core *c, struct call *call)
{
    const char *types[RATES_TYPES_MAX];
    struct round r;
    struct buf b;

    buf_init(&b, OUTLOOK_BYTES_MAX);
    if (round_init(c, SCHED_FULL, 0, &r) == 0) {
        round_type_names(c, &r, types);
        (void)snapshot_print(&r.in, types, r.n_types, &b);
    }
    round_clear(&r);
    free(call->text);
    call->text = b.len > 0 && !buf_failed(&b) ? buf_detach(&b) : NULL;
    buf_clear(&b);
    if (!call->text) {
        call_problem(call, 503, "no-memory", "no memory for a snapshot, or it is larger than %d bytes",
                     OUTLOOK_BYTES_MAX);
        return;
    }
    call->run = run_outlook;
    c->handed = true;
    readers_post(c->readers, call);
}

void outlook_plan(struct core *c, struct call *call)
{
    take_snapshot(c, call);
}

void outlook_what_if(struct core *c, struct call *call)
{
    call->unchanged = true;
    take_snapshot(c, call);
}
