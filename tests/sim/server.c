#include "tests/sim/server.h"

#include <stdlib.h>

#include "server/control/events.h"
#include "server/control/files.h"
#include "server/control/readers.h"
#include "server/control/routes.h"
#include "server/control/turn.h"
#include "server/http/stats.h"
#include "tests/memory/spool_memory.h"
#include "tests/memory/store_memory.h"

#define MONO_BEGIN_US (3600 * SECOND)
#define WALL_BEGIN_US INT64_C(1800000000000000)
#define TURN_US 200             /* from a call to the turn that takes it, which takes others along */
#define STANDBY_US (SECOND / 4) /* between two looks at the other's lease */
#define OLD_LEADER_ASKED 0.2    /* chance that a client asks the older of two that believe that they lead */

struct one {
    struct sim_server *all;
    struct life life; /* of its process */
    struct store_connection *connection;
    struct store_backend backend;
    struct store *store;
    struct stats *stats;
    struct core *core; /* NULL: it does not lead, as far as it knows */
    struct routes_arg routes;
    int64_t wake_us; /* of the next turn that is asked for */
    int64_t busy_until_us;
    enum store_fault next_commit; /* STORE_FINE: it does not die in it */
    int64_t away_us;              /* after that */
};

struct sim_server {
    struct world *w;
    void (*after_turn)(void *arg, struct core *c);
    void *arg;
    struct clock clock;
    int64_t wall_off_us;
    struct one *in_turn; /* whose turn it is; NULL: nobody's */
    int64_t spent_us;    /* in it; that server's next one begins after it */
    struct store_memory *memory;
    struct spool_memory *disk;
    struct spool spool;
    struct store_mark mark;                     /* as a file outside the store has it (watermark.h) */
    bool break_next;                            /* connection, after a commit */
    int64_t store_back_us, store_full_until_us; /* simulated */
    uint64_t turns, epoch;                      /* the latter: of whoever led last */
    int lives, n, jobs, spares;
    struct one v[SIM_SERVERS_MAX];
};

/* --- time and store ------------------------------------------------------------------------------------- */

static int64_t now_us(const struct sim_server *s)
{
    return world_now_us(s->w) + s->spent_us;
}

/* As much time passes with each look at the clock in a turn as a server of this size takes for a part of it. */
static int64_t mono_us(void *arg)
{
    struct sim_server *s = arg;

    if (s->in_turn && s->in_turn->core)
        s->spent_us += (int64_t)(s->in_turn->core->jobs.n + 4 * s->in_turn->core->cluster.n_nodes) / 16;
    return MONO_BEGIN_US + now_us(s);
}

static int64_t wall_us(void *arg)
{
    const struct sim_server *s = arg;

    return WALL_BEGIN_US + now_us(s) + s->wall_off_us;
}

/* The store is asked for something. */
static enum store_fault on_store(void *arg, enum store_moment at)
{
    struct sim_server *s = arg;
    struct one *o = s->in_turn;
    enum store_fault f = STORE_FINE;

    if (now_us(s) < s->store_back_us)
        return STORE_LOST;
    if (at != STORE_AT_COMMIT)
        return STORE_FINE;
    if (now_us(s) < s->store_full_until_us)
        return STORE_REFUSED;
    if (o && o->core && o->next_commit != STORE_FINE) { /* it dies in this one */
        f = o->next_commit;
        o->next_commit = STORE_FINE;
        front_mute();
        atomic_store(&o->core->turn.stop, 1);
    } else if (s->break_next) {
        s->break_next = false;
        f = STORE_UNANSWERED;
    }
    return f;
}

static void on_wait(void *arg, int64_t us)
{
    struct sim_server *s = arg;

    s->spent_us += us > SECOND / 10 ? us : SECOND / 10;
}

/* --- lives ---------------------------------------------------------------------------------------------- */

static void begin(void *arg);

static void later(struct one *o, int64_t after_us)
{
    world_at(o->all->w, world_now_us(o->all->w) + after_us, &o->life, begin, NULL, o);
}

static void gone(struct one *o)
{
    front_mute();
    store_connection_break(o->connection);
    files_stop(o->core->files);
    readers_stop(o->core->readers);
    turn_close(o->core);
    turn_free(o->core);
    o->core = NULL;
    front_listen();
    store_close(o->store);
    store_connection_free(o->connection);
    stats_free(o->stats);
}

static void die(struct one *o, int64_t away_us)
{
    world_note(o->all->w, "the server dies");
    o->next_commit = STORE_FINE;
    gone(o);
    life_end(o->all->w, &o->life);
    life_begin(o->all->w, &o->life);
    later(o, away_us);
}

/* The one that leads: of the newest epoch. NULL: it is gone, and nobody has taken the lead since. */
static struct one *leader(struct sim_server *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->v[i].core && store_epoch(s->v[i].store) == s->epoch)
            return &s->v[i];
    return NULL;
}

/* --- turns ---------------------------------------------------------------------------------------------- */

static void turn(void *arg);

static void wake_at(struct one *o, int64_t at_us)
{
    at_us = at_us > o->busy_until_us ? at_us : o->busy_until_us;
    if (at_us >= o->wake_us)
        return;
    o->wake_us = at_us;
    world_at(o->all->w, at_us, &o->life, turn, NULL, o);
}

static void turn(void *arg)
{
    struct one *o = arg;
    struct sim_server *s = o->all;
    struct turn *t;
    int64_t next_us;
    bool durable;

    if (world_now_us(s->w) < o->wake_us || !o->core)
        return;
    o->wake_us = INT64_MAX;
    s->turns++;
    t = &o->core->turn;
    s->in_turn = o;
    durable = turn_take(o->core, t->later ? t->later : queue_take(&t->queue, SIZE_MAX, 0));
    s->in_turn = NULL;
    o->busy_until_us = now_us(s);
    s->spent_us = 0;
    if (!durable) {
        die(o, o->away_us);
        return;
    }
    s->mark = *store_mark(o->store);
    s->mark.next_job = o->core->jobs.next;
    s->mark.next_event = events_next(o->core);
    if (o == leader(s))
        s->after_turn(s->arg, o->core);
    next_us = turn_due_us(o->core) - MONO_BEGIN_US;
    if (t->later || next_us <= world_now_us(s->w))
        next_us = world_now_us(s->w) + TURN_US;
    wake_at(o, next_us);
}

/* A server that has another one after it is to end; else it must not. */
static void fatal(void *arg, const char *why)
{
    struct one *o = arg;

    if (store_epoch(o->store) == o->all->epoch)
        world_broken(o->all->w, "the server ends: %s", why);
    else
        world_note(o->all->w, "a server that led before ends: %s", why);
}

/* It leads: its state is loaded. False: the store was away. */
static bool lead(struct one *o)
{
    struct sim_server *s = o->all;
    struct core_cfg cfg = {.jobs_dir = "/jobs",
                           .run_key = "key",
                           .marked = s->mark.epoch > 0,
                           .spool = s->spool,
                           .unknown_after_s = 10,
                           .lost_after_s = 30,
                           .forget_after_s = 7 * 86400,
                           .keep_ended = 100000,
                           .max_array = 1000,
                           .keep_ended_bytes = UINT64_MAX,
                           .audit_bytes = 1 << 20,
                           .audit_keep_s = 90 * 86400,
                           .user = {.jobs = s->jobs, .spec_bytes = UINT64_MAX, .streams = 4096},
                           .clock = &s->clock,
                           .chance = chance_real(),
                           .fatal = fatal,
                           .arg = o};
    struct merr err;
    bool opened;

    cfg.sched = (struct sched_config){.policy = SCHED_POLICY_MUSTER,
                                      .round_us = 60 * SECOND,
                                      .hold_us = 60 * SECOND,
                                      .grace_us = 30 * SECOND,
                                      .starve_us = 600 * SECOND,
                                      .las_us = 3600 * SECOND};
    cfg.share_half_us = 300 * SECOND;
    cfg.slow = (struct slow_rules){.ratio = 1.25, .after_us = 30 * SECOND, .retry_us = 3600 * SECOND};
    if (s->spares > 0)
        cfg.spares = (struct spares){.of = {{.class_ = "fast", .n = s->spares}}, .n = 1};
    o->stats = stats_new();
    o->connection = store_memory_connect(s->memory, &o->backend);
    if (!o->stats || !o->connection)
        abort();
    opened = store_open(&o->backend, &(struct store_cfg){.force = s->n == 1, .lease_s = STORE_LEASE_S, .mark = s->mark},
                        &o->store, &err) == 0;
    if (opened && turn_new(&cfg, o->store, o->stats, &o->core, &err) == 0)
        return true;
    if (now_us(s) < s->store_back_us + 40 * SECOND)
        world_note(s->w, "a server does not start: %s", err.text);
    else
        world_broken(s->w, "a server does not start: %s", err.text);
    if (opened)
        store_close(o->store);
    store_connection_free(o->connection);
    stats_free(o->stats);
    return false;
}

/* A process begins: it leads at once, or once the other's lease has ended. */
static void begin(void *arg)
{
    struct one *o = arg;
    struct sim_server *s = o->all;
    bool leads;

    if (o->core)
        return;
    if (s->n > 1 && store_memory_lease_us(s->memory) > 0) {
        later(o, STANDBY_US);
        return;
    }
    s->in_turn = o;
    leads = lead(o);
    s->in_turn = NULL;
    o->busy_until_us = now_us(s);
    s->spent_us = 0;
    if (!leads) {
        later(o, SECOND);
        return;
    }
    s->epoch = store_epoch(o->store);
    o->routes = (struct routes_arg){.core = o->core, .store = o->store, .stats = o->stats};
    o->wake_us = INT64_MAX;
    s->lives++;
    world_note(s->w, "server %d leads", (int)(o - s->v));
    wake_at(o, world_now_us(s->w));
}

/* --- all of them ---------------------------------------------------------------------------------------- */

struct sim_server *sim_server_new(struct world *w, int n, int jobs, int spares,
                                  void (*after_turn)(void *arg, struct core *c), void *arg)
{
    struct sim_server *s = calloc(1, sizeof(*s));

    if (!s)
        abort();
    *s = (struct sim_server){.w = w, .n = n, .jobs = jobs, .spares = spares, .after_turn = after_turn, .arg = arg};
    s->clock = (struct clock){.mono_us = mono_us, .wall_us = wall_us, .arg = s};
    s->memory = store_memory_new(&s->clock);
    s->disk = spool_memory_new(&s->spool);
    if (!s->memory || !s->disk)
        abort();
    store_memory_set_hooks(s->memory, &(struct store_memory_hooks){.fault = on_store, .wait = on_wait, .arg = s});
    return s;
}

void sim_server_free(struct sim_server *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n; i++)
        if (s->v[i].core)
            gone(&s->v[i]);
    store_memory_free(s->memory);
    spool_memory_free(s->disk);
    free(s);
}

void sim_server_start(struct sim_server *s)
{
    for (int i = 0; i < s->n; i++) {
        s->v[i].all = s;
        if (s->v[i].life.alive)
            continue;
        life_begin(s->w, &s->v[i].life);
        begin(&s->v[i]);
    }
}

bool sim_server_take(void *server, const struct front_request *r, front_answer *answer, void *arg)
{
    struct sim_server *s = server;
    struct one *o = leader(s);

    for (int i = 0; i < s->n; i++)
        if (&s->v[i] != o && s->v[i].core && (!o || world_chance(s->w, OLD_LEADER_ASKED)))
            o = &s->v[i];
    if (!o)
        return false;
    front_call(&o->routes, r, answer, arg);
    wake_at(o, world_now_us(s->w) + TURN_US);
    return true;
}

void sim_server_kill(struct sim_server *s, int64_t away_us)
{
    if (leader(s))
        die(leader(s), away_us);
}

void sim_server_kill_in_commit(struct sim_server *s, bool applied, int64_t away_us)
{
    struct one *o = leader(s);

    if (!o)
        return;
    o->next_commit = applied ? STORE_UNANSWERED : STORE_LOST;
    o->away_us = away_us;
}

void sim_server_hold(struct sim_server *s, int64_t for_us)
{
    if (leader(s))
        life_hold(s->w, &leader(s)->life, world_now_us(s->w) + for_us);
}

void sim_server_store_away(struct sim_server *s, int64_t for_us)
{
    s->store_back_us = world_now_us(s->w) + for_us;
}

void sim_server_store_full(struct sim_server *s, int64_t for_us)
{
    s->store_full_until_us = world_now_us(s->w) + for_us;
}

void sim_server_store_break(struct sim_server *s)
{
    s->break_next = true;
}

void sim_server_step_clock(struct sim_server *s, int64_t by_us)
{
    s->wall_off_us += by_us;
}

struct core *sim_server_core(struct sim_server *s)
{
    return leader(s) ? leader(s)->core : NULL;
}

uint64_t sim_server_turns(const struct sim_server *s)
{
    return s->turns;
}

int sim_server_lives(const struct sim_server *s)
{
    return s->lives;
}
