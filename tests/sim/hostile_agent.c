/* What a hostile agent does. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/hostile_priv.h"

#define SLOTS 2

void hostile_agent_hears(struct actor *a, const json_t *assignments)
{
    json_decref(a->assigned);
    a->assigned = json_deep_copy(assignments);
}

static void enroll(struct actor *a, const char *node, enum hostile_due due)
{
    json_t *slots = json_array(), *doc;
    char *text;

    for (int i = 0; i < SLOTS; i++)
        (void)json_array_append_new(slots, json_pack("{s:i, s:s, s:s, s:i, s:i}", "slot", i, "kind", "cpu", "class",
                                                     HOSTILE_CLASS, "threads", 1, "memory_mib", 4096));
    doc = json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:o, s:[]}", "protocol", 2, "node", node, "address", "10.9.9.9",
                    "version", "0", "boot_id", "evil", "incarnation", a->incarnation, "slots", slots, "runs");
    text = json_dumps(doc, JSON_COMPACT);
    hostile_call(a, ROLE_AGENT, "POST", "/v1/agents/register", text, NULL, due);
    free(text);
    json_decref(doc);
}

static json_t *rank_json(struct hostile *h, json_int_t rank)
{
    static const char *const states[] = {"starting", "running", "exited", "exited", "exited", "gone"};
    static const json_int_t codes[] = {0, 0, 0, 1, 65, 74, 75, 76, 137, 255, -1, 256, -5000000000};
    static const char *const causes[] = {"done", "drained", "aborted", "user", "node", "program", "mine"};
    json_t *o = json_pack("{s:I, s:i, s:s, s:I, s:i}", "rank", rank, "slot", (int)hostile_draw(h, 3), "state",
                          states[hostile_draw(h, 6)], "exit_code", codes[hostile_draw(h, 13)], "signal",
                          hostile_draw(h, 4) ? 0 : (int)hostile_draw(h, 200));

    if (hostile_draw(h, 2))
        (void)json_object_set_new(o, "cause", json_string(causes[hostile_draw(h, 7)]));
    return o;
}

static json_t *run_json(struct hostile *h, const char *job, json_int_t generation, json_int_t n)
{
    json_t *ranks = json_array();

    for (json_int_t i = 0; i < n; i++)
        (void)json_array_append_new(ranks, rank_json(h, hostile_draw(h, 8) ? i : (json_int_t)hostile_draw(h, 9) - 4));
    return json_pack("{s:s, s:I, s:o}", "job", job, "generation", generation, "ranks", ranks);
}

/* Its own runs: ends that never were, of ranks that it does not have, of generations before and after. */
static json_t *own_runs(struct actor *a)
{
    json_t *runs = json_array(), *one;
    size_t i;

    json_array_foreach (a->assigned, i, one) {
        const char *job = json_string_value(json_object_get(one, "job"));
        json_int_t generation = json_integer_value(json_object_get(one, "generation"));

        if (job && hostile_draw(a->h, 5))
            (void)json_array_append_new(runs, run_json(a->h, job, generation + (hostile_draw(a->h, 8) ? 0 : -1), 2));
    }
    return runs;
}

/* Somebody's job, by guessing: most are there. */
static void somebodys(struct hostile *h, char ret[24], json_int_t *ret_generation)
{
    static const json_int_t odd[] = {-1, 0, 4294967296, 9223372036854775807};

    (void)snprintf(ret, 24, "j%zu", 1 + hostile_draw(h, 90));
    *ret_generation = hostile_draw(h, 10) ? 1 + (json_int_t)hostile_draw(h, 3) : odd[hostile_draw(h, 4)];
}

static json_t *others_runs(struct hostile *h, size_t n)
{
    json_t *runs = json_array();

    for (size_t i = 0; i < n; i++) {
        char job[24];
        json_int_t generation;

        somebodys(h, job, &generation);
        (void)json_array_append_new(runs, run_json(h, job, generation, 1 + (json_int_t)hostile_draw(h, 4)));
    }
    return runs;
}

/* Lines of others' jobs. */
static json_t *pieces(struct hostile *h)
{
    static const char *const lines[] = {
        "{\"type\":\"checkpoint\",\"rank\":0,\"step\":9,\"message\":\"" HOSTILE_SAYS "\"}\n",
        "{\"type\":\"fault\",\"rank\":0,\"message\":\"" HOSTILE_SAYS "\"}\n",
        "{\"type\":\"resumed\",\"rank\":0,\"step\":0,\"message\":\"" HOSTILE_SAYS "\"}\n",
        "{\"step\":99999,\"loss\":0,\"message\":\"" HOSTILE_SAYS "\"}\n", "no line"};
    json_t *all = json_array();

    for (size_t i = 0; i < 3; i++) {
        char job[24];
        json_int_t generation;

        somebodys(h, job, &generation);
        (void)json_array_append_new(all, json_pack("{s:s, s:I, s:i, s:I, s:s}", "job", job, "generation", generation,
                                                   "rank", (int)hostile_draw(h, 3) - 1, "offset",
                                                   (json_int_t)(hostile_draw(h, 4) ? 0 : 100000), "text",
                                                   lines[hostile_draw(h, 5)]));
    }
    return all;
}

static void send_report(struct actor *a, const char *node, const char *incarnation, json_t *runs, bool with_pieces,
                        enum hostile_due due)
{
    size_t keep = hostile_draw(a->h, HOSTILE_BODIES);
    char target[64];
    json_t *doc = json_pack("{s:s, s:i, s:o}", "incarnation", incarnation, "seq", a->calls, "runs", runs);

    if (with_pieces) {
        (void)json_object_set_new(doc, "events", pieces(a->h));
        (void)json_object_set_new(doc, "metrics", pieces(a->h));
        (void)json_object_set_new(doc, "logs", pieces(a->h));
    }
    free(a->sent[keep]);
    a->sent[keep] = json_dumps(doc, JSON_COMPACT);
    json_decref(doc);
    (void)snprintf(target, sizeof(target), "/v1/agents/%s/report", node);
    hostile_call(a, ROLE_AGENT, "POST", target, a->sent[keep], NULL, due);
}

static void ask_for_work(struct actor *a)
{
    char target[128];

    (void)snprintf(target, sizeof(target), "/v1/agents/%s/assignments?version=%zu&wait=0&incarnation=%s", a->node,
                   hostile_draw(a->h, 3), a->incarnation);
    hostile_call(a, ROLE_AGENT, "GET", target, NULL, NULL, HOSTILE_SETS);
}

/* As another node, by an agent of it that is or was, or by none. */
static void as_another(struct actor *a)
{
    char name[24], old[40], target[160];
    int births;

    agents_draw_name(a->h->agents, hostile_draw(a->h, 1000), name, sizeof(name), &births);
    (void)snprintf(old, sizeof(old), "%s-%zu", name, hostile_draw(a->h, (size_t)births + 1));
    if (hostile_draw(a->h, 3) == 0) {
        enroll(a, name, HOSTILE_NO);
        return;
    }
    if (hostile_draw(a->h, 2)) {
        send_report(a, name, old, others_runs(a->h, 5), true, HOSTILE_NO);
        return;
    }
    (void)snprintf(target, sizeof(target), "/v1/agents/%s/assignments?version=0&wait=0&incarnation=%s", name, old);
    hostile_call(a, ROLE_AGENT, "GET", target, NULL, NULL, HOSTILE_NO);
}

static void replay(struct actor *a)
{
    const char *body = a->sent[hostile_draw(a->h, HOSTILE_BODIES)];
    char target[64];

    (void)snprintf(target, sizeof(target), "/v1/agents/%s/report", a->node);
    if (body)
        hostile_call(a, ROLE_AGENT, "POST", target, body, NULL, HOSTILE_ANY);
}

static void nonsense(struct actor *a)
{
    char target[64];

    (void)snprintf(target, sizeof(target), hostile_draw(a->h, 2) ? "/v1/agents/register" : "/v1/agents/%s/report",
                   a->node);
    hostile_call(a, ROLE_AGENT, "POST", target, hostile_nonsense(a->h), NULL, HOSTILE_ANY);
}

/* What is not an agent's. */
static void out_of_place(struct actor *a)
{
    static const char *const targets[] = {"/v1/jobs", "/v1/tokens", "/v1/nodes", "/v1/projects", "/v1/events"};

    hostile_call(a, ROLE_AGENT, "GET", targets[hostile_draw(a->h, 5)], NULL, NULL, HOSTILE_NO);
}

/* A key of a run that it has no rank of. */
static void put_key(struct actor *a)
{
    char target[128], job[24];
    json_int_t generation;

    somebodys(a->h, job, &generation);
    (void)snprintf(target, sizeof(target), "/v1/agents/%s/rendezvous/%s/%" JSON_INTEGER_FORMAT "/%s?incarnation=%s",
                   a->node, job, generation, hostile_draw(a->h, 2) ? "ucx-0" : "address-1", a->incarnation);
    hostile_call(a, ROLE_AGENT, "PUT", target, "QUJD", NULL, HOSTILE_ANY);
}

void hostile_agent_acts(struct actor *a)
{
    switch (hostile_draw(a->h, 13)) {
    case 0:
        enroll(a, a->node, HOSTILE_ANY);
        break;
    case 1:
    case 2:
        ask_for_work(a);
        break;
    case 3:
    case 4:
        send_report(a, a->node, a->incarnation, own_runs(a), false, HOSTILE_ANY);
        break;
    case 5:
        send_report(a, a->node, a->incarnation, others_runs(a->h, 1 + hostile_draw(a->h, 8)), true, HOSTILE_ANY);
        break;
    case 6:
        send_report(a, a->node, a->incarnation, others_runs(a->h, hostile_draw(a->h, 20) ? 20 : 500), false,
                    HOSTILE_ANY);
        break;
    case 7:
    case 8:
        as_another(a);
        break;
    case 9:
        replay(a);
        break;
    case 10:
        put_key(a);
        break;
    case 11:
        nonsense(a);
        break;
    default:
        out_of_place(a);
    }
}
