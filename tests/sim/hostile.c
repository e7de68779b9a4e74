#include "tests/sim/hostile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/hostile_priv.h"
#include "tests/sim/users.h"

#define CALL_MS 30000
#define STORM 40 /* calls at one instant, now and then */
#define NONSENSE_KINDS 16
#define LONG_TEXT 300000

struct waiting { /* a call under way */
    struct actor *a;
    enum hostile_due due;
    char what[200];
};

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

size_t hostile_draw(struct hostile *h, size_t n)
{
    return (size_t)world_draw(h->chance, n);
}

/* --- text of the wrong kind ---------------------------------------------------------------------------- */

static const char *repeated(const char *before, char what, size_t n, const char *after)
{
    static char text[LONG_TEXT + 4096];
    size_t head = strlen(before);

    memcpy(text, before, head);
    memset(text + head, what, n);
    (void)snprintf(text + head + n, sizeof(text) - head - n, "%s", after);
    return text;
}

const char *hostile_nonsense(struct hostile *h)
{
    static const char *const fixed[] = {"",
                                        "null",
                                        "[]",
                                        "{}",
                                        "{\"",
                                        "\xff\xfe{}",
                                        "{\"a\":1,\"a\":2}",
                                        "{\"runs\":{}}",
                                        "{\"node\":{},\"slots\":[1,2],\"runs\":[{}]}",
                                        "{\"devices\":{\"min\":1e300}}",
                                        "{\"name\":\"\\u0000\"}"};
    size_t k = hostile_draw(h, NONSENSE_KINDS);

    if (k < sizeof(fixed) / sizeof(fixed[0]))
        return fixed[k];
    if (k == 11)
        return repeated("{\"a\":", '[', 5000, "");
    if (k == 12)
        return repeated("{\"name\":\"", 'x', LONG_TEXT, "\"}");
    if (k == 13)
        return repeated("", '9', 4000, "");
    return k == 14 ? repeated("{\"incarnation\":\"", 'i', 2000, "\",\"runs\":[],\"seq\":1}")
                   : repeated("{\"command\":{\"argv\":[\"", 'y', 100000, "\"]}}");
}

/* --- calls ---------------------------------------------------------------------------------------------- */

static void check_refused(struct waiting *q, int status, const char *body, size_t len)
{
    struct hostile *h = q->a->h;

    if (status == 500)
        world_broken(h->w, "%s is answered with an internal error: %.*s", q->what, (int)(len > 300 ? 300 : len), body);
    if (q->due == HOSTILE_NO && status >= 200 && status < 300)
        world_broken(h->w, "%s is allowed, with %d: %.*s", q->what, status, (int)(len > 300 ? 300 : len), body);
    h->sum.refused += status >= 400;
}

/* A success with a job: it is the user's own. */
static void check_own(struct waiting *q, const json_t *job)
{
    const char *user = json_string_value(json_object_get(job, "user"));
    const char *id = json_string_value(json_object_get(job, "id"));

    if (user && strcmp(user, HOSTILE_USER) != 0)
        world_broken(q->a->h->w, "%s works on a job of %s", q->what, user);
    else if (id)
        hostile_user_hears(q->a, strtoull(id + 1, NULL, 10));
}

/* Assignments that an agent is given: each has a rank, or a source of state, on its node. */
static void check_set(struct waiting *q, const json_t *set)
{
    const json_t *list = json_object_get(set, "assignments");
    char *text;
    size_t i;
    json_t *one;

    json_array_foreach (list, i, one) {
        text = must(json_dumps(one, JSON_COMPACT));
        if (!strstr(text, q->a->node))
            world_broken(q->a->h->w, "%s is answered with an assignment of other nodes: %.300s", q->what, text);
        free(text);
    }
    hostile_agent_hears(q->a, list);
}

static void heard(void *arg, int status, const char *body, size_t len, const char *why)
{
    struct waiting *q = arg;
    json_t *doc;

    if (why && status > 0) {
        check_refused(q, status, body, len);
        doc = status < 300 && body ? json_loadb(body, len, 0, NULL) : NULL;
        if (q->due == HOSTILE_MINE && doc)
            check_own(q, doc);
        if (q->due == HOSTILE_SETS && doc)
            check_set(q, doc);
        json_decref(doc);
    }
    free(q);
}

void hostile_call(struct actor *a, enum http_role role, const char *method, const char *target, const char *body,
                  const char *key, enum hostile_due due)
{
    struct waiting *q = must(calloc(1, sizeof(*q)));
    struct front_request r = {
        .method = method, .target = target, .body = body, .idempotency_key = key, .who = {.role = role}};

    q->a = a;
    q->due = due;
    (void)snprintf(q->what, sizeof(q->what), "%s %s of %s with %.80s", method, target,
                   role == ROLE_AGENT ? a->node : "a hostile user", body ? body : "nothing");
    (void)snprintf(r.who.user, sizeof(r.who.user), "%s", role == ROLE_AGENT ? "agent" : HOSTILE_USER);
    (void)snprintf(r.who.node, sizeof(r.who.node), "%s", role == ROLE_AGENT ? a->node : "");
    a->h->sum.calls++;
    wire_call(a->h->n, -1, &a->h->life, &r, CALL_MS, heard, q);
}

/* --- actors --------------------------------------------------------------------------------------------- */

static void act(void *arg)
{
    struct actor *a = arg;
    struct hostile *h = a->h;
    size_t n = !users_ready(h->wish.users) ? 0 : hostile_draw(h, 50) == 0 ? STORM : 1;

    while (n-- > 0) {
        a->calls++;
        if (a->i % 2)
            hostile_user_acts(a);
        else
            hostile_agent_acts(a);
    }
    if (world_now_us(h->w) < h->wish.over_us)
        world_at(h->w, world_now_us(h->w) + (int64_t)hostile_draw(h, 2 * SECOND), &h->life, act, NULL, a);
}

struct hostile *hostile_new(struct world *w, struct wire *n, const struct agents *agents,
                            const struct hostile_wish *wish)
{
    struct hostile *h = must(calloc(1, sizeof(*h)));

    *h = (struct hostile){.w = w, .n = n, .agents = agents, .wish = *wish};
    h->chance = world_new(wish->seed ^ UINT64_C(0xE11));
    h->v = must(calloc((size_t)wish->actors + 1, sizeof(*h->v)));
    life_begin(w, &h->life);
    for (int i = 0; i < wish->actors; i++) {
        h->v[i] = (struct actor){.h = h, .i = i};
        (void)snprintf(h->v[i].node, sizeof(h->v[i].node), HOSTILE_NODE "%d", i);
        (void)snprintf(h->v[i].incarnation, sizeof(h->v[i].incarnation), "evil%d-1", i);
        world_at(w, (int64_t)hostile_draw(h, 5 * SECOND), &h->life, act, NULL, &h->v[i]);
    }
    return h;
}

void hostile_free(struct hostile *h)
{
    if (!h)
        return;
    for (int i = 0; i < h->wish.actors; i++) {
        json_decref(h->v[i].assigned);
        for (int k = 0; k < HOSTILE_BODIES; k++)
            free(h->v[i].sent[k]);
    }
    world_free(h->chance);
    free(h->v);
    free(h);
}

void hostile_stop(struct hostile *h)
{
    if (h->life.alive)
        life_end(h->w, &h->life);
}

struct hostile_sum hostile_sum(const struct hostile *h)
{
    return h->sum;
}
