#include "server/control/view.h"

#include <stdio.h>
#include <string.h>

#include "api/protocol/assignment.h"
#include "base/hash.h"
#include "server/cluster/gpus.h"
#include "server/cluster/job_time.h"
#include "server/cluster/links.h"
#include "server/cluster/slots.h"
#include "server/cluster/stragglers.h"
#include "server/control/energy.h"
#include "server/control/estimates.h"
#include "server/control/finishes.h"
#include "server/control/source_nodes.h"
#include "server/control/kinds.h"
#include "server/control/plans.h"
#include "server/control/round.h"
#include "server/control/state.h"

#define CAUSE_BYTES_MAX 65536
#define AFTER_TEXT_MAX 2560 /* names each of SPEC_AFTER_MAX jobs */
#define ETA_MAX_S 1e9

json_t *view_progress(const json_t *line, int steps)
{
    json_int_t done = json_integer_value(json_object_get(line, "step"));
    double step_ms = json_number_value(json_object_get(line, "step_ms")), eta_s;
    json_t *loss = json_object_get(line, "loss"), *speed = json_object_get(line, "tokens_per_s");

    done = done < 0 ? 0 : done > INT32_MAX ? INT32_MAX : done; /* a job's program may write any number */
    if (steps > 0 && json_object_get(line, "step") && json_integer_value(json_object_get(line, "v")) < 1)
        done++; /* training counted from 0 before version 1; a program's own steps are as it wrote them */
    loss = json_is_number(loss) ? loss : NULL;
    speed = json_is_number(speed) ? speed : NULL;
    eta_s = (double)(steps > done ? steps - done : 0) * step_ms / 1000.0;
    return json_pack("{s:I, s:i, s:O?, s:O?, s:I}", "step", done, "steps", steps, "loss", loss, "tokens_per_s", speed,
                     "eta_s", (json_int_t)(eta_s >= 0 && eta_s < ETA_MAX_S ? eta_s : ETA_MAX_S));
}

/* Whether others hold it back, and in words which. */
static bool is_held_back(const struct job *j, char *ret, size_t size)
{
    bool yes = j->state == JOB_QUEUED && job_is_held_back(j);

    if (yes)
        job_after_text(j, NULL, ret, size);
    return yes;
}

static json_t *reason_of(const struct job *j, const struct entry *e)
{
    char text[AFTER_TEXT_MAX];

    if (e && is_held_back(j, text, sizeof(text)))
        return json_pack("{s:s, s:s}", "code", explain_code_name(EXPLAIN_DEPENDENCY), "text", text);
    if (!e || !job_waits(j))
        return json_pack("{s:s, s:s}", "code", j->reason_code, "text", j->reason_text ? j->reason_text : "");
    explain_wait_text(&e->wait, text, sizeof(text));
    return json_pack("{s:s, s:s}", "code", e->wait.need == 0 ? "submitted" : explain_code_name(e->wait.code), "text",
                     text);
}

static json_t *assignment_of(const struct job *j)
{
    json_t *all = json_array();

    for (size_t i = 0; i < j->n_places; i++)
        (void)json_array_append_new(all, json_pack("{s:i, s:s, s:i, s:s}", "rank", (int)i, "node", j->places[i].node,
                                                   "slot", j->places[i].slot, "class", j->places[i].class_));
    return all;
}

static void add_array(const struct core *c, const struct job *j, json_t *o)
{
    const struct array *a = array_find(&c->arrays, j->id);

    if (a)
        (void)json_object_set_new(o, "array", array_view(a, j->max_running < j->tasks ? j->max_running : j->tasks));
}

/* Whose task it is; one that is no job yet has no other id. */
static void add_task(const struct job *j, json_t *o)
{
    char id[40];

    (void)snprintf(id, sizeof(id), "j%llu.%d", (unsigned long long)j->array, j->task_index);
    (void)json_object_set_new(o, "task",
                              json_pack("{s:s, s:s#, s:i, s:O?}", "id", id, "array", id, (int)strcspn(id, "."), "index",
                                        j->task_index, "params", j->params));
    if (j->id == j->array)
        (void)json_object_set_new(o, "id", json_string(id));
}

static void add_ports(const struct job *j, const char *spec_text, json_t *o)
{
    json_auto_t *spec = j->n_places > 0 && strstr(spec_text, "\"ports\":[\"") ? json_loads(spec_text, 0, NULL) : NULL;
    const json_t *names = json_object_get(json_object_get(spec, "command"), "ports"), *name;
    json_t *ports = json_object();
    size_t i;

    json_array_foreach (names, i, name)
        (void)json_object_set_new(ports, json_string_value(name), json_integer(assignment_port(j->master_port, i)));
    if (i > 0)
        (void)json_object_set(o, "ports", ports);
    json_decref(ports);
}

void view_add_whole(const struct job *j, const char *spec_text, json_t *o)
{
    add_ports(j, spec_text, o);
    (void)json_object_set_new(o, "plan", plans_view(j));
    (void)json_object_set(o, "config", j->config ? j->config : json_null());
    (void)json_object_set(o, "summary", j->summary ? j->summary : json_null());
}

json_t *view_job(const struct core *c, const struct job *j, const struct entry *e, const char *spec_text)
{
    char id[24], dir[4096];
    json_t *layout = json_null(), *o;
    const struct catalog_row *row = catalog_find(&c->jobs.catalog, j->id);

    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)j->id);
    (void)snprintf(dir, sizeof(dir), "%s/%s", c->cfg.jobs_dir, id);
    if (j->layout.world > 0)
        layout = json_pack("{s:i, s:i, s:i, s:i}", "tp", j->layout.tp, "pp", j->layout.pp, "dp", j->layout.dp, "cp",
                           j->layout.cp);
    o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:I, s:o, s:o, s:o, s:o, s:{s:i, s:i, s:I}, s:o, s:o, s:O?, "
                  "s:O?, s:O?, s:{s:i, s:i, s:i}, s:s, s:O?, s:O*}",
                  "id", id, "name", j->name, "project", j->project, "kind", j->kind == JOB_TRAIN ? "train" : "command",
                  "user", j->user, "state", job_state_name(j->state), "priority", j->priority, "generation",
                  (json_int_t)j->generation, "reason", reason_of(j, e), "submitted_at", cluster_time(j->submitted_us),
                  "started_at", cluster_time(j->started_us), "finished_at", cluster_time(j->finished_us), "devices",
                  "min", j->min, "max", j->max, "assigned", (json_int_t)j->n_places, "layout", layout, "assignment",
                  assignment_of(j), "progress", j->progress, "eval", j->eval, "checkpoint", j->checkpoint, "restarts",
                  "system", j->restarts_system, "node", j->restarts_node, "user", j->restarts_user, "dir", dir,
                  "outcome", j->outcome, "labels", j->labels);
    if (o)
        (void)json_object_set_new(o, "log_bytes",
                                  json_integer(row ? (json_int_t)row->shipped : (json_int_t)j->shipped));
    if (o)
        estimates_view(j, e, o);
    if (o)
        energy_view(c, j, o);
    if (o)
        finishes_view(c, e, o);
    if (o && j->tasks > 0)
        add_array(c, j, o);
    if (o && j->array)
        add_task(j, o);
    if (o && (j->time_s > 0 || j->queue_s > 0)) {
        (void)json_object_set_new(
            o, "limits", json_pack("{s:i, s:i, s:i}", "time_s", j->time_s, "queue_s", j->queue_s, "warn_s", j->warn_s));
        (void)json_object_set_new(o, "ends_by", cluster_time(job_time_ends_us(j)));
    }
    if (o && e && json_array_size(e->run.slow) > 0)
        (void)json_object_set(o, "slow", e->run.slow);
    if (o && spec_text) { /* a list would grow long by them */
        (void)json_object_set_new(o, "spec", json_loads(spec_text, 0, NULL));
        view_add_whole(j, spec_text, o);
    }
    return o;
}

static bool is_shut(const struct node *n)
{
    return n->n_slots > 0 && n->slots[0].calendar.shut;
}

/* What maintenance and reservations say of a slot; NULL: nothing. */
static json_t *calendar_view(const struct slot *s)
{
    const struct calendar_state *k = &s->calendar;
    char name[24];

    if (!k->shut && !k->holder && k->closes_us == 0)
        return NULL;
    (void)snprintf(name, sizeof(name), "r%llu", (unsigned long long)k->holder);
    return json_pack("{s:b, s:s?, s:o, s:o}", "maintenance", k->shut, "reservation", k->holder ? name : NULL,
                     "closes_at", cluster_time(k->closes_us), "opens_at", cluster_time(k->opens_us));
}

static const char *node_state(const struct core *c, const struct node *n)
{
    if (n->contact == NODE_LOST)
        return "lost";
    if (n->contact == NODE_UNKNOWN || !n->registered)
        return "unknown";
    if (!n->drain && !is_shut(n))
        return "ready";
    for (size_t i = 0; i < n->n_slots; i++)
        if (n->slots[i].job != 0)
            return "draining";
    return source_nodes_job_on(c, n) ? "draining" : "drained";
}

static const char *slot_state(const struct node *n, const struct slot *s)
{
    if (n->contact == NODE_LOST)
        return "lost";
    if (s->job)
        return "busy";
    if (n->contact == NODE_UNKNOWN || !n->registered)
        return "unknown";
    return !slots_usable(s) ? "quarantined" : s->spare ? "spare" : "free";
}

/* The newest test that is over, and whether one is under way. */
static json_t *test_view(const struct node *n)
{
    json_t *o = n->test.result ? json_copy(n->test.result) : json_object();

    (void)json_object_set_new(o, "running", n->test.id ? json_integer(n->test.id) : json_null());
    return o;
}

json_t *view_node(const struct core *c, const struct node *n)
{
    json_t *slots = json_array();

    for (size_t i = 0; i < n->n_slots; i++) {
        const struct slot *s = &n->slots[i];
        char job[24];

        (void)snprintf(job, sizeof(job), "j%llu", (unsigned long long)s->job);
        (void)json_array_append_new(
            slots,
            json_pack("{s:i, s:s, s:b, s:s, s:s, s:s?, s:o, s:o*, s:o*, s:o*}", "slot", s->slot, "kind", s->kind,
                      "trains", s->trains, "class", c->cluster.classes.name[s->class_], "state", slot_state(n, s),
                      "job", s->job ? job : NULL, "rank", s->job ? json_integer(s->rank) : json_null(), "gpu",
                      gpus_view(n, s->slot), "slow", stragglers_view(s), "calendar", calendar_view(s)));
    }
    return json_pack("{s:s, s:s, s:s, s:s*, s:s, s:b, s:o, s:o, s:o, s:o, s:o*, s:o*, s:o, s:o}", "id", n->name,
                     "state", node_state(c, n), "address", n->address, "rack", *n->rack ? n->rack : NULL, "version",
                     n->release, "shared_account", n->shared_account, "last_seen", cluster_time(n->seen_wall_us),
                     "drain_by", cluster_time(moment_wall_of(&c->now, n->drain_by_us)), "leaves_at",
                     cluster_time(n->leaves_us), "slots", slots, "nic", links_nic_view(n), "links", links_view(n),
                     "health", health_view(&n->health, c->now.wall_us), "test", test_view(n));
}

uint64_t view_node_mark(const struct core *c, const struct node *n)
{
    uint64_t mark = hash_xxh3(n->name, strlen(n->name));

    for (size_t i = 0; i < n->n_slots; i++) {
        const struct slot *s = &n->slots[i];
        uint64_t of[] = {mark,
                         (uint64_t)s->slot,
                         s->class_,
                         s->job,
                         (uint64_t)s->rank,
                         slots_usable(s),
                         s->spare,
                         s->trains,
                         s->slow.slow ? (uint64_t)s->slow.retry_at_us : 0,
                         s->calendar.shut,
                         s->calendar.holder,
                         (uint64_t)s->calendar.closes_us,
                         (uint64_t)s->calendar.opens_us};

        mark = hash_xxh3(of, sizeof(of));
    }
    uint64_t of[] = {mark,
                     hash_xxh3(node_state(c, n), strlen(node_state(c, n))),
                     hash_xxh3(n->address, strlen(n->address)),
                     hash_xxh3(n->rack, strlen(n->rack)),
                     hash_xxh3(n->release, strlen(n->release)),
                     (uint64_t)n->drain_by_us,
                     (uint64_t)n->leaves_us,
                     n->n_links > 0 ? n->n_links + (uint64_t)n->links[n->n_links - 1].at_us : 0,
                     (uint64_t)n->nic,
                     n->shared_account,
                     (uint64_t)n->health.since_us,
                     n->health.n_incidents,
                     hash_xxh3(n->health.reason, strlen(n->health.reason)),
                     hash_xxh3(n->health.check_reason, strlen(n->health.check_reason)),
                     (uint64_t)n->health.check,
                     (uint64_t)n->health.state,
                     (uint64_t)n->test.id,
                     (uint64_t)json_integer_value(json_object_get(n->test.result, "id"))};

    return hash_xxh3(of, sizeof(of));
}

json_t *view_cluster(const struct core *c)
{
    int ready = 0, total = 0, busy = 0, free_slots = 0, of_class[CLASSES_MAX] = {0}, free_of[CLASSES_MAX] = {0};
    json_t *classes = json_object(), *jobs = json_object();

    for (size_t i = 0; i < c->cluster.n_nodes; i++) {
        const struct node *n = c->cluster.nodes[i];
        bool usable = n->contact == NODE_READY && n->registered && !n->drain && !is_shut(n);

        ready += usable;
        for (size_t k = 0; k < n->n_slots; k++) {
            bool is_free = usable && n->slots[k].job == 0 && slots_usable(&n->slots[k]) && !n->slots[k].spare;

            total++;
            busy += n->slots[k].job != 0;
            free_slots += is_free;
            of_class[n->slots[k].class_]++;
            free_of[n->slots[k].class_] += is_free;
        }
    }
    for (size_t k = 0; k < CLASSES_MAX; k++)
        if (of_class[k] > 0)
            (void)json_object_set_new(classes, c->cluster.classes.name[k],
                                      json_pack("{s:i, s:i}", "total", of_class[k], "free", free_of[k]));
    for (int s = 0; s < JOB_STATES; s++)
        (void)json_object_set_new(
            jobs, job_state_name((enum job_state)s),
            json_integer((json_int_t)(s >= JOB_SUCCEEDED ? c->jobs.ended[s - JOB_SUCCEEDED] : c->jobs.by_state[s])));
    return json_pack("{s:{s:i, s:i}, s:{s:i, s:i, s:i}, s:o, s:o, s:I}", "nodes", "total", (int)c->cluster.n_nodes,
                     "ready", ready, "slots", "total", total, "busy", busy, "free", free_slots, "classes", classes,
                     "jobs", jobs, "queue",
                     (json_int_t)(c->jobs.by_state[JOB_QUEUED] + c->jobs.by_state[JOB_RECOVERING]));
}

/* --- explaining -------------------------------------------------------------------------------------- */

static json_t *cause_json(const struct core *c, const struct round *r, const struct explain_cause *cause)
{
    const char *types[RATES_TYPES_MAX];
    struct buf b;
    json_t *o;

    buf_init(&b, CAUSE_BYTES_MAX);
    round_type_names(c, r, types);
    o = explain_print(cause, types, &b) == 0 ? json_loadb(b.data, b.len, 0, NULL) : NULL;
    buf_clear(&b);
    return o;
}

/* What a round, taken now, says of the job; nothing is done about it. Returns NULL when it says nothing. */
static json_t *ask_round(struct core *c, const struct entry *e)
{
    struct explain_cause cause = {.wait = e->wait, .forecast = {.start_us = -1}};
    struct sched_plan plan;
    char text[AFTER_TEXT_MAX];
    struct round r;
    json_t *o = NULL;
    size_t i = 0;

    if (round_init(c, SCHED_FAST, round_of(c, e), &r) == 0 && sched_schedule(&r.in, &plan, NULL) == 0) {
        while (i < r.in.n_jobs && r.entries[i] != e)
            i++;
        if (i < r.in.n_jobs)
            (void)explain_job(&r.in, &plan, i, &cause);
        if (e->n_target > 0)
            cause.wait.code = EXPLAIN_FREEING;
        if (job_waits(&e->job) || cause.wait.code == EXPLAIN_SHRUNK || cause.wait.code == EXPLAIN_SLOW)
            o = cause_json(c, &r, &cause);
        if (o && is_held_back(&e->job, text, sizeof(text)))
            (void)json_object_set_new(o, "text", json_string(text));
        sched_plan_clear(&plan);
    }
    round_clear(&r);
    return o;
}

static json_t *plain_cause(const char *code, json_t *text_new, json_t *help_new)
{
    return json_pack("{s:s, s:o, s:n, s:n, s:n, s:[], s:o}", "code", code, "text", text_new, "need", "free", "class",
                     "behind", "would_help", help_new);
}

/* A run may be in trouble that nobody has judged yet: one of its nodes is silent. NULL: none is. */
static json_t *silence_cause(const struct core *c, const struct job *j)
{
    const struct node *n = cluster_silent(&c->cluster, j, c->now.mono_us - NODE_SILENT_US);
    char text[256];

    if (!n)
        return NULL;
    (void)snprintf(
        text, sizeof(text),
        "nothing was heard of node '%s' for %d s; its ranks may run on. They count as lost after %d s, or as "
        "soon as another rank says that it has lost them",
        n->name, (int)((c->now.mono_us - n->seen_us) / 1000000), c->cfg.lost_after_s);
    return plain_cause("node-silent", json_string(text), json_pack("[s]", "look at the node and its agent"));
}

/* Ranks that are slower than they should be. */
static void add_slow(const struct entry *e, json_t *causes)
{
    const json_t *one;
    size_t i;

    json_array_foreach (e ? e->run.slow : NULL, i, one)
        (void)json_array_append_new(
            causes, plain_cause("slow-rank", json_incref(json_object_get(one, "text")),
                                json_pack("[s]", "see what else runs on the node; muster node test compares it")));
}

static const char *outcome_class(const struct job *j)
{
    const char *class = json_string_value(json_object_get(j->outcome, "class"));

    return class ? class : "";
}

json_t *view_explain(struct core *c, const struct job *j, const struct entry *e)
{
    json_t *causes = json_array(), *help = json_array();
    json_t *told = json_object_get(j->outcome, "message"), *asked = e && !job_ended(j->state) ? ask_round(c, e) : NULL;
    json_t *silence = silence_cause(c, j), *rates = asked ? kinds_view(c, e) : json_array();
    char id[24], summary[AFTER_TEXT_MAX];

    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)j->id);
    (void)snprintf(summary, sizeof(summary), "%s", j->reason_text ? j->reason_text : job_state_name(j->state));
    if (j->state == JOB_SUSPENDED)
        (void)json_array_append_new(help, json_string("resume it"));
    if (j->state == JOB_FAILED)
        (void)json_array_append_new(help,
                                    json_sprintf("read its logs; allow more restarts with %s",
                                                 strcmp(outcome_class(j), "user") == 0 ? "retry.user" : "retry.max"));
    if (asked && job_waits(j))
        (void)snprintf(summary, sizeof(summary), "%s", json_string_value(json_object_get(asked, "text")));
    else if (told && (j->state == JOB_STARTING || j->state == JOB_RUNNING))
        (void)json_array_append_new(causes, plain_cause("last-attempt", json_incref(told), json_incref(help)));
    else
        (void)json_array_append_new(
            causes, plain_cause(j->reason_code, told ? json_incref(told) : json_string(summary), json_incref(help)));
    if (asked)
        (void)json_array_append_new(causes, asked);
    add_slow(e, causes);
    if (silence) {
        (void)snprintf(summary, sizeof(summary), "%s", json_string_value(json_object_get(silence, "text")));
        (void)json_array_append_new(causes, silence);
    }
    json_decref(help);
    return json_pack("{s:s, s:s, s:s, s:o, s:o}", "job", id, "state", job_state_name(j->state), "summary", summary,
                     "causes", causes, "rates", rates);
}
