#include "server/cluster/job.h"
#include "server/cluster/job_time.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/spec_after.h"
#include "base/clock.h"
#include "server/cluster/job_record.h"

#define PAST_MAX 1000000 /* failures, of a record that can be believed */

static const char *const state_name[JOB_STATES] = {
    "queued", "starting", "running", "rescaling", "suspended", "recovering", "succeeded", "failed", "cancelled",
};
static const char *const intent_name[] = {"go-on", "cancel", "suspend", "requeue", "fail", "rescale", "time-up"};
#define INTENTS (sizeof(intent_name) / sizeof(intent_name[0]))
static const char *const class_name[] = {"none", "done", "user", "system", "node", "cancelled"};

const char *job_state_name(enum job_state state)
{
    assert(state < JOB_STATES);
    return state_name[state];
}

const char *job_class_name(enum job_class c)
{
    assert((size_t)c < sizeof(class_name) / sizeof(class_name[0]));
    return class_name[c];
}

static int find(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; name && i < n; i++)
        if (strcmp(names[i], name) == 0)
            return (int)i;
    return -EINVAL;
}

const char *job_intent_name(enum job_intent intent)
{
    assert((size_t)intent < INTENTS);
    return intent_name[intent];
}

int job_intent_parse(const char *name)
{
    return find(intent_name, INTENTS, name);
}

int job_state_parse(const char *name, enum job_state *ret)
{
    int i = find(state_name, JOB_STATES, name);

    if (i < 0)
        return i;
    *ret = (enum job_state)i;
    return 0;
}

bool job_ended(enum job_state state)
{
    return state == JOB_SUCCEEDED || state == JOB_FAILED || state == JOB_CANCELLED;
}

bool job_waits(const struct job *j)
{
    if (j->tasks > 0)
        return false;
    return j->state == JOB_QUEUED || ((j->state == JOB_RECOVERING || j->state == JOB_RESCALING) && !j->live);
}

const char *job_order(const struct job *j)
{
    if (j->intent == JOB_CANCEL || j->intent == JOB_FAIL || j->state == JOB_RECOVERING)
        return "stop";
    return j->intent != JOB_GO_ON ? "drain" : "run";
}

uint64_t job_id_parse(const char *text)
{
    uint64_t id = 0;

    if (!text || text[0] != 'j' || text[1] < '1' || text[1] > '9')
        return 0;
    for (const char *p = text + 1; *p; p++) {
        if (*p < '0' || *p > '9' || p - text > 15)
            return 0;
        id = id * 10 + (uint64_t)(*p - '0');
    }
    return id;
}

uint64_t job_incident(const struct job *j, uint32_t generation)
{
    return (uint64_t)generation << 40 ^ j->id;
}

enum act_class job_exit_class(enum job_kind kind, const struct rank_exit *e)
{
    enum exit_cause fault = exit_fault(e, kind);

    if (kind == JOB_TRAIN && e->cause == EXIT_CAUSE_NUMBERS)
        return ACT_NUMERIC;
    if (kind == JOB_TRAIN && e->cause == EXIT_CAUSE_REPLICA)
        return ACT_REPLICA;
    return fault == EXIT_CAUSE_USER ? ACT_USER : fault == EXIT_CAUSE_NODE ? ACT_DEVICE : ACT_CRASH;
}

enum job_class job_class_of(enum act_class class_)
{
    return class_ == ACT_USER                                                    ? JOB_CLASS_USER
           : class_ == ACT_LOST || class_ == ACT_DEVICE || class_ == ACT_REPLICA ? JOB_CLASS_NODE
                                                                                 : JOB_CLASS_SYSTEM;
}

static void copy(char *to, size_t size, const char *from)
{
    (void)snprintf(to, size, "%s", from ? from : "");
}

/* An object of "key=value" texts, new; NULL: there are none, or no memory. */
static json_t *labels_json(char *const *labels)
{
    json_t *all = labels && *labels ? json_object() : NULL;

    for (; all && *labels; labels++) {
        const char *eq = strchr(*labels, '=');

        (void)json_object_setn_new(all, *labels, (size_t)(eq - *labels), json_string(eq + 1));
    }
    return all;
}

/* The jobs that one comes after, as its spec has them; *ret_n of them, 0 without memory. */
static struct job_after *after_of(const json_t *list, size_t *ret_n)
{
    size_t n = json_array_size(list);
    struct job_after *v = n > 0 && n <= SPEC_AFTER_MAX ? calloc(n, sizeof(*v)) : NULL;

    *ret_n = v ? n : 0;
    for (size_t i = 0; i < *ret_n; i++) {
        const json_t *o = json_array_get(list, i);
        int when = find(spec_when_names, JOB_WHENS, json_string_value(json_object_get(o, "when")));

        v[i].job = job_id_parse(json_string_value(json_object_get(o, "job")));
        v[i].when = when < 0 ? JOB_AFTER_OK : (enum job_when)when;
    }
    return v;
}

bool job_comes_after(const struct job *j)
{
    for (size_t i = 0; i < j->n_after; i++)
        if (j->after[i].is == JOB_IS_OPEN)
            return true;
    return false;
}

void job_after_text(const struct job *j, const enum job_is *is, char *ret, size_t size)
{
    static const char *const wanted[JOB_WHENS] = {"to succeed", "to end", "to fail", "to start"};
    static const char *const never[JOB_WHENS] = {"has not succeeded", "has not ended", "has not failed",
                                                 "has not started"};
    size_t len = 0, n = 0;

    (void)snprintf(ret, size, "all jobs that it comes after are as wanted");
    for (size_t i = 0; i < j->n_after && len + 1 < size; i++) {
        enum job_is now = is ? is[i] : j->after[i].is;
        enum job_when when = j->after[i].when;

        if (now == JOB_IS_MET)
            continue;
        len += (size_t)snprintf(ret + len, size - len, "%s%sj%llu %s", n++ > 0 ? ", " : "",
                                now == JOB_IS_OPEN ? "waits for " : "", (unsigned long long)j->after[i].job,
                                now == JOB_IS_OPEN ? wanted[when] : never[when]);
    }
}

void job_init(struct job *j, uint64_t id, const struct job_spec *spec, const char *user, int64_t now_us)
{
    assert(id != 0);
    *j = (struct job){
        .id = id,
        .kind = spec->kind,
        .labels = labels_json(spec->labels),
        .priority = spec->priority,
        .min = spec->devices.min,
        .max = spec->devices.max,
        .retry_max = spec->retry.max,
        .retry_user = spec->retry.user,
        .tasks = (int)spec->array.tasks,
        .max_running = spec->array.max_running,
        .time_s = spec->limits.time_s,
        .queue_s = spec->limits.queue_s,
        .warn_s = spec->limits.warn_s,
        .state = JOB_QUEUED,
        .version = 1,
        .submitted_us = now_us,
        .waiting_us = now_us,
    };
    copy(j->name, sizeof(j->name), spec->name);
    copy(j->project, sizeof(j->project), spec->project);
    copy(j->user, sizeof(j->user), user);
    copy(j->reason_code, sizeof(j->reason_code), "submitted");
    j->after = after_of(spec->after, &j->n_after);
    j->after_hold = spec->on_broken == BROKEN_HOLD;
    j->singleton = spec->singleton;
    (void)clock_read_rfc3339(spec->limits.finish_by ? spec->limits.finish_by : "", &j->finish_by_us);
    (void)snprintf(j->reservation, sizeof(j->reservation), "%s", spec->reservation ? spec->reservation : "");
}

void job_hold(struct job *j, struct job_holder *holders, size_t n)
{
    free(j->holders);
    j->holders = holders;
    j->n_holders = n;
}

void job_clear(struct job *j)
{
    free(j->places);
    free(j->holders);
    free(j->after);
    free(j->reason_text);
    json_decref(j->outcome);
    json_decref(j->progress);
    json_decref(j->eval);
    json_decref(j->checkpoint);
    json_decref(j->config);
    json_decref(j->summary);
    json_decref(j->plan);
    json_decref(j->labels);
    json_decref(j->params);
    *j = (struct job){0};
}

/* --- deciding ---------------------------------------------------------------------------------------- */

struct change { /* what an event will say */
    enum job_state to;
    enum job_intent intent;
    bool live;
    uint32_t generation;
    const char *code;
    const char *text;
    enum job_class class_;
    json_t *data; /* owned: further fields */
};

static int no_fit(const struct job *j, struct merr *err, const char *verb)
{
    return merr_set(err, -EPROTO, "job 'j%llu' is %s and cannot be %s", (unsigned long long)j->id, state_name[j->state],
                    verb);
}

json_t *job_places_json(const struct job_place *p, size_t n)
{
    json_t *all = json_array();

    for (size_t i = 0; i < n; i++)
        if (json_array_append_new(all, json_pack("{s:i, s:s, s:i, s:s, s:s, s:i}", "rank", (int)i, "node", p[i].node,
                                                 "slot", p[i].slot, "class", p[i].class_, "address", p[i].address,
                                                 "leaves", p[i].leaves)) < 0) {
            json_decref(all);
            return NULL;
        }
    return all;
}

json_t *job_layout_json(const struct layout *l)
{
    return json_pack("{s:i, s:i, s:i, s:i}", "tp", l->tp, "pp", l->pp, "cp", l->cp, "dp", l->dp);
}

static int assigned(const struct job *j, const struct job_cause *cause, int64_t now_us, struct change *c,
                    struct merr *err)
{
    assert(cause->n_places > 0);
    if (!job_waits(j))
        return no_fit(j, err, "assigned devices");
    if (job_time_backs_off(j, now_us))
        return merr_set(err, -EPROTO, "job 'j%llu' is backing off", (unsigned long long)j->id);
    c->to = JOB_STARTING;
    c->generation = j->generation + 1;
    c->live = true;
    c->intent = JOB_GO_ON;
    c->code = "assigned";
    c->data = json_pack("{s:o, s:o, s:i, s:I, s:O*}", "assignment", job_places_json(cause->places, cause->n_places),
                        "layout", job_layout_json(&cause->layout), "master_port", cause->master_port, "saved_step",
                        json_integer_value(json_object_get(j->checkpoint, "step")), "plan", cause->plan);
    return c->data ? 0 : -ENOMEM;
}

json_t *job_past_json(const struct act_history *h)
{
    return json_pack("{s:I, s:i, s:i, s:i, s:i, s:i, s:I, s:i, s:I, s:i, s:I, s:i, s:I, s:I, s:I}", "incident",
                     (json_int_t)h->incident, "in_a_row", h->in_a_row, "stuck", h->stuck, "soon_lost", h->soon_lost,
                     "disorders", h->disorders, "roll_backs", h->roll_backs, "infra_since_us",
                     (json_int_t)h->infra_since_us, "infra", h->infra, "moves_since_us", (json_int_t)h->moves.since_us,
                     "moves", h->moves.n, "link_moves_since_us", (json_int_t)h->link_moves.since_us, "link_moves",
                     h->link_moves.n, "signature", (json_int_t)h->signature, "signature_step",
                     (json_int_t)h->signature_step, "node", (json_int_t)h->node);
}

/* The outcome that the failure has if the job is not started again, with what was decided; new. */
static json_t *judged_outcome(const struct job_cause *cause, const struct act *act)
{
    json_t *o = json_copy(cause->outcome);
    const char *message = json_string_value(json_object_get(o, "message"));

    (void)json_object_set_new(o, "action", json_string(act_verb_name(act->verb)));
    if (act->back > 0)
        (void)json_object_set_new(o, "back", json_integer(act->back));
    if (act->verb == ACT_FAIL_USER)
        (void)json_object_set_new(o, "class", json_string(class_name[JOB_CLASS_USER]));
    if (*act->why)
        (void)json_object_set_new(o, "message", json_sprintf("%s; %s", message ? message : "", act->why));
    return o;
}

static int fault(const struct job *j, const struct job_cause *cause, int64_t now_us, struct change *c, struct merr *err)
{
    struct act_incident i = *cause->incident;
    struct act_left left = {.system = j->retry_max - j->restarts_system - j->restarts_node,
                            .user = j->retry_user - j->restarts_user};
    struct act act;
    json_t *outcome;
    bool again;

    if (!j->live || j->intent == JOB_CANCEL || j->state == JOB_RECOVERING)
        return no_fit(j, err, "failed by a rank");
    i.id = job_incident(j, j->generation);
    i.now_us = now_us;
    i.began_us = j->changed_us;
    i.saved = j->saved_step;
    act_decide(&left, &j->past, &i, &act);
    again = act.verb < ACT_FAIL;
    c->class_ = act.verb == ACT_FAIL_USER ? JOB_CLASS_USER : job_class_of(i.class_);
    c->to = JOB_RECOVERING;
    c->intent = again || j->intent == JOB_SUSPEND || j->intent == JOB_REQUEUE || j->intent == JOB_TIME_UP ? j->intent
                                                                                                          : JOB_FAIL;
    if (c->intent == JOB_RESCALE)
        c->intent = JOB_GO_ON;
    c->code = "rank-failed";
    outcome = judged_outcome(cause, &act);
    c->text = *act.why ? json_string_value(json_object_get(outcome, "message")) : NULL;
    c->data = json_pack("{s:o, s:o, s:I, s:i, s:i, s:i}", "outcome", outcome, "past", job_past_json(&act.then),
                        "retry_us", (json_int_t)(now_us + act.wait_us), "restarts_user",
                        j->restarts_user + (again && c->class_ == JOB_CLASS_USER), "restarts_node",
                        j->restarts_node + (again && c->class_ == JOB_CLASS_NODE), "restarts_system",
                        j->restarts_system + (again && c->class_ == JOB_CLASS_SYSTEM));
    return c->data ? 0 : -ENOMEM;
}

static int end_as(struct change *c, enum job_state to, enum job_class class_, const char *code, json_t *outcome)
{
    c->to = to;
    c->intent = JOB_GO_ON;
    c->class_ = class_;
    c->code = code;
    c->data = outcome ? json_pack("{s:o}", "outcome", outcome) : json_object();
    return c->data ? 0 : -ENOMEM;
}

static json_t *plain_outcome(enum job_class class_, const char *message)
{
    return json_pack("{s:s, s:s, s:n, s:n, s:n, s:n, s:[]}", "class", class_name[class_], "message", message, "rank",
                     "node", "exit_code", "signal", "log_tail");
}

static int out_of_time(const struct job *j, struct change *c)
{
    char text[160];

    (void)snprintf(text, sizeof(text), "it has run for its limit of %d s; its newest checkpoint is kept", j->time_s);
    return end_as(c, JOB_FAILED, JOB_CLASS_USER, "time-limit", plain_outcome(JOB_CLASS_USER, text));
}

static int over(const struct job *j, const struct job_cause *cause, struct change *c, struct merr *err)
{
    if (!j->live)
        return no_fit(j, err, "found to be over");
    c->live = false;
    if (j->intent == JOB_CANCEL)
        return end_as(c, JOB_CANCELLED, JOB_CLASS_CANCELLED, "cancelled",
                      plain_outcome(JOB_CLASS_CANCELLED, "cancelled while running"));
    if (j->intent == JOB_FAIL)
        return end_as(c, JOB_FAILED, JOB_CLASS_NONE, "failed", NULL);
    if (cause->all_done && j->state != JOB_RECOVERING)
        return end_as(c, JOB_SUCCEEDED, JOB_CLASS_DONE, "succeeded",
                      plain_outcome(JOB_CLASS_DONE, "every rank is done"));
    if (j->intent == JOB_TIME_UP)
        return out_of_time(j, c);
    c->to = j->intent == JOB_SUSPEND     ? JOB_SUSPENDED
            : j->intent == JOB_REQUEUE   ? JOB_QUEUED
            : j->intent == JOB_RESCALE   ? JOB_RESCALING
            : j->state == JOB_RECOVERING ? JOB_RECOVERING
                                         : JOB_QUEUED;
    c->code = c->to == JOB_SUSPENDED   ? "suspended"
              : c->to == JOB_QUEUED    ? "requeued"
              : c->to == JOB_RESCALING ? "drained"
                                       : "released";
    c->intent = JOB_GO_ON;
    return 0;
}

static int cancel(const struct job *j, const struct job_cause *cause, struct change *c, struct merr *err)
{
    if (job_ended(j->state))
        return no_fit(j, err, "cancelled");
    if (j->intent == JOB_CANCEL)
        return merr_set(err, -EALREADY, "job 'j%llu' is being cancelled", (unsigned long long)j->id);
    if (!j->live)
        return end_as(c, JOB_CANCELLED, JOB_CLASS_CANCELLED, cause->code ? cause->code : "cancelled",
                      plain_outcome(JOB_CLASS_CANCELLED, cause->code ? cause->text : "cancelled while it waited"));
    c->intent = JOB_CANCEL;
    c->code = "cancelling";
    return 0;
}

static int suspend(const struct job *j, struct change *c, struct merr *err)
{
    if (j->state == JOB_SUSPENDED || j->intent == JOB_SUSPEND)
        return merr_set(err, -EALREADY, "job 'j%llu' is suspended already", (unsigned long long)j->id);
    if (job_ended(j->state) || j->intent == JOB_CANCEL || j->intent == JOB_FAIL || j->intent == JOB_TIME_UP)
        return no_fit(j, err, "suspended");
    if (j->live) {
        c->intent = JOB_SUSPEND;
        c->code = "suspending";
        return 0;
    }
    c->to = JOB_SUSPENDED;
    c->code = "suspended";
    return 0;
}

static int resume(const struct job *j, const struct job_cause *cause, struct change *c, struct merr *err)
{
    bool more = cause->time_s > 0 && job_time_is_out(j);

    if (j->intent == JOB_SUSPEND)
        return merr_set(err, -EPROTO, "job 'j%llu' is still being suspended; resume it once it is",
                        (unsigned long long)j->id);
    if (j->state == JOB_QUEUED || j->state == JOB_STARTING || j->state == JOB_RUNNING)
        return merr_set(err, -EALREADY, "job 'j%llu' is not suspended", (unsigned long long)j->id);
    if (j->state != JOB_SUSPENDED && !more)
        return no_fit(j, err, "resumed");
    c->to = JOB_QUEUED;
    c->code = "resumed";
    c->data = more ? json_pack("{s:i, s:n}", "time_s", cause->time_s, "outcome") : json_object();
    return c->data ? 0 : -ENOMEM;
}

static int requeue(const struct job *j, struct change *c, struct merr *err)
{
    if (!j->live || j->intent != JOB_GO_ON || j->state == JOB_RECOVERING)
        return merr_set(err, -EALREADY, "job 'j%llu' has no run to drain", (unsigned long long)j->id);
    c->intent = JOB_REQUEUE;
    c->code = "draining";
    return 0;
}

/* A move off what is slow is one of the day's. */
static int count_move(const struct job *j, enum act_class class_, int64_t now_us, struct change *c)
{
    struct act_history then;

    if (act_slow(class_, &j->past, now_us, &then) != ACT_MOVE)
        return 0;
    c->data = json_pack("{s:o}", "past", job_past_json(&then));
    return c->data ? 0 : -ENOMEM;
}

static int rescale(const struct job *j, const struct job_cause *cause, int64_t now_us, struct change *c,
                   struct merr *err)
{
    int r = requeue(j, c, err);

    if (r < 0)
        return r;
    c->intent = JOB_RESCALE;
    c->to = JOB_RESCALING;
    c->code = "rescaling";
    return cause->hastens ? count_move(j, ACT_SLOW, now_us, c) : 0;
}

static int change_wishes(const struct job *j, const struct job_cause *cause, struct change *c, struct merr *err)
{
    if (job_ended(j->state))
        return no_fit(j, err, "changed");
    c->code = "changed";
    c->data = json_pack("{s:i, s:i, s:i, s:i}", "priority", cause->priority, "min", cause->min, "max", cause->max,
                        "time_s", cause->time_s);
    if (c->data && j->tasks > 0 && cause->max_running > 0)
        (void)json_object_set_new(c->data, "max_running", json_integer(cause->max_running));
    return c->data ? 0 : -ENOMEM;
}

static int tasks_over(const struct job *j, const struct job_cause *cause, struct change *c, struct merr *err)
{
    enum job_class class_ = cause->all_done ? JOB_CLASS_DONE : cause->class_;

    if (j->tasks == 0 || job_ended(j->state))
        return no_fit(j, err, "ended by its tasks");
    return end_as(c, cause->all_done ? JOB_SUCCEEDED : JOB_FAILED, class_, cause->code,
                  plain_outcome(class_, cause->text));
}

static int others(const struct job *j, const struct job_cause *cause, struct change *c, struct merr *err)
{
    json_t *is;

    if (job_ended(j->state) || !job_comes_after(j))
        return no_fit(j, err, "held back by others");
    is = json_array();
    for (size_t i = 0; i < j->n_after; i++)
        (void)json_array_append_new(is, json_integer((json_int_t)cause->after_is[i]));
    c->code = "dependency";
    c->data = json_pack("{s:o}", "after_is", is);
    return c->data ? 0 : -ENOMEM;
}

static int warn(const struct job *j, struct change *c, struct merr *err)
{
    if (!j->live || j->intent != JOB_GO_ON)
        return no_fit(j, err, "warned");
    c->code = "time-warning";
    c->data = json_pack("{s:i, s:I}", "warned_s", j->time_s, "warned_in", (json_int_t)j->generation);
    return c->data ? 0 : -ENOMEM;
}

/* What is being ended already just ends. */
static int time_up(const struct job *j, struct change *c, struct merr *err)
{
    if (job_waits(j))
        return out_of_time(j, c);
    if (!j->live || (j->intent != JOB_GO_ON && j->intent != JOB_REQUEUE && j->intent != JOB_RESCALE))
        return no_fit(j, err, "ended by its time limit");
    c->intent = JOB_TIME_UP;
    c->code = "time-up";
    return 0;
}

/* It can be neither started nor led on: it fails, once what runs of it is stopped. */
static int refused(const struct job *j, const struct job_cause *cause, struct change *c, struct merr *err)
{
    json_t *outcome;

    if (job_ended(j->state))
        return no_fit(j, err, "refused");
    if (j->live && (j->intent == JOB_CANCEL || j->intent == JOB_FAIL))
        return merr_set(err, -EALREADY, "job 'j%llu' is being ended", (unsigned long long)j->id);
    outcome = plain_outcome(cause->class_, cause->text);
    if (!outcome)
        return -ENOMEM;
    (void)end_as(c, j->live ? JOB_RECOVERING : JOB_FAILED, cause->class_, cause->code, outcome);
    c->intent = j->live ? JOB_FAIL : JOB_GO_ON;
    return c->data ? 0 : -ENOMEM;
}

static int decide(const struct job *j, const struct job_cause *cause, int64_t now_us, struct change *c,
                  struct merr *err)
{
    int r;

    switch (cause->kind) {
    case CAUSE_ASSIGNED:
        return assigned(j, cause, now_us, c, err);
    case CAUSE_STARTED:
        if (j->state != (j->tasks > 0 ? JOB_QUEUED : JOB_STARTING))
            return no_fit(j, err, "found to run");
        c->to = JOB_RUNNING;
        c->code = "running";
        return 0;
    case CAUSE_FAULT:
        return fault(j, cause, now_us, c, err);
    case CAUSE_OVER:
        return over(j, cause, c, err);
    case CAUSE_CANCEL:
        return cancel(j, cause, c, err);
    case CAUSE_SUSPEND:
        return suspend(j, c, err);
    case CAUSE_RESUME:
        return resume(j, cause, c, err);
    case CAUSE_REQUEUE:
        r = requeue(j, c, err);
        return r == 0 && cause->off_links ? count_move(j, ACT_SLOW_LINK, now_us, c) : r;
    case CAUSE_RESCALE:
        return rescale(j, cause, now_us, c, err);
    case CAUSE_CHANGE:
        return change_wishes(j, cause, c, err);
    case CAUSE_AFTER:
        return others(j, cause, c, err);
    case CAUSE_WARN:
        return warn(j, c, err);
    case CAUSE_TIME_UP:
        return time_up(j, c, err);
    case CAUSE_REFUSED:
        return refused(j, cause, c, err);
    case CAUSE_TASKS:
        return tasks_over(j, cause, c, err);
    }
    return merr_set(err, -EPROTO, "unknown cause %d", (int)cause->kind);
}

static json_t *event_json(const struct job *j, const struct change *c, const struct job_cause *cause, int64_t now_us)
{
    char at[CLOCK_RFC3339_MAX], id[24];
    json_t *data = c->data ? c->data : json_object();

    clock_rfc3339(now_us, at);
    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)j->id);
    (void)json_object_set_new(data, "at_us", json_integer(now_us));
    (void)json_object_set_new(data, "live", json_boolean(c->live));
    (void)json_object_set_new(data, "intent", json_string(intent_name[c->intent]));
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:s, s:{s:s, s:s?, s:s}, s:o}", "at", at, "job", id, "type",
                     "state", "from", state_name[j->state], "to", state_name[c->to], "generation",
                     (json_int_t)c->generation, "actor", cause->actor ? cause->actor : "scheduler", "cause", "code",
                     c->code, "class", c->class_ == JOB_CLASS_NONE ? NULL : class_name[c->class_], "text",
                     c->text       ? c->text
                     : cause->text ? cause->text
                                   : c->code,
                     "data", data);
}

int job_transition(const struct job *j, const struct job_cause *cause, int64_t now_us, json_t **ret_event,
                   struct merr *err)
{
    struct change c = {.to = j->state, .intent = j->intent, .live = j->live, .generation = j->generation};
    json_t *event;
    int r = decide(j, cause, now_us, &c, err);

    if (r < 0) {
        json_decref(c.data);
        return r;
    }
    event = event_json(j, &c, cause, now_us);
    if (!event)
        return merr_set(err, -ENOMEM, "out of memory for an event");
    *ret_event = event;
    return 0;
}

json_t *job_submitted_event(const struct job *j)
{
    char at[CLOCK_RFC3339_MAX], id[24], actor[SPEC_NAME_MAX + 8];

    clock_rfc3339(j->submitted_us, at);
    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)j->id);
    (void)snprintf(actor, sizeof(actor), "user:%s", j->user);
    return json_pack("{s:s, s:s, s:s, s:n, s:s, s:i, s:s, s:{s:s, s:n, s:s}, s:n}", "at", at, "job", id, "type",
                     "submitted", "from", "to", "queued", "generation", 0, "actor", actor, "cause", "code", "submitted",
                     "class", "text", "submitted", "data");
}

/* --- applying ---------------------------------------------------------------------------------------- */

int job_read_places(const json_t *list, struct job_place **ret, size_t *ret_n)
{
    size_t n = json_array_size(list);
    struct job_place *p = NULL;

    if (n > PLAN_RANKS_MAX)
        return -EINVAL;
    if (n > 0 && !(p = calloc(n, sizeof(*p))))
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const json_t *o = json_array_get(list, i);
        const char *node = json_string_value(json_object_get(o, "node"));

        if (!node) {
            free(p);
            return -EINVAL;
        }
        copy(p[i].node, sizeof(p[i].node), node);
        copy(p[i].class_, sizeof(p[i].class_), json_string_value(json_object_get(o, "class")));
        copy(p[i].address, sizeof(p[i].address), json_string_value(json_object_get(o, "address")));
        p[i].slot = (int)json_integer_value(json_object_get(o, "slot"));
        p[i].leaves = (int)json_integer_value(json_object_get(o, "leaves"));
    }
    *ret = p;
    *ret_n = n;
    return 0;
}

/* One that no run can have is none. */
void job_read_layout(const json_t *o, struct layout *l)
{
    static const char *const name[] = {"tp", "pp", "cp", "dp"};
    int *to[] = {&l->tp, &l->pp, &l->cp, &l->dp};
    json_int_t world = 1;

    for (int i = 0; i < 4; i++) {
        json_int_t v = json_integer_value(json_object_get(o, name[i]));

        world = v < 0 || v > PLAN_RANKS_MAX || world > PLAN_RANKS_MAX ? 0 : world * v;
        *to[i] = (int)v;
    }
    l->world = (int)world;
    if (world < 1 || world > PLAN_RANKS_MAX)
        *l = (struct layout){0};
}

static void read_int(const json_t *o, const char *key, int *ret)
{
    const json_t *v = json_object_get(o, key);

    if (json_is_integer(v))
        *ret = (int)json_integer_value(v);
}

static void read_us(const json_t *o, const char *key, int64_t *ret)
{
    const json_t *v = json_object_get(o, key);

    if (json_is_integer(v))
        *ret = json_integer_value(v);
}

void job_read_past(const json_t *o, struct act_history *h)
{
    struct {
        const char *name;
        int *to;
    } of[] = {{"in_a_row", &h->in_a_row},     {"stuck", &h->stuck},
              {"soon_lost", &h->soon_lost},   {"disorders", &h->disorders},
              {"roll_backs", &h->roll_backs}, {"infra", &h->infra},
              {"moves", &h->moves.n},         {"link_moves", &h->link_moves.n}};

    if (!json_is_object(o))
        return;
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
        json_int_t n = json_integer_value(json_object_get(o, of[i].name));

        *of[i].to = n > 0 && n < PAST_MAX ? (int)n : 0;
    }
    h->incident = (uint64_t)json_integer_value(json_object_get(o, "incident"));
    h->infra_since_us = json_integer_value(json_object_get(o, "infra_since_us"));
    h->infra_since_us = h->infra_since_us > 0 ? h->infra_since_us : 0;
    h->moves.since_us = json_integer_value(json_object_get(o, "moves_since_us"));
    h->moves.since_us = h->moves.since_us > 0 ? h->moves.since_us : 0;
    h->link_moves.since_us = json_integer_value(json_object_get(o, "link_moves_since_us"));
    h->link_moves.since_us = h->link_moves.since_us > 0 ? h->link_moves.since_us : 0;
    h->signature = (uint64_t)json_integer_value(json_object_get(o, "signature"));
    h->signature_step = json_integer_value(json_object_get(o, "signature_step"));
    h->node = (uint64_t)json_integer_value(json_object_get(o, "node"));
}

static void apply_data(struct job *j, const json_t *data)
{
    const json_t *outcome = json_object_get(data, "outcome"), *layout = json_object_get(data, "layout");
    const json_t *plan = json_object_get(data, "plan");

    read_int(data, "priority", &j->priority);
    read_int(data, "min", &j->min);
    read_int(data, "max", &j->max);
    read_int(data, "max_running", &j->max_running);
    job_read_past(json_object_get(data, "past"), &j->past);
    read_us(data, "saved_step", &j->saved_step);
    for (size_t i = 0; i < j->n_after && json_object_get(data, "after_is"); i++)
        j->after[i].is = json_integer_value(json_array_get(json_object_get(data, "after_is"), i)) % 3;
    read_int(data, "time_s", &j->time_s);
    read_int(data, "warned_s", &j->warned_s);
    j->warned_in =
        (uint32_t)(json_object_get(data, "warned_in") ? json_integer_value(json_object_get(data, "warned_in"))
                                                      : j->warned_in);
    read_int(data, "restarts_user", &j->restarts_user);
    read_int(data, "restarts_system", &j->restarts_system);
    read_int(data, "restarts_node", &j->restarts_node);
    read_int(data, "master_port", &j->master_port);
    read_us(data, "retry_us", &j->retry_us);
    if (layout)
        job_read_layout(layout, &j->layout);
    if (outcome) {
        json_decref(j->outcome);
        j->outcome = json_is_null(outcome) ? NULL : json_deep_copy(outcome);
    }
    if (json_is_object(plan)) {
        json_decref(j->plan);
        j->plan = json_deep_copy(plan);
    }
}

/* What a run's beginning and end leave behind, before the places change. */
static void count_run(struct job *j, bool live, bool moved, int64_t at_us)
{
    if (j->live && !live) {
        j->device_us += (int64_t)j->n_places * (job_time_ran_us(j, at_us) - j->ran_us);
        j->ran_us = job_time_ran_us(j, at_us);
        j->rescales += j->intent == JOB_RESCALE;
        j->past.soon_lost = at_us - j->changed_us < ACT_SOON_US ? j->past.soon_lost : 0;
        j->waiting_us = at_us;
    }
    if (moved || j->live != live)
        j->changed_us = at_us;
}

int job_apply(struct job *j, const json_t *event)
{
    const json_t *data = json_object_get(event, "data"), *cause = json_object_get(event, "cause");
    const char *text = json_string_value(json_object_get(cause, "text"));
    int intent = job_intent_parse(json_string_value(json_object_get(data, "intent")));
    enum job_state from, to;
    struct job_place *places = NULL;
    size_t n_places = 0;
    char *reason;
    int64_t at_us = json_integer_value(json_object_get(data, "at_us"));
    bool moved = json_object_get(data, "assignment") != NULL;
    int r;

    if (job_state_parse(json_string_value(json_object_get(event, "from")), &from) < 0 || from != j->state ||
        job_state_parse(json_string_value(json_object_get(event, "to")), &to) < 0 || intent < 0)
        return -EINVAL;
    if (moved && (r = job_read_places(json_object_get(data, "assignment"), &places, &n_places)) < 0)
        return r;
    reason = strdup(text ? text : "");
    if (!reason) {
        free(places);
        return -ENOMEM;
    }
    count_run(j, json_is_true(json_object_get(data, "live")), moved, at_us);
    j->live = json_is_true(json_object_get(data, "live"));
    if (n_places > 0) {
        copy(j->home, sizeof(j->home), places[0].class_);
        j->step_ms = 0;
    }
    if (moved || !j->live) { /* a run that is over holds no devices */
        free(j->places);
        j->places = places;
        j->n_places = n_places;
    }
    free(j->reason_text);
    j->reason_text = reason;
    copy(j->reason_code, sizeof(j->reason_code), json_string_value(json_object_get(cause, "code")));
    j->intent = (enum job_intent)intent;
    j->generation = (uint32_t)json_integer_value(json_object_get(event, "generation"));
    j->state = to;
    j->version++;
    apply_data(j, data);
    if ((from == JOB_SUSPENDED || json_object_get(data, "after_is")) && j->generation == 0)
        j->waiting_us = at_us;
    if (to == JOB_RUNNING && j->started_us == 0)
        j->started_us = at_us;
    j->finished_us = job_ended(to) ? at_us : 0;
    return 0;
}
