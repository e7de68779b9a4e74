/* scene - a whole server in the test's thread: fake clock, store in memory, requests without sockets
 *
 * Calls go through turns as they do in musterd; what a call answers comes back as JSON. The store outlives the server,
 * so that a test can start it again. No thread, no file.
 */
#ifndef MUSTER_TESTS_UNIT_SERVER_CONTROL_SCENE_H
#define MUSTER_TESTS_UNIT_SERVER_CONTROL_SCENE_H

#include "server/control/files.h"
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/control/agents.h"
#include "server/control/arrays.h"
#include "server/control/jobs.h"
#include "server/control/nodes.h"
#include "server/control/polls.h"
#include "server/control/projects.h"
#include "server/control/readers.h"
#include "server/control/reports.h"
#include "server/control/timeline.h"
#include "server/control/turn.h"
#include "server/http/call.h"
#include "server/http/http_priv.h"
#include "tests/memory/spool_memory.h"
#include "tests/memory/store_memory.h"
#include "tests/unit/fake_clock.h"

#define SECOND INT64_C(1000000)

struct scene {
    struct fake_clock clock;
    struct store_memory *memory;
    struct store_connection *connection;
    struct store_backend backend;
    struct store *store;
    struct stats *stats;
    struct spool_memory *spool;
    struct store_cfg store_cfg;
    struct core_cfg cfg;
    struct core *core;
    bool fatal; /* the server said that it must end */
};

static inline void scene_fatal(void *arg, const char *why)
{
    print_message("fatal: %s\n", why);
    ((struct scene *)arg)->fatal = true;
}

static inline void scene_boot(struct scene *s)
{
    struct merr err = {""};

    s->connection = store_memory_connect(s->memory, &s->backend);
    assert_non_null(s->connection);
    if (store_open(&s->backend, &s->store_cfg, &s->store, &err) < 0 ||
        turn_new(&s->cfg, s->store, s->stats, &s->core, &err) < 0)
        fail_msg("the server does not start: %s", err.text);
}

static inline void scene_halt(struct scene *s)
{
    files_stop(s->core->files);
    readers_stop(s->core->readers);
    turn_close(s->core);
    turn_free(s->core);
    store_close(s->store);
    store_connection_free(s->connection);
}

/* The server ends and another one goes on with what is stored. */
static inline void scene_restart(struct scene *s)
{
    scene_halt(s);
    scene_boot(s);
}

static inline int scene_start(void **state)
{
    struct scene *s = calloc(1, sizeof(*s));

    assert_non_null(s);
    s->memory = store_memory_new(fake_clock_init(&s->clock, 1000 * SECOND, 1700000000 * SECOND));
    s->store_cfg = (struct store_cfg){.force = true, .lease_s = STORE_LEASE_S};
    s->stats = stats_new();
    assert_non_null(s->memory);
    assert_non_null(s->stats);
    s->cfg = (struct core_cfg){.jobs_dir = "/jobs",
                               .run_key = "key",
                               .unknown_after_s = 30,
                               .lost_after_s = 120,
                               .keep_ended = 1000,
                               .max_array = SPEC_TASKS_MAX,
                               .keep_ended_bytes = UINT64_MAX,
                               .audit_bytes = 1 << 20,
                               .audit_keep_s = 90 * 86400,
                               .user = {.jobs = 1000, .spec_bytes = 10 << 20, .streams = 8},
                               .sched = {.policy = SCHED_POLICY_MUSTER,
                                         .round_us = 60 * SECOND,
                                         .hold_us = 120 * SECOND,
                                         .grace_us = 120 * SECOND,
                                         .starve_us = 1800 * SECOND,
                                         .las_us = 14400 * SECOND},
                               .slow = {.ratio = 1.25, .after_us = 30 * SECOND, .retry_us = 3600 * SECOND},
                               .clock = &s->clock.clock,
                               .chance = chance_real(),
                               .fatal = scene_fatal,
                               .arg = s};
    s->spool = spool_memory_new(&s->cfg.spool);
    assert_non_null(s->spool);
    scene_boot(s);
    *state = s;
    return 0;
}

static inline int scene_stop(void **state)
{
    struct scene *s = *state;

    assert_false(s->fatal);
    scene_halt(s);
    stats_free(s->stats);
    store_memory_free(s->memory);
    spool_memory_free(s->spool);
    free(s);
    return 0;
}

/* --- time -------------------------------------------------------------------------------------------- */

/* A turn without calls, a little later: what was wanted is done in it. */
static inline void scene_turn(struct scene *s)
{
    fake_clock_pass(&s->clock, SECOND / 100);
    assert_true(turn_take(s->core, NULL));
}

/* Let seconds go by, with a turn whenever one is due. */
static inline void scene_wait(struct scene *s, int seconds)
{
    int64_t end = s->clock.mono_us + seconds * SECOND;

    while (s->clock.mono_us < end) {
        int64_t due = turn_due_us(s->core), next = due < end ? due : end;

        if (next > s->clock.mono_us)
            fake_clock_pass(&s->clock, next - s->clock.mono_us);
        assert_true(turn_take(s->core, NULL));
    }
}

/* --- calls ------------------------------------------------------------------------------------------- */

static const char *scene_user = "ann";

/* A request of an admin; the test holds one reference, the call the other. */
static inline struct http_req *scene_request(const char *a, const char *b, const char *c)
{
    struct http_req *r = calloc(1, sizeof(*r));

    assert_non_null(r);
    assert_int_equal(pthread_mutex_init(&r->lock, NULL), 0);
    atomic_store(&r->refs, 2);
    r->state = HTTP_HELD;
    r->params[0] = a;
    r->params[1] = b;
    r->params[2] = c;
    r->identity = (struct http_identity){.role = ROLE_ADMIN, .token = "t1"};
    (void)snprintf(r->identity.user, sizeof(r->identity.user), "%s", scene_user);
    r->uri = strdup("/");
    return r;
}

typedef void scene_fn(struct core *c, struct call *call);

static scene_fn *scene_runs;

static inline void scene_run(void *core, struct call *call)
{
    scene_runs(core, call);
}

struct scene_answer {
    int status;   /* 0: not answered yet */
    json_t *body; /* borrowed until the next call; NULL: none, or no JSON */
};

/* Run a call in a turn of its own. body (may be NULL) is taken over. */
static inline struct scene_answer scene_call(struct scene *s, scene_fn *fn, struct http_req *r, json_t *body)
{
    static json_t *last;
    struct call *call = call_new(r, scene_run);
    struct scene_answer a = {.status = 0};

    assert_non_null(call);
    call->body = body;
    call->job = r->params[0] ? job_id_parse(r->params[0]) : 0;
    call->acks = json_object();
    call->fresh = body ? json_incref(body) : json_object();
    scene_runs = fn;
    fake_clock_pass(&s->clock, SECOND / 100);
    assert_true(turn_take(s->core, call));
    json_decref(last);
    last = r->out ? json_loads(r->out, 0, NULL) : NULL;
    a.status = r->status;
    a.body = last;
    http_req_unref(r);
    return a;
}

static char scene_refusal[4096];  /* the answer to the last submit, when that was refused */
static char scene_accepted[8192]; /* and when it was not */

/* Submit a spec; returns the job's number, 0 when it is refused. */
static inline uint64_t scene_try_submit(struct scene *s, const char *spec)
{
    struct http_req *r = scene_request(NULL, NULL, NULL);
    struct call *call = call_new(r, scene_run);
    struct faults faults = {.n = 0};
    uint64_t id = s->core->jobs.next;
    json_t *full;

    if (spec_from_text(spec, strlen(spec), &call->spec, &faults) < 0)
        fail_msg("%s: %s", faults.v[0].pointer, faults.v[0].message);
    full = call->spec->array.tasks > 0 ? json_loads(spec, 0, NULL) : spec_to_json(call->spec);
    call->text = json_dumps(full, JSON_COMPACT);
    json_decref(full);
    scene_runs = jobs_submit;
    fake_clock_pass(&s->clock, SECOND / 100);
    assert_true(turn_take(s->core, call));
    id = r->status == 201 ? id : 0;
    (void)snprintf(scene_refusal, sizeof(scene_refusal), "%s", id || !r->out ? "" : r->out);
    (void)snprintf(scene_accepted, sizeof(scene_accepted), "%s", id && r->out ? r->out : "");
    http_req_unref(r);
    return id;
}

static inline uint64_t scene_submit(struct scene *s, const char *spec)
{
    uint64_t id = scene_try_submit(s, spec);

    assert_int_not_equal(id, 0);
    return id;
}

/* An agent registers its node, with slots of a class from 0 on. Returns the status. */
static inline int scene_register(struct scene *s, const char *node, const char *class_, int slots)
{
    json_t *all = json_array();

    for (int i = 0; i < slots; i++)
        (void)json_array_append_new(all, json_pack("{s:i, s:s, s:s, s:i, s:i}", "slot", i, "kind", "cpu", "class",
                                                   class_, "threads", 1, "memory_mib", 4096));
    return scene_call(s, agents_register, scene_request(NULL, NULL, NULL),
                      json_pack("{s:s, s:s, s:s, s:s, s:o, s:[]}", "node", node, "address", "10.0.0.1", "boot_id", "b1",
                                "incarnation", node, "slots", all, "runs"))
        .status;
}

static inline struct entry *scene_entry(struct scene *s, uint64_t job)
{
    struct entry *e = table_find(&s->core->jobs, job);

    assert_non_null(e);
    return e;
}

/* A run as an agent reports it: all of its ranks on the node, in this state; code is of those that have exited. */
static inline json_t *scene_run_of(const struct entry *e, uint32_t generation, const char *node, const char *state,
                                   int code)
{
    json_t *ranks = json_array();
    char id[24];

    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)e->job.id);
    for (size_t i = 0; i < e->job.n_places; i++)
        if (strcmp(e->job.places[i].node, node) == 0)
            (void)json_array_append_new(ranks, json_pack("{s:i, s:i, s:s, s:i, s:i}", "rank", (int)i, "slot",
                                                         e->job.places[i].slot, "state", state, "exit_code", code,
                                                         "signal", 0));
    return json_pack("{s:s, s:I, s:o}", "job", id, "generation", (json_int_t)generation, "ranks", ranks);
}

/* A report of a node with these runs (a list, taken over) and whatever else is in more (taken over, may be NULL). */
static inline struct scene_answer scene_report(struct scene *s, const char *node, json_t *runs, json_t *more)
{
    json_t *body = more ? more : json_object();

    (void)json_object_set_new(body, "incarnation", json_string(node));
    (void)json_object_set_new(body, "runs", runs);
    return scene_call(s, reports_take, scene_request(node, NULL, NULL), body);
}

/* All ranks of the job's run, on all of its nodes, are in this state. */
static inline void scene_report_all(struct scene *s, uint64_t job, const char *state, int code)
{
    char nodes[8][JOB_NODE_MAX];
    struct entry *e = scene_entry(s, job);
    uint32_t generation = e->job.generation;
    size_t n = 0;

    for (size_t i = 0; i < e->job.n_places; i++)
        if (i == 0 || strcmp(e->job.places[i].node, e->job.places[i - 1].node) != 0)
            memcpy(nodes[n++], e->job.places[i].node, JOB_NODE_MAX);
    for (size_t i = 0; i < n && (e = table_find(&s->core->jobs, job)); i++)
        assert_int_equal(
            scene_report(s, nodes[i], json_pack("[o]", scene_run_of(e, generation, nodes[i], state, code)), NULL)
                .status,
            200);
}

/* The order that a node's agent gets for the job; "": none. */
static inline const char *scene_order(struct scene *s, const char *node, uint64_t job)
{
    static char order[16];
    struct http_req *r = scene_request(node, NULL, NULL);
    struct scene_answer a;
    json_t *one;
    size_t i;

    r->query = (struct http_fields){.v = {{"incarnation", node}}, .n = 1};
    a = scene_call(s, polls_assignments, r, NULL);
    order[0] = '\0';
    assert_int_equal(a.status, 200);
    json_array_foreach (json_object_get(a.body, "assignments"), i, one) {
        if (job_id_parse(json_string_value(json_object_get(one, "job"))) == job)
            (void)snprintf(order, sizeof(order), "%s", json_string_value(json_object_get(one, "order")));
    }
    return order;
}

/* A slot of a node; fails where there is none. */
static inline struct slot *scene_slot(struct scene *s, const char *node, int slot)
{
    struct slot *found = node_slot(cluster_node(&s->core->cluster, node), slot);

    assert_non_null(found);
    return found;
}

#endif
