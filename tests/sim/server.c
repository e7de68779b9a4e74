#include "tests/sim/server.h"

#include <stdlib.h>

#include "server/control/files.h"
#include "server/control/readers.h"
#include "server/control/routes.h"
#include "server/control/turn.h"
#include "server/http/stats.h"
#include "server/store/spool_memory.h"
#include "server/store/store_memory.h"

#define MONO_BEGIN_US (3600 * SECOND)
#define WALL_BEGIN_US INT64_C(1800000000000000)
#define TURN_US 200 /* from a call to the turn that takes it, which takes others along */

struct sim_server {
    struct world *w;
    void (*after_turn)(void *arg, struct core *c);
    void *arg;
    struct clock clock;
    int64_t wall_off_us;
    bool in_turn;
    int64_t spent_us, busy_until_us; /* by this turn; the next one begins after it */
    struct store_memory *memory;
    struct spool_memory *disk;
    struct spool spool;

    struct life life;
    struct store_connection *connection;
    struct store_backend backend;
    struct store *store;
    struct stats *stats;
    struct core *core; /* NULL: none runs */
    struct routes_arg routes;
    int64_t wake_us; /* of the next turn that is asked for */
    uint64_t turns;
    int lives;

    enum store_fault next_commit; /* STORE_FINE: nothing happens in it */
    int64_t away_us;              /* after that */
};

static int64_t mono_us(const void *arg)
{
    const struct sim_server *s = arg;

    return MONO_BEGIN_US + world_now_us(s->w) + s->spent_us;
}

/* As much time passes with each look at the clock in a turn as a server of this size takes for a part of it. */
static int64_t mono_in_turn_us(void *arg)
{
    struct sim_server *s = arg;

    if (s->in_turn)
        s->spent_us += (int64_t)(s->core->jobs.n + 4 * s->core->cluster.n_nodes) / 16;
    return mono_us(arg);
}

static int64_t wall_us(void *arg)
{
    const struct sim_server *s = arg;

    return WALL_BEGIN_US + world_now_us(s->w) + s->spent_us + s->wall_off_us;
}

/* The store is asked for something: in a commit the server may die. */
static enum store_fault on_store(void *arg, enum store_moment at)
{
    struct sim_server *s = arg;
    enum store_fault f = s->next_commit;

    if (at != STORE_AT_COMMIT || f == STORE_FINE || !s->core)
        return STORE_FINE;
    s->next_commit = STORE_FINE;
    front_mute();
    atomic_store(&s->core->turn.stop, 1);
    return f;
}

static void begin(void *arg)
{
    sim_server_start(arg);
}

static void gone(struct sim_server *s)
{
    front_mute();
    files_stop(s->core->files);
    readers_stop(s->core->readers);
    turn_close(s->core);
    turn_free(s->core);
    s->core = NULL;
    front_listen();
    store_close(s->store);
    store_connection_free(s->connection);
    stats_free(s->stats);
    if (s->life.alive)
        life_end(s->w, &s->life);
}

static void die(struct sim_server *s, int64_t away_us)
{
    world_note(s->w, "the server dies");
    s->next_commit = STORE_FINE;
    gone(s);
    world_at(s->w, world_now_us(s->w) + away_us, NULL, begin, NULL, s);
}

static void turn(void *arg);

static void wake_at(struct sim_server *s, int64_t at_us)
{
    at_us = at_us > s->busy_until_us ? at_us : s->busy_until_us;
    if (at_us >= s->wake_us)
        return;
    s->wake_us = at_us;
    world_at(s->w, at_us, &s->life, turn, NULL, s);
}

static void turn(void *arg)
{
    struct sim_server *s = arg;
    const struct turn *t;
    int64_t next_us;
    bool durable;

    if (world_now_us(s->w) < s->wake_us)
        return;
    s->wake_us = INT64_MAX;
    s->turns++;
    t = &s->core->turn;
    s->in_turn = true;
    durable = turn_take(s->core, t->later ? t->later : queue_take(&s->core->turn.queue, SIZE_MAX, 0));
    s->in_turn = false;
    s->busy_until_us = world_now_us(s->w) + s->spent_us;
    s->spent_us = 0;
    if (!durable) {
        die(s, s->away_us);
        return;
    }
    s->after_turn(s->arg, s->core);
    next_us = t->next_tick_us;
    if (s->core->schedule_wanted && t->next_round_us < next_us)
        next_us = t->next_round_us;
    if (t->later)
        next_us = MONO_BEGIN_US;
    wake_at(s, next_us - MONO_BEGIN_US > world_now_us(s->w) ? next_us - MONO_BEGIN_US : world_now_us(s->w) + TURN_US);
}

static void fatal(void *arg, const char *why)
{
    struct sim_server *s = arg;

    world_broken(s->w, "the server ends: %s", why);
}

struct sim_server *sim_server_new(struct world *w, void (*after_turn)(void *arg, struct core *c), void *arg)
{
    struct sim_server *s = calloc(1, sizeof(*s));

    if (!s)
        abort();
    *s = (struct sim_server){.w = w, .after_turn = after_turn, .arg = arg};
    s->clock = (struct clock){.mono_us = mono_in_turn_us, .wall_us = wall_us, .arg = s};
    s->memory = store_memory_new(&s->clock);
    if (!s->memory)
        abort();
    store_memory_set_hooks(s->memory, &(struct store_memory_hooks){.fault = on_store, .arg = s});
    s->disk = spool_memory_new(&s->spool);
    if (!s->disk)
        abort();
    return s;
}

void sim_server_free(struct sim_server *s)
{
    if (!s)
        return;
    if (s->core)
        gone(s);
    store_memory_free(s->memory);
    spool_memory_free(s->disk);
    free(s);
}

void sim_server_start(struct sim_server *s)
{
    struct core_cfg cfg = {.jobs_dir = "/jobs",
                           .run_key = "key",
                           .spool = s->spool,
                           .unknown_after_s = 10,
                           .lost_after_s = 30,
                           .forget_after_s = 7 * 86400,
                           .keep_ended = 100000,
                           .keep_ended_bytes = UINT64_MAX,
                           .audit_bytes = 1 << 20,
                           .audit_keep_s = 90 * 86400,
                           .user = {.jobs = 100000, .spec_bytes = UINT64_MAX, .streams = 4096},
                           .clock = &s->clock,
                           .fatal = fatal,
                           .arg = s};
    struct merr err;

    if (s->core)
        return;
    cfg.sched = (struct sched_config){.policy = SCHED_POLICY_MUSTER,
                                      .round_us = 60 * SECOND,
                                      .hold_us = 60 * SECOND,
                                      .grace_us = 30 * SECOND,
                                      .starve_us = 600 * SECOND,
                                      .las_us = 3600 * SECOND};
    cfg.slow = (struct slow_rules){.ratio = 1.25, .after_us = 30 * SECOND, .retry_us = 3600 * SECOND};
    s->stats = stats_new();
    s->connection = store_memory_connect(s->memory, &s->backend);
    if (!s->stats || !s->connection)
        abort();
    if (store_open(&s->backend, &(struct store_cfg){.force = true, .lease_s = STORE_LEASE_S}, &s->store, &err) < 0 ||
        turn_new(&cfg, s->store, s->stats, &s->core, &err) < 0) {
        world_broken(s->w, "a server does not start: %s", err.text);
        return;
    }
    s->routes = (struct routes_arg){.core = s->core, .store = s->store, .stats = s->stats};
    s->wake_us = INT64_MAX;
    s->lives++;
    life_begin(s->w, &s->life);
    world_note(s->w, "the server starts");
    wake_at(s, world_now_us(s->w));
}

bool sim_server_take(void *server, const struct front_request *r, front_answer *answer, void *arg)
{
    struct sim_server *s = server;

    if (!s->core)
        return false;
    front_call(&s->routes, r, answer, arg);
    wake_at(s, world_now_us(s->w) + TURN_US);
    return true;
}

void sim_server_kill(struct sim_server *s, int64_t away_us)
{
    if (s->core)
        die(s, away_us);
}

void sim_server_kill_in_commit(struct sim_server *s, bool applied, int64_t away_us)
{
    s->next_commit = applied ? STORE_UNANSWERED : STORE_LOST;
    s->away_us = away_us;
}

void sim_server_store_away(struct sim_server *s, int64_t for_us)
{
    if (s->core)
        life_hold(s->w, &s->life, world_now_us(s->w) + for_us);
}

void sim_server_step_clock(struct sim_server *s, int64_t by_us)
{
    s->wall_off_us += by_us;
}

struct core *sim_server_core(struct sim_server *s)
{
    return s->core;
}

uint64_t sim_server_turns(const struct sim_server *s)
{
    return s->turns;
}

int sim_server_lives(const struct sim_server *s)
{
    return s->lives;
}
