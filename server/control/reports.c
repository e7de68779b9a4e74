#include "server/control/reports.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/control/change.h"
#include "server/control/contact.h"
#include "server/control/learn.h"
#include "server/control/offsets.h"
#include "server/control/runs.h"
#include "server/control/state.h"
#include "server/control/view.h"
#include "server/http/call.h"

/* --- ranks ------------------------------------------------------------------------------------------- */

struct first_fault { /* the rank of a report that failed first */
    int rank;
    enum job_class class_;
    char message[128];
    json_t *log_tail; /* borrowed */
};

static enum rank_phase phase_of(const json_t *rank)
{
    const char *state = json_string_value(json_object_get(rank, "state"));

    if (!state)
        return RANK_NONE;
    return strcmp(state, "exited") == 0 ? RANK_EXITED : strcmp(state, "running") == 0 ? RANK_RUNNING : RANK_STARTING;
}

static void describe_end(char *ret, size_t size, enum job_kind kind, int code, int signal)
{
    if (signal != 0)
        (void)snprintf(ret, size, "ended by signal %d (%s)", signal, strsignal(signal));
    else if (kind == JOB_TRAIN && code == 65)
        (void)snprintf(ret, size, "the spec, the data or the model is at fault (exit %d)", code);
    else if (kind == JOB_TRAIN && code == 74)
        (void)snprintf(ret, size, "its node is at fault (exit %d)", code);
    else
        (void)snprintf(ret, size, "ended with exit code %d", code);
}

/* Take in one rank. A first cause is left in *f (the lowest exit that is no mere abort). */
static void take_rank(struct entry *e, const struct node *n, const json_t *o, struct first_fault *f)
{
    json_int_t at = json_integer_value(json_object_get(o, "rank"));
    enum rank_phase phase = phase_of(o);
    struct rank *r;
    bool ended;

    if (at < 0 || (size_t)at >= e->job.n_places || strcmp(e->job.places[at].node, n->name) != 0)
        return;
    r = &e->run.ranks[at];
    ended = phase == RANK_EXITED && r->phase != RANK_EXITED;
    if (r->phase != RANK_EXITED && phase > r->phase)
        r->phase = phase;
    if (json_is_integer(json_object_get(o, "step")))
        r->step = (uint64_t)json_integer_value(json_object_get(o, "step"));
    if (!ended)
        return;
    r->exit_code = (int)json_integer_value(json_object_get(o, "exit_code"));
    r->signal = (int)json_integer_value(json_object_get(o, "signal"));
    if (r->signal == 0 &&
        (r->exit_code == 0 || (e->job.kind == JOB_TRAIN && (r->exit_code == 75 || r->exit_code == 76))))
        return;
    if (f->rank >= 0)
        return;
    f->rank = (int)at;
    f->class_ = job_exit_class(e->job.kind, r->exit_code, r->signal);
    f->log_tail = json_object_get(o, "log_tail");
    describe_end(f->message, sizeof(f->message), e->job.kind, r->exit_code, r->signal);
}

static json_t *run_ref(const char *job, uint32_t generation)
{
    return json_pack("{s:s, s:I}", "job", job, "generation", (json_int_t)generation);
}

/* A report carries nothing of this run that is still to be stored. */
static bool all_shipped(const json_t *body, const char *job, json_int_t generation)
{
    static const char *const kind[] = {"logs", "metrics", "events"};

    for (int k = 0; k < 3; k++) {
        json_t *piece;
        size_t i;

        json_array_foreach (json_object_get(body, kind[k]), i, piece) {
            const char *of = json_string_value(json_object_get(piece, "job"));

            if (of && json_integer_value(json_object_get(piece, "generation")) == generation && strcmp(of, job) == 0)
                return false;
        }
    }
    return true;
}

/* A run that is over: its agent shall stop what lives, and forget it once nothing does and all is stored. */
static void answer_over(struct node *n, const json_t *run, bool shipped, json_t *stale, json_t *forget)
{
    const char *job = json_string_value(json_object_get(run, "job"));
    uint32_t generation = (uint32_t)json_integer_value(json_object_get(run, "generation"));
    bool alive = false;
    json_t *rank;
    size_t i;

    json_array_foreach (json_object_get(run, "ranks"), i, rank) {
        json_int_t slot = json_integer_value(json_object_get(rank, "slot"));

        if (phase_of(rank) == RANK_EXITED)
            continue;
        alive = true;
        for (size_t k = 0; k < n->n_slots; k++)
            n->slots[k].stale = n->slots[k].stale || n->slots[k].slot == (int)slot;
    }
    if (alive)
        (void)json_array_append_new(stale, run_ref(job, generation));
    else if (shipped)
        (void)json_array_append_new(forget, run_ref(job, generation));
}

void reports_take_runs(struct core *c, struct node *n, const json_t *body, json_t *stale, json_t *forget)
{
    char actor[JOB_NODE_MAX + 8];
    json_t *run;
    size_t i;
    bool was_stale = false, is_stale = false;

    (void)snprintf(actor, sizeof(actor), "agent:%s", n->name);
    for (size_t k = 0; k < n->n_slots; k++) {
        was_stale = was_stale || n->slots[k].stale;
        n->slots[k].stale = false;
    }
    json_array_foreach (json_object_get(body, "runs"), i, run) {
        const char *name = json_string_value(json_object_get(run, "job"));
        json_int_t generation = json_integer_value(json_object_get(run, "generation"));
        struct entry *e = table_find(&c->jobs, job_id_parse(name));
        struct first_fault f = {.rank = -1};
        size_t k, here = 0;
        json_t *rank;

        if (!name)
            continue;
        if (!e || !e->job.live || e->job.generation != generation) {
            answer_over(n, run, all_shipped(body, name, generation), stale, forget);
            continue;
        }
        if (givers_take(c, e, n, run) && all_shipped(body, name, generation)) {
            (void)json_array_append_new(forget, run_ref(name, (uint32_t)generation));
            continue;
        }
        json_array_foreach (json_object_get(run, "ranks"), k, rank) {
            take_rank(e, n, rank, &f);
        }
        for (k = 0; k < e->job.n_places; k++)
            here += strcmp(e->job.places[k].node, n->name) == 0 && e->run.ranks[k].phase != RANK_EXITED;
        if (here == 0)
            runs_release(c, e, n->name);
        if (f.rank >= 0 && e->job.intent == JOB_GO_ON && e->job.state != JOB_RECOVERING)
            runs_fault(c, e, f.rank, f.class_, f.message, f.log_tail, actor);
        runs_follow(c, e, actor);
        /* the run may have ended by this very report; it is forgotten with the next one, when that is durable */
    }
    contact_end_unstarted(c, n, body);
    for (size_t k = 0; k < n->n_slots; k++)
        is_stale = is_stale || n->slots[k].stale;
    if (was_stale && !is_stale)
        c->schedule_wanted = true;
}

/* --- metrics and output ------------------------------------------------------------------------------ */

static void take_metrics(struct core *c, const json_t *fresh)
{
    json_t *piece;
    size_t i;

    json_array_foreach (json_object_get(fresh, "metrics"), i, piece) {
        struct entry *e = table_find(&c->jobs, job_id_parse(json_string_value(json_object_get(piece, "job"))));
        const char *p = json_string_value(json_object_get(piece, "text")), *nl;

        for (; e && p && (nl = strchr(p, '\n')); p = nl + 1) {
            json_t *line = json_loadb(p, (size_t)(nl - p), 0, NULL);
            char id[24], at[CLOCK_RFC3339_MAX];

            if (!json_is_object(line)) {
                json_decref(line);
                continue;
            }
            json_decref(e->job.progress);
            e->job.progress = view_progress(line, e->steps);
            e->progress_of = (uint32_t)json_integer_value(json_object_get(piece, "generation"));
            learn_metrics(c, e, (uint32_t)json_integer_value(json_object_get(piece, "generation")), line);
            clock_rfc3339(c->now.wall_us, at);
            (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)e->job.id);
            if (c->events.n == 0) {
                json_decref(line);
                continue;
            }
            events_emit_new(c, e->job.id, e->job.user,
                            json_pack("{s:n, s:s, s:s, s:s, s:I, s:s, s:o}", "id", "at", at, "job", id, "type",
                                      "metrics", "generation", json_integer_value(json_object_get(piece, "generation")),
                                      "actor", "rank:0", "data", line),
                            false, false, false);
        }
    }
    json_array_foreach (json_object_get(fresh, "logs"), i, piece) {
        struct entry *e = table_find(&c->jobs, job_id_parse(json_string_value(json_object_get(piece, "job"))));

        if (e && c->events.n > 0)
            events_log_new(c, e->job.id, e->job.user, (int)json_integer_value(json_object_get(piece, "rank")),
                           json_incref(piece));
    }
}

/* --- events of runs ---------------------------------------------------------------------------------- */

/* A run went on from a step: those that the one before had done beyond it are to be done again. */
static void go_back(struct entry *e, json_int_t step)
{
    json_t *progress;

    if (e->progress_of >= e->job.generation || json_integer_value(json_object_get(e->job.progress, "step")) <= step)
        return;
    progress = json_copy(e->job.progress); /* answers under way may have the old one */
    (void)json_object_set_new(progress, "step", json_integer(step));
    json_decref(e->job.progress);
    e->job.progress = progress;
}

/* One line that a rank wrote. */
static void take_line(struct core *c, struct entry *e, uint64_t job, uint32_t generation, const char *line, size_t len)
{
    json_t *o = json_loadb(line, len, 0, NULL);
    const char *type = json_string_value(json_object_get(o, "type"));
    const char *message = json_string_value(json_object_get(o, "message"));
    const char *kept = "note";
    char actor[32];

    if (!type) {
        json_decref(o);
        return;
    }
    if (strcmp(type, "links") == 0) { /* is of the nodes, not of the job */
        if (e && e->job.generation == generation)
            learn_links(c, &e->job, o);
        json_decref(o);
        return;
    }
    (void)snprintf(actor, sizeof(actor), "rank:%d", (int)json_integer_value(json_object_get(o, "rank")));
    if (strcmp(type, "checkpoint") == 0 || strcmp(type, "eval") == 0)
        kept = type;
    else if (strcmp(type, "fault") == 0)
        kept = "rank";
    if (e && e->job.generation == generation) {
        json_t **at = strcmp(type, "eval") == 0 ? &e->job.eval : &e->job.checkpoint;
        bool done = strcmp(type, "checkpoint") == 0 && !json_object_get(o, "error");

        if (done || strcmp(type, "eval") == 0) {
            json_decref(*at);
            *at = json_incref(o);
            table_dirty(&c->jobs, e);
        }
        if (strcmp(type, "checkpoint") == 0 && e->run.save) {
            e->run.save = false;
            change_orders(c, &e->job);
        }
        if (strcmp(type, "resumed") == 0) {
            givers_resumed(c, e);
            go_back(e, json_integer_value(json_object_get(o, "step")));
        }
        if (strcmp(type, "fault") == 0 && message && !e->run.fault_message[0])
            (void)snprintf(e->run.fault_message, sizeof(e->run.fault_message), "%s", message);
    }
    events_note(c, job, e ? e->job.user : "", kept, generation, actor, type, message ? message : type, o);
}

/* Take the whole lines of a piece, as many as this turn has room for: the others are sent again. A piece without any
 * is of a line longer than pieces are, and passed over. Returns the bytes that are done with. */
static size_t take_lines(struct core *c, struct entry *e, uint64_t job, uint32_t generation, const char *text)
{
    const char *p = text, *nl = strchr(p, '\n');

    if (!nl)
        return strlen(text);
    for (; nl && state_has_room(c); nl = strchr(p, '\n')) {
        take_line(c, e, job, generation, p, (size_t)(nl - p));
        p = nl + 1;
    }
    return (size_t)(p - text);
}

static void take_events(struct core *c, const struct node *n, const json_t *body, json_t *acks)
{
    json_t *piece;
    size_t i;

    json_array_foreach (json_object_get(body, "events"), i, piece) {
        const char *name = json_string_value(json_object_get(piece, "job"));
        const char *text = json_string_value(json_object_get(piece, "text"));
        uint32_t generation = (uint32_t)json_integer_value(json_object_get(piece, "generation"));
        int64_t offset = json_integer_value(json_object_get(piece, "offset")), at;
        uint64_t job = job_id_parse(name);
        struct entry *e = table_find(&c->jobs, job);

        if (job == 0 || !text)
            continue;
        at = offsets_read(c, e, job, n->name, generation);
        if (at < 0)
            at = offset + (int64_t)strlen(text);
        else if (at == offset) {
            at = offset + (int64_t)take_lines(c, e, job, generation, text);
            if (at > offset)
                offsets_put(c, e, job, n->name, generation, at);
        }
        (void)json_array_append_new(acks, json_pack("{s:s, s:I, s:I}", "job", name, "generation",
                                                    (json_int_t)generation, "offset", (json_int_t)at));
    }
}

/* --- a report ---------------------------------------------------------------------------------------- */

/* On the core's thread, after the files' thread has stored the pieces. */
void reports_take(struct core *c, struct call *call)
{
    struct node *n = cluster_node(&c->cluster, http_param(call->req, 0));
    const char *incarnation = json_string_value(json_object_get(call->body, "incarnation"));
    json_t *stale, *forget, *acks;

    if (call->status != 0)
        return;
    if (!n || !n->registered || !incarnation || strcmp(n->incarnation, incarnation) != 0) {
        call_problem(call, 404, "unknown-node",
                     "node '%s' is not registered with this server, or another agent took its "
                     "name: register",
                     http_param(call->req, 0));
        return;
    }
    contact_see(c, n);
    learn_gpus(c, n, call->body);
    stale = json_array();
    forget = json_array();
    acks = json_array();
    take_metrics(c, call->fresh);
    take_events(c, n, call->body, acks);
    reports_take_runs(c, n, call->body, stale, forget);
    (void)json_object_set_new(call->acks, "events", acks);
    call_answer_new(call, 200, json_pack("{s:O, s:o, s:o}", "acks", call->acks, "stale", stale, "forget", forget));
}
