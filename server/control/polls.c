#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/spec_plan.h"
#include "base/clock.h"
#include "base/hash.h"
#include "server/control/core.h"

#define WAIT_MAX_S 60
#define KEY_NAME_MAX 128
#define KEY_BYTES_MAX (88 * 1024) /* 64 KiB as base64 */
#define ANSWER_KEYS_BYTES (8 << 20)

/* --- long-polls -------------------------------------------------------------------------------------- */

static json_t *world_of(const struct job *j)
{
    json_t *all = json_array();

    for (size_t i = 0; i < j->n_places; i++)
        (void)json_array_append_new(all, json_pack("{s:i, s:s, s:i, s:s, s:s}", "rank", (int)i, "node",
                                                   j->places[i].node, "slot", j->places[i].slot, "class",
                                                   j->places[i].class_, "address", j->places[i].address));
    return all;
}

/* Virtual workers of each replica; NULL when they are shared out evenly. */
static json_t *leaves_of(const struct job *j)
{
    json_t *all = j->n_places > 0 && j->places[0].leaves > 0 ? json_array() : NULL;

    for (int i = 0; all && i < j->layout.dp; i++)
        (void)json_array_append_new(all, json_integer(j->places[i * j->layout.tp].leaves));
    return all;
}

static json_t *assignment_json(const struct core *c, const struct entry *e)
{
    const struct job *j = &e->job;
    char id[24], dir[4096];
    const char *order = e->force_stop ? "stop" : job_order(j);
    json_t *spec = json_loads(e->spec_text, 0, NULL);

    if (e->save && strcmp(order, "run") == 0)
        order = "save";
    if (j->moves && e->n_target > 0 && strcmp(order, "drain") == 0)
        order = e->hand_over ? "hand-over" : "move";
    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)j->id);
    (void)snprintf(dir, sizeof(dir), "%s/%s", c->cfg.jobs_dir, id);
    if (e->open && j->plan)
        (void)spec_settle(spec, j->plan);
    return json_pack("{s:s, s:I, s:s, s:i, s:s, s:{s:i, s:i, s:i, s:i}, s:I, s:o, s:i, s:o?, s:o*, s:o*, s:b}", "job",
                     id, "generation", (json_int_t)j->generation, "order", order, "grace_s", e->grace_s, "dir", dir,
                     "layout", "tp", j->layout.tp, "pp", j->layout.pp, "cp", j->layout.cp, "dp", j->layout.dp, "world",
                     (json_int_t)j->n_places, "ranks", world_of(j), "master_port", j->master_port, "spec", spec,
                     "leaves", leaves_of(j), "givers", givers_json(j), "measure_links", e->measure_links);
}

static json_t *assignments_json(struct core *c, const struct node *n)
{
    json_t *all = json_array();
    uint64_t seen[CORE_SLOTS_MAX];
    size_t n_seen = 0;

    for (size_t k = 0; k < n->n_slots; k++) {
        struct entry *e = n->slots[k].job ? core_find(c, n->slots[k].job) : NULL;
        bool known = false;

        for (size_t i = 0; i < n_seen; i++)
            known = known || seen[i] == n->slots[k].job;
        if (known || !e || !e->job.live)
            continue;
        seen[n_seen++] = n->slots[k].job;
        (void)json_array_append_new(all, assignment_json(c, e));
    }
    givers_append(c, n, all, assignment_json);
    return json_pack("{s:I, s:o}", "version", (json_int_t)n->version, "assignments", all);
}

static uint64_t keys_base(const struct core *c)
{
    return store_epoch(c->store) << 20;
}

static json_t *keys_json(const struct core *c, const struct entry *e, uint64_t since)
{
    uint64_t base = keys_base(c), from = since >= base && since <= base + e->n_keys ? since - base : 0, i;
    json_t *keys = json_array();
    size_t bytes = 0;

    for (i = from; i < e->n_keys && bytes < ANSWER_KEYS_BYTES; i++) {
        bytes += strlen(e->keys[i].value);
        (void)json_array_append_new(keys, json_pack("{s:s, s:s}", "key", e->keys[i].key, "value", e->keys[i].value));
    }
    return json_pack("{s:I, s:o}", "next", (json_int_t)(base + i), "keys", keys);
}

enum poll_kind { POLL_ASSIGNMENTS, POLL_RENDEZVOUS };

struct poll {
    struct call *call;
    enum poll_kind kind;
    char node[JOB_NODE_MAX];
    char incarnation[64]; /* of the agent that asks; "": it does not say */
    uint64_t version, job, since;
    uint32_t generation;
};

struct waiters *polls_new(void)
{
    return waiters_new(CORE_WAITERS_MAX, sizeof(struct poll));
}

/* Nodes and jobs as things to wait for. That two are taken for one costs a look, no more. */
static uint64_t node_thing(const char *node)
{
    return hash_xxh3(node, strlen(node));
}

static uint64_t job_thing(uint64_t job)
{
    return job;
}

void agents_wake_node(struct core *c, const char *node)
{
    waiters_wake(c->waiters, node_thing(node));
}

void agents_wake_job(struct core *c, uint64_t job)
{
    waiters_wake(c->waiters, job_thing(job));
}

/* Answer a poll that need not wait. False: it goes on waiting. */
static bool answer(struct core *c, struct poll *p, bool now)
{
    struct node *n = agents_find(c, p->node);
    struct entry *e;

    if (!n || !n->registered || (p->incarnation[0] && strcmp(p->incarnation, n->incarnation) != 0)) {
        call_problem(p->call, 404, "unknown-node",
                     "node '%s' is not registered with this server, or another agent "
                     "took its name: register",
                     p->node);
        return true;
    }
    if (p->kind == POLL_ASSIGNMENTS) {
        if (n->version == p->version && !now)
            return false;
        call_answer_new(p->call, 200, assignments_json(c, n));
        return true;
    }
    e = core_find(c, p->job);
    if (!e || !e->job.live || e->job.generation != p->generation) {
        call_problem(p->call, 409, "stale-generation", "generation %u of job 'j%llu' is over", p->generation,
                     (unsigned long long)p->job);
        return true;
    }
    if (!now && p->since == keys_base(c) + e->n_keys)
        return false;
    call_answer_new(p->call, 200, keys_json(c, e, p->since));
    return true;
}

struct answering {
    struct core *core;
    bool stopping;
};

static bool look(void *arg, void *own, bool due)
{
    const struct answering *a = arg;
    struct poll *p = own;

    if (a->stopping)
        call_problem(p->call, 503, "stopping", "the server is stopping; ask again");
    else if (!answer(a->core, p, due))
        return false;
    stats_answer(a->core->stats, p->call->status);
    call_deliver(p->call);
    return true;
}

void agents_answer_waiters(struct core *c, bool stopping)
{
    struct answering a = {.core = c, .stopping = stopping};

    if (stopping)
        waiters_wake_all(c->waiters);
    waiters_take(c->waiters, clock_mono_us(), look, &a);
}

static void wait_for(struct core *c, struct call *call, struct poll p)
{
    const char *node = http_param(call->req, 0), *wait = http_query(call->req, "wait");
    const char *incarnation = http_query(call->req, "incarnation");
    long s = wait ? strtol(wait, NULL, 10) : 0;
    int64_t deadline_us = clock_mono_us() + (s < 0 ? 0 : s > WAIT_MAX_S ? WAIT_MAX_S : s) * 1000000LL;
    int r;

    p.call = call;
    (void)snprintf(p.node, sizeof(p.node), "%s", node);
    (void)snprintf(p.incarnation, sizeof(p.incarnation), "%s", incarnation ? incarnation : "");
    r = waiters_add(c->waiters, p.kind == POLL_ASSIGNMENTS ? node_thing(p.node) : job_thing(p.job), deadline_us, &p);
    if (r == -ENOSPC)
        call_problem(call, 503, "busy", "%d long-polls are the most this server holds", CORE_WAITERS_MAX);
    else if (r < 0)
        call_problem(call, 503, "no-memory", "out of memory");
    else
        c->handed = true; /* looked at once this turn is durable */
}

static uint64_t query_u64(const struct call *call, const char *name)
{
    const char *text = http_query(call->req, name);

    return text ? strtoull(text, NULL, 10) : 0;
}

void agents_assignments(struct core *c, struct call *call)
{
    struct node *n = agents_find(c, http_param(call->req, 0));
    const char *incarnation = http_query(call->req, "incarnation");

    if (n && n->registered && (!incarnation || strcmp(incarnation, n->incarnation) == 0))
        agents_see(c, n, clock_mono_us());
    wait_for(c, call, (struct poll){.kind = POLL_ASSIGNMENTS, .version = query_u64(call, "version")});
}

void agents_keys(struct core *c, struct call *call)
{
    const char *generation = http_param(call->req, 2);

    wait_for(c, call,
             (struct poll){.kind = POLL_RENDEZVOUS,
                           .job = job_id_parse(http_param(call->req, 1)),
                           .generation = (uint32_t)strtoul(generation ? generation : "", NULL, 10),
                           .since = query_u64(call, "since")});
}

/* --- rendezvous -------------------------------------------------------------------------------------- */

void agents_drop_keys(struct core *c, struct entry *e)
{
    for (size_t i = 0; i < e->n_keys; i++) {
        free(e->keys[i].key);
        free(e->keys[i].value);
    }
    c->rendezvous_bytes -= e->keys_bytes;
    free(e->keys);
    e->keys = NULL;
    e->n_keys = e->keys_bytes = 0;
}

static int add_key(struct core *c, struct entry *e, const char *key, const char *value)
{
    size_t bytes = strlen(key) + strlen(value) + sizeof(struct rendezvous_key);
    struct rendezvous_key new, *grown;

    for (size_t i = 0; i < e->n_keys; i++)
        if (strcmp(e->keys[i].key, key) == 0)
            return 0; /* sent again: the first one stands */
    if (e->n_keys == CORE_KEYS_MAX || c->rendezvous_bytes + bytes > CORE_RENDEZVOUS_BYTES)
        return -ENOSPC;
    if ((e->n_keys & (e->n_keys - 1)) == 0) {
        grown = realloc(e->keys, (e->n_keys ? e->n_keys * 2 : 1) * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        e->keys = grown;
    }
    new = (struct rendezvous_key){.key = strdup(key), .value = strdup(value)};
    if (!new.key || !new.value) {
        free(new.key);
        free(new.value);
        return -ENOMEM;
    }
    e->keys[e->n_keys++] = new;
    e->keys_bytes += bytes;
    c->rendezvous_bytes += bytes;
    agents_wake_job(c, e->job.id);
    return 0;
}

void agents_key_put(struct core *c, struct call *call)
{
    const char *generation = http_param(call->req, 2), *key = http_param(call->req, 3);
    struct entry *e = core_find(c, job_id_parse(http_param(call->req, 1)));
    int r;

    if (!e || !e->job.live || e->job.generation != strtoul(generation, NULL, 10)) {
        call_problem(call, 409, "stale-generation", "generation %s of job '%s' is over", generation,
                     http_param(call->req, 1));
        return;
    }
    if (!call->text || strlen(call->text) > KEY_BYTES_MAX || strlen(key) > KEY_NAME_MAX || !*key) {
        call_problem(call, 422, "key-invalid",
                     "a key has a name of 1 to %d bytes and a value of at most 64 KiB as base64", KEY_NAME_MAX);
        return;
    }
    r = add_key(c, e, key, call->text);
    if (r < 0)
        call_problem(call, 507, "too-many-keys", "the run has too many rendezvous keys: %s", strerror(-r));
    else
        call_answer_new(call, 200, json_pack("{s:I}", "next", (json_int_t)(keys_base(c) + e->n_keys)));
}
