#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/spec_plan.h"
#include "base/clock.h"
#include "server/core.h"

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
    if (e->hand_over && strcmp(order, "drain") == 0)
        order = "hand-over";
    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)j->id);
    (void)snprintf(dir, sizeof(dir), "%s/%s", c->cfg.jobs_dir, id);
    if (e->open && j->plan)
        (void)spec_settle(spec, j->plan);
    return json_pack("{s:s, s:I, s:s, s:i, s:s, s:{s:i, s:i, s:i, s:i}, s:I, s:o, s:i, s:o?, s:o*, s:b}", "job", id,
                     "generation", (json_int_t)j->generation, "order", order, "grace_s", e->grace_s, "dir", dir,
                     "layout", "tp",
                     j->layout.tp, "pp", j->layout.pp, "cp", j->layout.cp, "dp", j->layout.dp, "world",
                     (json_int_t)j->n_places, "ranks", world_of(j), "master_port", j->master_port, "spec",
                     spec, "leaves", leaves_of(j), "measure_links", e->measure_links);
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

/* Answer a waiter that need not wait. False: it goes on waiting. */
static bool answer(struct core *c, struct waiter *w, bool now)
{
    struct node *n = agents_find(c, w->node);
    struct entry *e;

    if (!n || !n->registered) {
        call_problem(w->call, 404, "unknown-node", "node '%s' is not registered with this server: register", w->node);
        return true;
    }
    if (w->kind == WAIT_ASSIGNMENTS) {
        if (n->version == w->version && !now)
            return false;
        call_answer_new(w->call, 200, assignments_json(c, n));
        return true;
    }
    e = core_find(c, w->job);
    if (!e || !e->job.live || e->job.generation != w->generation) {
        call_problem(w->call, 409, "stale-generation", "generation %u of job 'j%llu' is over", w->generation,
                     (unsigned long long)w->job);
        return true;
    }
    if (!now && w->since == keys_base(c) + e->n_keys)
        return false;
    call_answer_new(w->call, 200, keys_json(c, e, w->since));
    return true;
}

void agents_answer_waiters(struct core *c, bool all)
{
    int64_t now = clock_mono_us();
    size_t kept = 0;

    for (size_t i = 0; i < c->n_waiters; i++) {
        struct waiter *w = &c->waiters[i];

        if (all)
            call_problem(w->call, 503, "stopping", "the server is stopping; ask again");
        else if (!answer(c, w, now >= w->deadline_us)) {
            c->waiters[kept++] = *w;
            continue;
        }
        stats_answer(c->stats, w->call->status);
        call_deliver(w->call);
    }
    c->n_waiters = kept;
}

static void wait_for(struct core *c, struct call *call, struct waiter w)
{
    const char *node = http_param(call->req, 0), *wait = http_query(call->req, "wait");
    long s = wait ? strtol(wait, NULL, 10) : 0;

    if (c->n_waiters == CORE_WAITERS_MAX) {
        call_problem(call, 503, "busy", "%d long-polls are the most this server holds", CORE_WAITERS_MAX);
        return;
    }
    if (c->n_waiters == c->waiters_cap) {
        size_t cap = c->waiters_cap ? c->waiters_cap * 2 : 64;
        struct waiter *grown = realloc(c->waiters, cap * sizeof(*grown));

        if (!grown) {
            call_problem(call, 503, "no-memory", "out of memory");
            return;
        }
        c->waiters = grown;
        c->waiters_cap = cap;
    }
    w.call = call;
    w.deadline_us = clock_mono_us() + (s < 0 ? 0 : s > WAIT_MAX_S ? WAIT_MAX_S : s) * 1000000LL;
    (void)snprintf(w.node, sizeof(w.node), "%s", node);
    c->waiters[c->n_waiters++] = w;
    c->handed = true;
    c->poke = true; /* looked at once this turn is durable */
}

static uint64_t query_u64(const struct call *call, const char *name)
{
    const char *text = http_query(call->req, name);

    return text ? strtoull(text, NULL, 10) : 0;
}

void agents_assignments(struct core *c, struct call *call)
{
    struct node *n = agents_find(c, http_param(call->req, 0));

    if (n && n->registered)
        agents_see(c, n, clock_mono_us());
    wait_for(c, call, (struct waiter){ .kind = WAIT_ASSIGNMENTS, .version = query_u64(call, "version") });
}

void agents_keys(struct core *c, struct call *call)
{
    const char *generation = http_param(call->req, 2);

    wait_for(c, call,
             (struct waiter){ .kind = WAIT_RENDEZVOUS,
                              .job = job_id_parse(http_param(call->req, 1)),
                              .generation = (uint32_t)strtoul(generation ? generation : "", NULL, 10),
                              .since = query_u64(call, "since") });
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
    new = (struct rendezvous_key){ .key = strdup(key), .value = strdup(value) };
    if (!new.key || !new.value) {
        free(new.key);
        free(new.value);
        return -ENOMEM;
    }
    e->keys[e->n_keys++] = new;
    e->keys_bytes += bytes;
    c->rendezvous_bytes += bytes;
    c->poke = true;
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
