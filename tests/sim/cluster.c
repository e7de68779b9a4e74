#include "tests/sim/cluster.h"

#include <stdlib.h>
#include <string.h>

#include "tests/sim/agents.h"
#include "tests/sim/check.h"
#include "tests/sim/machines.h"
#include "tests/sim/server.h"
#include "tests/sim/wire.h"

#define PATIENCE_US (4 * 3600 * SECOND) /* for all jobs to end once faults have stopped */
#define CRASH_ACTIONS 9                 /* on its machine, after one of which an agent dies */
#define CHECK_EVERY_US (5 * SECOND)

struct sim {
    struct world *w;
    struct machines *machines;
    struct wire *wire;
    struct agents *agents;
    struct sim_server *server;
    struct users *users;
    struct check *check;
    struct hostile *hostile;
    struct life operator_;
    int n;
    bool calm; /* faults have stopped */
    int bad_networks;
};

struct undo { /* what ends a fault */
    struct sim *s;
    struct fault f;
};

static void poke(void *arg, int i)
{
    struct sim *s = arg;

    if (s->agents)
        agents_poke(s->agents, i);
}

static void after_turn(void *arg, struct core *c)
{
    struct sim *s = arg;

    if (s->check)
        check_turn(s->check, c);
}

/* --- an operator ---------------------------------------------------------------------------------------- */

static void operator_heard(void *arg, int status, const char *body, size_t len, const char *why)
{
    struct undo *u = arg;

    (void)status;
    (void)body;
    (void)len;
    (void)why;
    free(u);
}

static void operator_asks(struct sim *s, int node, const char *what)
{
    char target[64];
    struct undo *u = malloc(sizeof(*u));
    struct front_request q = {.method = "POST", .target = target, .who = {.role = ROLE_ADMIN, .user = "admin"}};

    if (!u)
        abort();
    (void)snprintf(target, sizeof(target), "/v1/nodes/%s/%s", machines_name(s->machines, node), what);
    wire_call(s->wire, -1, &s->operator_, &q, 30000, operator_heard, u);
}

/* --- faults --------------------------------------------------------------------------------------------- */

static void end_fault(void *arg)
{
    struct undo u = *(struct undo *)arg;
    struct sim *s = u.s;

    free(arg);
    switch (u.f.kind) {
    case FAULT_AGENT_CRASH:
        agents_crash(s->agents, u.f.node, 0); /* one that did too little to die goes on: nobody would start it again */
        agents_start(s->agents, u.f.node);
        break;
    case FAULT_AGENT_KILL:
    case FAULT_REBOOT:
    case FAULT_WIPE:
        agents_start(s->agents, u.f.node);
        break;
    case FAULT_OFF:
        machines_down(s->machines, u.f.node, false);
        agents_start(s->agents, u.f.node);
        break;
    case FAULT_CUT:
        wire_cut(s->wire, u.f.node, false);
        break;
    case FAULT_NETWORK:
        if (--s->bad_networks == 0)
            wire_set(s->wire, 0, 0, 0);
        break;
    case FAULT_DISK_FULL:
        machines_fill_disk(s->machines, u.f.node, false);
        break;
    case FAULT_DRAIN:
        operator_asks(s, u.f.node, "undrain");
        break;
    default:
        break;
    }
}

static void lasts(struct sim *s, const struct fault *f)
{
    struct undo *u = malloc(sizeof(*u));

    if (!u)
        abort();
    *u = (struct undo){.s = s, .f = *f};
    world_at(s->w, world_now_us(s->w) + f->measure_us, NULL, end_fault, free, u);
}

static void fault_of_server(struct sim *s, const struct fault *f)
{
    switch (f->kind) {
    case FAULT_SERVER_KILL:
        sim_server_kill(s->server, f->measure_us);
        break;
    case FAULT_COMMIT_LOST:
    case FAULT_ACK_LOST:
        sim_server_kill_in_commit(s->server, f->kind == FAULT_ACK_LOST, f->measure_us);
        break;
    case FAULT_SERVER_HOLD:
        sim_server_hold(s->server, f->measure_us);
        break;
    case FAULT_STORE_FULL:
        sim_server_store_full(s->server, f->measure_us);
        break;
    case FAULT_STORE_BREAK:
        sim_server_store_break(s->server);
        break;
    case FAULT_STORE_AWAY:
        sim_server_store_away(s->server, f->measure_us);
        break;
    case FAULT_SERVER_CLOCK:
        sim_server_step_clock(s->server, f->measure_us);
        break;
    case FAULT_NETWORK:
        s->bad_networks++;
        wire_set(s->wire, 0.1, 0.1, 2 * SECOND);
        lasts(s, f);
        break;
    default:
        break;
    }
}

static void fault_of_machine(struct sim *s, const struct fault *f)
{
    switch (f->kind) {
    case FAULT_REBOOT:
    case FAULT_WIPE:
    case FAULT_OFF:
        agents_kill(s->agents, f->node);
        if (f->kind == FAULT_OFF)
            machines_down(s->machines, f->node, true);
        else if (f->kind == FAULT_WIPE)
            machines_wipe(s->machines, f->node);
        else
            machines_reboot(s->machines, f->node);
        lasts(s, f);
        break;
    case FAULT_DISK_FULL:
        machines_fill_disk(s->machines, f->node, true);
        lasts(s, f);
        break;
    case FAULT_NODE_CLOCK:
        machines_step_clock(s->machines, f->node, f->measure_us);
        break;
    case FAULT_RANK_KILL:
        machines_kill_rank(s->machines, f->node, (int)(f->measure_us / SECOND));
        break;
    case FAULT_SHIM_KILL:
        machines_kill_shim(s->machines, f->node);
        break;
    case FAULT_RANK_HANG:
        machines_hang_rank(s->machines, f->node);
        break;
    default:
        break;
    }
}

static void fault_of_agent(struct sim *s, const struct fault *f)
{
    switch (f->kind) {
    case FAULT_AGENT_KILL:
        agents_kill(s->agents, f->node);
        lasts(s, f);
        break;
    case FAULT_AGENT_CRASH:
        agents_crash(s->agents, f->node, 1 + (int)(f->measure_us % CRASH_ACTIONS));
        lasts(s, f);
        break;
    case FAULT_AGENT_HOLD:
        agents_hold(s->agents, f->node, f->measure_us);
        break;
    case FAULT_CUT:
        wire_cut(s->wire, f->node, true);
        lasts(s, f);
        break;
    case FAULT_DRAIN:
        operator_asks(s, f->node, "drain");
        lasts(s, f);
        break;
    default:
        break;
    }
}

static void begin_fault(void *arg)
{
    struct undo u = *(struct undo *)arg;

    free(arg);
    world_note(u.s->w, "FAULT %s %d %.6f", fault_name(u.f.kind), u.f.node, (double)u.f.measure_us / 1e6);
    fault_of_server(u.s, &u.f);
    fault_of_machine(u.s, &u.f);
    fault_of_agent(u.s, &u.f);
}

static void plan_faults(struct sim *s, const struct faults_list *faults)
{
    for (size_t i = 0; i < faults->n; i++) {
        struct undo *u = malloc(sizeof(*u));

        if (!u)
            abort();
        *u = (struct undo){.s = s, .f = faults->v[i]};
        if (u->f.node >= s->n)
            u->f.node %= s->n;
        world_at(s->w, u->f.at_us, NULL, begin_fault, free, u);
    }
}

/* Everything is put right: what was broken for a while is whole, what had gone is back. */
static void calm(struct sim *s)
{
    s->calm = true;
    check_calm(s->check);
    world_note(s->w, "all is put right");
    hostile_stop(s->hostile);
    sim_server_start(s->server);
    wire_set(s->wire, 0, 0, 0);
    for (int i = 0; i < s->n; i++) {
        machines_down(s->machines, i, false);
        machines_fill_disk(s->machines, i, false);
        machines_end_hangs(s->machines, i);
        wire_cut(s->wire, i, false);
        agents_start(s->agents, i);
        operator_asks(s, i, "undrain");
    }
}

/* --- a run ---------------------------------------------------------------------------------------------- */

/* Events up to a time. False: an invariant is broken, or there were enough of them. */
static bool run_until(struct sim *s, const struct cluster_wish *wish, int64_t until_us)
{
    while (world_now_us(s->w) < until_us) {
        if (wish->steps_max && world_events(s->w) >= wish->steps_max)
            return false;
        if (!world_step(s->w, until_us) && world_why_broken(s->w))
            return false;
    }
    return true;
}

static bool all_quiet(const struct sim *s)
{
    for (int i = 0; i < s->n; i++)
        if (machines_alive(s->machines, i) > 0 || machines_folders(s->machines, i) > 0)
            return false;
    return users_content(s->users);
}

static void let_it_end(struct sim *s, const struct cluster_wish *wish)
{
    int64_t until_us = world_now_us(s->w) + PATIENCE_US;
    bool goes_on = true;

    /* Faults that last are over by themselves within minutes; what they left is put right after them, too. */
    goes_on = run_until(s, wish, world_now_us(s->w) + 150 * SECOND);
    calm(s);
    while (goes_on && !all_quiet(s) && world_now_us(s->w) < until_us) {
        int64_t next_us = world_now_us(s->w) + CHECK_EVERY_US;

        goes_on = run_until(s, wish, next_us);
    }
    if (!goes_on)
        return;
    users_complain(s->users);
    for (int i = 0; i < s->n; i++) {
        if (machines_alive(s->machines, i) > 0)
            world_broken(s->w, "all jobs have ended, and machine %s still has processes of ranks",
                         machines_name(s->machines, i));
        if (machines_folders(s->machines, i) > 0)
            world_broken(s->w, "all jobs have ended, and machine %s still has folders of runs",
                         machines_name(s->machines, i));
    }
    check_end(s->check, sim_server_core(s->server));
}

void cluster_run(const struct cluster_wish *wish, const struct faults_list *faults, struct cluster_found *ret)
{
    struct sim s = {.w = world_new(wish->seed), .n = wish->agents};
    struct users_wish users = {
        .jobs = wish->jobs, .over_us = wish->over_us, .widest = wish->agents * wish->slots / 2, .arrays = wish->arrays};
    const char *why;

    world_trace(s.w, wish->trace);
    s.machines = machines_new(s.w, s.n, wish->slots, poke, &s);
    s.server = sim_server_new(s.w, wish->servers, users_limit(&users), wish->spares, after_turn, &s);
    s.wire = wire_new(s.w, s.n, sim_server_take, s.server);
    s.agents = agents_new(s.w, s.machines, s.wire, s.n, wish->slots);
    s.users = users_new(s.w, s.wire, machines_book(s.machines), &users);
    s.hostile =
        hostile_new(s.w, s.wire, s.agents,
                    &(struct hostile_wish){
                        .seed = wish->seed, .actors = wish->hostile, .over_us = wish->over_us, .users = s.users});
    s.check = check_new(s.w, s.users, machines_book(s.machines));
    life_begin(s.w, &s.operator_);
    sim_server_start(s.server);
    for (int i = 0; i < s.n; i++)
        agents_start(s.agents, i);
    plan_faults(&s, faults);
    if (faults->n == 0)
        check_calm(s.check);
    if (run_until(&s, wish, wish->over_us))
        let_it_end(&s, wish);

    why = world_why_broken(s.w);
    *ret = (struct cluster_found){.hash = world_hash(s.w),
                                  .events = world_events(s.w),
                                  .turns = sim_server_turns(s.server),
                                  .time_us = world_now_us(s.w),
                                  .server_lives = sim_server_lives(s.server),
                                  .cut_short = wish->steps_max && world_events(s.w) >= wish->steps_max && !why,
                                  .users = users_sum(s.users),
                                  .hostile = hostile_sum(s.hostile)};
    (void)snprintf(ret->broken, sizeof(ret->broken), "%s", why ? why : "");
    sim_server_free(s.server);
    world_end(s.w);
    agents_free(s.agents);
    machines_free(s.machines);
    world_free(s.w);
    users_free(s.users);
    check_free(s.check);
    hostile_free(s.hostile);
    wire_free(s.wire);
}
