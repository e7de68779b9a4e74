#include "tests/sim/agents.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/client/calls.h"
#include "tests/sim/agent_check.h"
#include "worker/agent/agent.h"
#include "worker/agent/agent_priv.h"

#define CLASSES 2

struct calls { /* of one agent's life */
    struct agents *all;
    int i;
};

struct one {
    struct agents *all;
    int i;
    struct life life;
    struct agent *agent; /* NULL: not running */
    struct agent_check *check;
    struct calls calls;
    char incarnation[33]; /* of the newest */
    int births;
    int64_t wake_us; /* of the earliest tick that is asked for; INT64_MAX: none */
    bool removed;
};

struct agents {
    struct world *w;
    struct machines *m;
    struct wire *n;
    int count, slots;
    struct one *v;
};

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

struct agents *agents_new(struct world *w, struct machines *m, struct wire *n, int count, int slots)
{
    struct agents *all = must(calloc(1, sizeof(*all)));

    *all = (struct agents){.w = w, .m = m, .n = n, .count = count, .slots = slots};
    all->v = must(calloc((size_t)count, sizeof(*all->v)));
    for (int i = 0; i < count; i++)
        all->v[i] = (struct one){.all = all, .i = i, .calls = {.all = all, .i = i}};
    return all;
}

static void clear(struct one *o)
{
    struct agent *a = o->agent;

    o->agent = NULL;
    if (!a)
        return;
    agent_check_free(o->check);
    o->check = NULL;
    ship_free(a->ship);
    ranks_free(a->ranks);
    witness_free(a->witness);
    machine_free(a->machine);
    agent_forget_wanted(a);
    free(a->forgotten);
    free(a);
}

void agents_free(struct agents *all)
{
    if (!all)
        return;
    for (int i = 0; i < all->count; i++)
        clear(&all->v[i]);
    free(all->v);
    free(all);
}

bool agents_running(const struct agents *all, int i)
{
    return all->v[i].agent != NULL;
}

bool agents_removed(const struct agents *all, int i)
{
    return all->v[i].removed;
}

void agents_draw_name(const struct agents *all, size_t i, char *ret, size_t size, int *ret_births)
{
    int on = (int)(i % (size_t)all->count);

    (void)snprintf(ret, size, "%s", machines_name(all->m, on));
    *ret_births = all->v[on].births;
}

void agents_kill(struct agents *all, int i)
{
    struct one *o = &all->v[i];

    if (!o->agent)
        return;
    world_note(all->w, "%s: the agent dies", machines_name(all->m, i));
    life_end(all->w, &o->life);
    clear(o);
}

void agents_crash(struct agents *all, int i, int n)
{
    if (all->v[i].agent)
        machines_crash_agent(all->m, i, n);
}

void agents_hold(struct agents *all, int i, int64_t for_us)
{
    life_hold(all->w, &all->v[i].life, world_now_us(all->w) + for_us);
    if (all->v[i].agent)
        agent_check_held(all->v[i].check, world_now_us(all->w) + for_us);
}

/* --- turns -------------------------------------------------------------------------------------------- */

static void turn(void *arg);

static void wake_at(struct one *o, int64_t at_us)
{
    if (at_us >= o->wake_us || at_us == INT64_MAX)
        return;
    o->wake_us = at_us;
    world_at(o->all->w, at_us, &o->life, turn, NULL, o);
}

/* Its agent died in the middle of this turn: nobody hears of what it did after that. */
static bool crashed(struct one *o)
{
    if (!machines_agent_crashed(o->all->m, o->i))
        return false;
    agents_kill(o->all, o->i);
    return true;
}

static void turn(void *arg)
{
    struct one *o = arg;
    int64_t now_us = world_now_us(o->all->w);

    if (now_us < o->wake_us)
        return; /* an earlier turn has moved it */
    o->wake_us = INT64_MAX;
    wake_at(o, agent_tick(o->agent, now_us));
    if (crashed(o))
        return;
    agent_check_turn(o->check, o->agent);
    if (o->agent->removed) { /* it ends its ranks and itself: as a machine that is switched off does */
        o->removed = true;
        agents_kill(o->all, o->i);
        machines_wipe(o->all->m, o->i);
    }
}

void agents_poke(void *agents, int i)
{
    struct agents *all = agents;

    if (all->v[i].agent)
        wake_at(&all->v[i], world_now_us(all->w));
}

static void fill_devices(const struct agents *all, int i, struct devices *d)
{
    static const char *const classes[CLASSES] = {"fast", "slow"};

    d->n = all->slots;
    d->threads = 1;
    for (int k = 0; k < d->n; k++) {
        d->v[k] = (struct device){.memory_mib = 4096, .gpu = -1, .trains = true};
        (void)snprintf(d->v[k].kind, sizeof(d->v[k].kind), "cpu");
        (void)snprintf(d->v[k].class, sizeof(d->v[k].class), "%s", classes[i % CLASSES]);
    }
}

void agents_start(struct agents *all, int i)
{
    struct one *o = &all->v[i];
    struct merr err;
    struct agent *a;

    if (o->agent || !machines_up(all->m, i))
        return;
    a = must(calloc(1, sizeof(*a)));
    a->node = machines_name(all->m, i);
    a->signal_fd = -1;
    a->heartbeat_us = SECOND;
    a->report_bytes = SHIP_REPORT_MAX;
    a->poll_backoff.key[0] = a->report_backoff.key[0] = (uint32_t)world_draw(all->w, UINT32_MAX);
    (void)snprintf(a->succeeds, sizeof(a->succeeds), "%s", o->incarnation);
    (void)snprintf(a->incarnation, sizeof(a->incarnation), "%s-%d", a->node, ++o->births);
    (void)snprintf(o->incarnation, sizeof(o->incarnation), "%s", a->incarnation);
    (void)snprintf(a->address, sizeof(a->address), "10.0.%d.%d", i / 250, i % 250 + 1);
    fill_devices(all, i, &a->devices);
    a->machine = machines_open(all->m, i);
    a->calls = &o->calls;
    a->ship = must(ship_new(a->machine));
    a->witness = must(witness_new(a->calls, a->machine, a->node, a->incarnation));
    if (ranks_new(&(struct ranks_cfg){.machine = a->machine,
                                      .node = a->node,
                                      .slots = all->slots,
                                      .failed = witness_failed,
                                      .arg = a->witness},
                  &a->ranks, &err) < 0)
        abort();
    o->agent = a;
    o->check = agent_check_new(all->w);
    o->removed = false;
    o->wake_us = INT64_MAX;
    life_begin(all->w, &o->life);
    world_note(all->w, "%s: the agent starts", a->node);
    if (ranks_adopt(a->ranks, &err) < 0)
        world_broken(all->w, "%s: what an agent left is not adopted: %s", a->node, err.text);
    wake_at(o, world_now_us(all->w));
}

/* --- api/client/calls.h ------------------------------------------------------------------------------- */

struct pending {
    struct one *o;
    calls_done *done;
    void *arg;
};

static void answered(void *arg, int status, const char *body, size_t len, const char *why)
{
    struct pending p = *(struct pending *)arg;

    free(arg);
    if (!why)
        return;
    p.done(p.arg, status ? status : -EHOSTUNREACH, body, len, why);
    if (!crashed(p.o))
        wake_at(p.o, world_now_us(p.o->all->w));
}

int calls_show_certificate(struct calls *h, const char *file, struct merr *err)
{
    (void)h;
    (void)file;
    return merr_set(err, -ENOTSUP, "simulated agents have no certificates");
}

int calls_begin(struct calls *h, const struct call *call, struct merr *err)
{
    struct one *o = &h->all->v[h->i];
    struct pending *p = must(malloc(sizeof(*p)));
    struct front_request q = {
        .method = call->method, .target = call->path, .body = call->body, .who = {.role = ROLE_AGENT, .user = "agent"}};

    if (machines_agent_crashed(h->all->m, h->i)) {
        free(p);
        return merr_set(err, -EIO, "the agent is dead");
    }
    (void)snprintf(q.who.node, sizeof(q.who.node), "%s", o->agent->node); /* as if enrolled */
    *p = (struct pending){.o = o, .done = call->done, .arg = call->arg};
    wire_call(h->all->n, h->i, &o->life, &q, call->timeout_ms, answered, p);
    return 0;
}

/* Nobody waits here: an agent's turns come as events. */
void calls_wait(struct calls *h, const int *fds, int n, int64_t deadline_us)
{
    (void)h;
    (void)fds;
    (void)n;
    (void)deadline_us;
    abort();
}

/* --- worker/agent/mirror.h ---------------------------------------------------------------------------- */

int64_t mirror_tick(struct mirror *m, int64_t now_us)
{
    (void)m;
    (void)now_us;
    return INT64_MAX;
}

int mirror_fd(const struct mirror *m)
{
    (void)m;
    return -1;
}
