#include "server/control/looks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/protocol/evidence.h"
#include "api/protocol/incident.h"
#include "server/control/agent_rights.h"
#include "server/control/change.h"
#include "server/control/incidents.h"
#include "server/control/state.h"
#include "server/http/call.h"

static const struct bucket_rule bytes_of_node = {.per_s = 1 << 20, .burst = 16 << 20};

struct look {
    uint64_t job, number;
    uint32_t generation;
    int64_t deadline_us;
    size_t wanted, bytes; /* nodes that are to tell; of the bodies that came */
    json_t *parts;
    struct call *calls[LOOK_CALLS_MAX];
    size_t n_calls;
};

struct looks {
    struct look *v[LOOKS_MAX];
};

struct looks *looks_new(void)
{
    return calloc(1, sizeof(struct looks));
}

static void look_free(struct look *l)
{
    if (!l)
        return;
    json_decref(l->parts);
    free(l);
}

void looks_free(struct looks *l)
{
    for (size_t i = 0; l && i < LOOKS_MAX; i++)
        look_free(l->v[i]);
    free(l);
}

static struct look **find(struct looks *l, uint64_t job, uint64_t number)
{
    for (size_t i = 0; i < LOOKS_MAX; i++)
        if (l->v[i] ? l->v[i]->job == job && (number == 0 || l->v[i]->number == number) : job == 0)
            return &l->v[i];
    return NULL;
}

/* --- answering --------------------------------------------------------------------------------------- */

/* What a node told of its ranks goes where it belongs. */
static void take_told(const struct look *l, struct incident_rank *ranks, size_t n)
{
    const json_t *part;
    size_t i;

    json_array_foreach (l->parts, i, part) {
        const char *node = json_string_value(json_object_get(part, "node"));
        struct evidence e;

        if (!node || evidence_read(part, &e, NULL) < 0)
            continue;
        for (size_t k = 0; k < e.n_ranks; k++) {
            struct report_rank *told = &e.ranks[k].told;

            if ((size_t)told->rank >= n || strcmp(ranks[told->rank].node, node) != 0)
                continue;
            wire_clear(&report_rank_message, &ranks[told->rank].told);
            ranks[told->rank].told = *told;
            *told = (struct report_rank){.rank = 0}; /* moved */
        }
        evidence_clear(&e);
    }
}

static json_t *answer_json(const struct core *c, const struct look *l, const struct entry *e)
{
    struct incident in = {.kind = INCIDENT_LOOK, .at_ms = c->now.wall_us / 1000, .layout = e->job.layout};
    struct hang_verdict v;
    struct buf text;
    json_t *doc = NULL;

    buf_init(&text, INCIDENT_TEXT_MAX - 1);
    (void)snprintf(in.job, sizeof(in.job), "j%llu", (unsigned long long)l->job);
    in.generation = l->generation;
    in.ranks = calloc(e->job.n_places + 1, sizeof(*in.ranks));
    for (; in.ranks && in.n_ranks < e->job.n_places; in.n_ranks++) {
        (void)snprintf(in.ranks[in.n_ranks].node, sizeof(in.ranks->node), "%s", e->job.places[in.n_ranks].node);
        in.ranks[in.n_ranks].told =
            (struct report_rank){.rank = (int)in.n_ranks, .slot = -1, .step = -1, .stall = {.peer = -1}};
    }
    take_told(l, in.ranks, in.n_ranks);
    in.parts = json_incref(l->parts);
    if (in.ranks && incident_judge(in.ranks, in.n_ranks, &v, &text) == 0 &&
        incident_verdict(&v, buf_text(&text), &in.verdict) == 0)
        doc = incident_write(&in);
    incident_clear(&in);
    buf_clear(&text);
    return doc;
}

/* All is there that will come. */
static void finish(struct core *c, struct look **at)
{
    struct look *l = *at;
    const struct entry *e = table_find(&c->jobs, l->job);
    json_t *doc = e && e->job.live && e->job.generation == l->generation ? answer_json(c, l, e) : NULL;

    for (size_t i = 0; i < l->n_calls; i++) {
        if (doc)
            call_answer_new(l->calls[i], 200, json_incref(doc));
        else
            call_problem(l->calls[i], 409, "wrong-state", "the run ended while it was looked at; ask again");
        state_answered(c, l->calls[i]);
    }
    json_decref(doc);
    look_free(l);
    *at = NULL;
}

void looks_tick(struct core *c)
{
    for (size_t i = 0; i < LOOKS_MAX; i++)
        if (c->looks->v[i] && c->now.mono_us >= c->looks->v[i]->deadline_us)
            finish(c, &c->looks->v[i]);
}

void looks_stop(struct core *c)
{
    for (size_t i = 0; i < LOOKS_MAX; i++) {
        struct look *l = c->looks->v[i];

        for (size_t k = 0; l && k < l->n_calls; k++) {
            call_problem(l->calls[k], 503, "stopping", "the server is stopping; ask again");
            call_deliver(l->calls[k]);
        }
        look_free(l);
        c->looks->v[i] = NULL;
    }
}

/* --- asking ------------------------------------------------------------------------------------------ */

static size_t count_nodes(const struct job *j)
{
    size_t n = 0;

    for (size_t i = 0; i < j->n_places; i++) {
        size_t k = 0;

        while (strcmp(j->places[k].node, j->places[i].node) != 0)
            k++;
        n += k == i;
    }
    return n;
}

static struct look *make(struct core *c, struct entry *e)
{
    struct look *l = calloc(1, sizeof(*l));

    if (!l)
        return NULL;
    e->run.looked_us = c->now.mono_us;
    incidents_ask(c, e);
    change_orders(c, &e->job);
    *l = (struct look){.job = e->job.id,
                       .number = e->run.evidence,
                       .generation = e->job.generation,
                       .deadline_us = c->now.mono_us + LOOK_US,
                       .wanted = count_nodes(&e->job),
                       .parts = json_array()};
    return l;
}

void looks_begin(struct core *c, struct call *call, struct entry *e)
{
    struct look **at = find(c->looks, e->job.id, 0);

    if (at && (*at)->generation != e->job.generation)
        finish(c, at);
    if ((!at || !*at) && e->run.looked_us > 0 && c->now.mono_us - e->run.looked_us < LOOK_PAUSE_US) {
        http_set_header(call->req, "Retry-After", "1");
        call_problem(call, 429, "too-many-requests", "this run was looked at a moment ago; try again in a second");
        return;
    }
    if (!at || !*at) {
        at = find(c->looks, 0, 0);
        if (at)
            *at = make(c, e);
    }
    if (!at || !*at || (*at)->n_calls == LOOK_CALLS_MAX) {
        call_problem(call, 503, "busy", "%d runs at a time are looked at, each for %d requests; try again in a second",
                     LOOKS_MAX, LOOK_CALLS_MAX);
        return;
    }
    (*at)->calls[(*at)->n_calls++] = call;
    c->handed = true;
}

/* --- what agents send -------------------------------------------------------------------------------- */

/* What of a body is kept: nothing that proves it, and nothing that nobody knows. */
static json_t *part_new(const json_t *body, const char *node)
{
    static const char *const kept[] = {"job", "generation", "number", "took_ms", "kernel", "ranks"};
    json_t *part = json_pack("{s:s}", "node", node);

    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        if (part && json_object_get(body, kept[i]))
            (void)json_object_set(part, kept[i], json_object_get(body, kept[i]));
    return part;
}

static bool has_told(const struct look *l, const char *node)
{
    const json_t *part;
    size_t i;

    json_array_foreach (l->parts, i, part) {
        const char *of = json_string_value(json_object_get(part, "node"));

        if (of && strcmp(of, node) == 0)
            return true;
    }
    return false;
}

static void add(struct core *c, struct look **at, const struct call *call, const char *node)
{
    struct look *l = *at;
    size_t len = 0, i;
    json_t *part, *rank;

    if (has_told(l, node))
        return;
    (void)http_body(call->req, &len);
    l->bytes += len;
    part = part_new(call->body, node);
    json_array_foreach (json_object_get(part, "ranks"), i, rank) {
        if (l->bytes <= LOOK_BYTES)
            break;
        (void)json_object_del(rank, "processes");
        (void)json_object_del(rank, "flight");
        (void)json_object_del(rank, "log");
    }
    (void)json_array_append_new(l->parts, part);
    if (json_array_size(l->parts) >= l->wanted)
        finish(c, at);
}

void looks_take(struct core *c, struct call *call)
{
    struct node *n = cluster_node(&c->cluster, http_param(call->req, 0));
    struct evidence e;
    struct merr err;
    struct look **at;
    uint64_t job;
    size_t len = 0;
    double wait_s;

    if (!n || !n->registered ||
        !agent_is_registered(json_string_value(json_object_get(call->body, "incarnation")), n->incarnation)) {
        call_problem(call, 404, "unknown-node",
                     "node '%s' is not registered with this server, or another agent took its name: register",
                     http_param(call->req, 0));
        return;
    }
    if (evidence_read(call->body, &e, &err) < 0) {
        call_problem(call, 422, "evidence-invalid", "%s", err.text);
        return;
    }
    job = job_id_parse(e.job);
    (void)http_body(call->req, &len);
    wait_s = bucket_take(&n->evidence, &bytes_of_node, (double)len, c->now.mono_us);
    if (!agent_has_proof(c->cfg.run_key, job, (uint64_t)e.generation, n->name, e.proof) || e.generation > INT32_MAX) {
        call_problem(call, 403, "not-assigned", "node '%s' has no proof of this run", n->name);
    } else if (wait_s > 0) {
        call_problem(call, 429, "too-much", "node '%s' has sent as much evidence as it may; what is left out is lost",
                     n->name);
    } else {
        at = e.number > 0 ? find(c->looks, job, (uint64_t)e.number) : NULL;
        if (at)
            add(c, at, call, n->name);
        else
            incidents_add_new(c, job, (uint32_t)e.generation, part_new(call->body, n->name));
        call_answer_new(call, 200, json_object());
    }
    evidence_clear(&e);
}
