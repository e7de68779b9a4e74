#include "tests/sim/wire.h"

#include <stdlib.h>
#include <string.h>

#define FASTEST_US 100
#define USUAL_US 2000

struct wire {
    struct world *w;
    wire_server *server;
    void *arg;
    int places;
    bool *cut;
    double lose, twice;
    int64_t late_us;
};

struct talk { /* a call; freed when nothing refers to it any more */
    struct wire *n;
    int place, refs;
    const struct life *life;
    uint64_t life_number;
    bool over;
    char *method, *target, *body, *key;
    struct http_identity who;
    wire_done *done;
    void *arg;
};

struct reply {
    struct talk *t;
    int status;
    char *body;
    size_t len;
};

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

struct wire *wire_new(struct world *w, int places, wire_server *server, void *arg)
{
    struct wire *n = must(calloc(1, sizeof(*n)));

    *n = (struct wire){.w = w, .server = server, .arg = arg, .places = places, .late_us = USUAL_US};
    n->cut = must(calloc((size_t)places, sizeof(*n->cut)));
    return n;
}

void wire_free(struct wire *n)
{
    if (!n)
        return;
    free(n->cut);
    free(n);
}

void wire_cut(struct wire *n, int place, bool cut)
{
    n->cut[place] = cut;
}

void wire_set(struct wire *n, double lose, double twice, int64_t late_us)
{
    n->lose = lose;
    n->twice = twice;
    n->late_us = late_us > USUAL_US ? late_us : USUAL_US;
}

static void talk_drop(void *arg)
{
    struct talk *t = arg;

    if (--t->refs > 0)
        return;
    if (!t->over)
        t->done(t->arg, 0, NULL, 0, NULL);
    free(t->method);
    free(t->target);
    free(t->body);
    free(t->key);
    free(t);
}

static void reply_drop(void *arg)
{
    struct reply *r = arg;

    talk_drop(r->t);
    free(r->body);
    free(r);
}

/* Tell the client how its call ended, if it still lives and waits. */
static void tell(struct talk *t, int status, const char *body, size_t len, const char *why)
{
    if (t->over)
        return;
    t->over = true;
    if (t->life->alive && t->life->number == t->life_number)
        t->done(t->arg, status, body, len, why);
    else
        t->done(t->arg, 0, NULL, 0, NULL);
}

static bool goes_through(struct wire *n, const struct talk *t)
{
    return !(t->place >= 0 && n->cut[t->place]) && !world_chance(n->w, n->lose);
}

static int64_t arrival(struct wire *n)
{
    return world_now_us(n->w) + world_between(n->w, FASTEST_US, n->late_us);
}

static void reply_arrives(void *arg)
{
    struct reply *r = arg;

    tell(r->t, r->status, r->body, r->len, r->status ? "" : "connection refused");
    reply_drop(r);
}

/* The server answers: the answer sets out. */
static void answer(void *arg, int status, const char *body, size_t len)
{
    struct talk *t = arg;
    struct reply *r;

    if (status == FRONT_NEVER) {
        talk_drop(t);
        return;
    }
    r = must(calloc(1, sizeof(*r)));
    *r = (struct reply){.t = t, .status = status, .len = len}; /* the request's reference goes over */
    if (body) {
        r->body = must(malloc(len + 1));
        memcpy(r->body, body, len);
        r->body[len] = '\0';
    }
    if (goes_through(t->n, t))
        world_at(t->n->w, arrival(t->n), NULL, reply_arrives, reply_drop, r);
    else
        reply_drop(r);
}

static void request_arrives(void *arg)
{
    struct talk *t = arg;
    struct front_request q = {
        .method = t->method, .target = t->target, .body = t->body, .idempotency_key = t->key, .who = t->who};

    if (!t->n->server(t->n->arg, &q, answer, t))
        answer(t, 0, NULL, 0);
}

static void time_is_over(void *arg)
{
    tell(arg, 0, NULL, 0, "timed out");
    talk_drop(arg);
}

void wire_call(struct wire *n, int place, const struct life *life, const struct front_request *q, int timeout_ms,
               wire_done *done, void *arg)
{
    struct talk *t = must(calloc(1, sizeof(*t)));
    int sent = 1;

    *t = (struct talk){.n = n,
                       .place = place,
                       .life = life,
                       .life_number = life->number,
                       .who = q->who,
                       .done = done,
                       .arg = arg,
                       .refs = 1};
    t->method = must(strdup(q->method));
    t->target = must(strdup(q->target));
    t->body = q->body ? must(strdup(q->body)) : NULL;
    t->key = q->idempotency_key ? must(strdup(q->idempotency_key)) : NULL;
    world_at(n->w, world_now_us(n->w) + timeout_ms * INT64_C(1000), NULL, time_is_over, talk_drop, t);
    if (world_chance(n->w, n->twice))
        sent++;
    for (; sent > 0; sent--)
        if (goes_through(n, t)) {
            t->refs++;
            world_at(n->w, arrival(n), NULL, request_arrives, talk_drop, t);
        }
}
