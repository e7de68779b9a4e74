#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "base/philox.h"
#include "scheduler/cluster/explain.h"
#include "scheduler/cluster/snapshot.h"

#define S INT64_C(1000000)
#define NODES 6
#define JOBS 3
#define NOW (100000 * S)
#define BYTES_MAX (1 << 20)

struct world {
    struct sched_input in;
    struct sched_node nodes[NODES];
    struct sched_tenant tenant;
    struct sched_job jobs[JOBS];
    struct sched_place places[JOBS][NODES];
    struct rates_profile profile;
};

/* Nodes of two devices of one type. */
static void world_init(struct world *w, size_t nodes)
{
    memset(w, 0, sizeof(*w));
    for (size_t i = 0; i < nodes; i++)
        w->nodes[i].devices = 2;
    w->tenant = (struct sched_tenant){.borrow = -1, .weight_milli = 1000};
    for (int t = 0; t < 2; t++) {
        w->profile.n[t] = 1;
        w->profile.points[t][0] = (struct rates_point){.count = 1, .rate_ups = 1000000};
    }
    w->in = (struct sched_input){
        .config = {.mode = SCHED_FULL,
                   .now_us = NOW,
                   .round_us = 60 * S,
                   .starve_us = NOW,
                   .grace_us = 30 * S,
                   .hold_us = 120 * S,
                   .spread = true},
        .nodes = w->nodes,
        .n_nodes = nodes,
        .tenants = &w->tenant,
        .n_tenants = 1,
        .jobs = w->jobs,
    };
}

static void slow_down(struct world *w, size_t node, int32_t milli)
{
    w->nodes[node].slow_milli = milli;
    w->nodes[node].slow_us = NOW - 60 * S;
}

/* A job that has run for an hour and takes as many devices as it has: of each node so many. */
static struct sched_job *add(struct world *w, const int32_t devices[NODES])
{
    size_t i = w->in.n_jobs++;
    struct sched_job *j = &w->jobs[i];

    *j = (struct sched_job){.id = i + 1,
                            .types = 1,
                            .hetero_ok = true,
                            .weight_milli = 1000,
                            .restart_us = 5 * S,
                            .submit_us = NOW - 3600 * S,
                            .changed_us = NOW - 3500 * S,
                            .waiting_us = NOW - 3600 * S,
                            .workers = 8,
                            .remaining_us = 1000000 * S,
                            .rho_milli = 1000,
                            .profile = &w->profile,
                            .places = w->places[i]};
    for (uint32_t n = 0; n < w->in.n_nodes; n++)
        if (devices[n] > 0) {
            w->places[i][j->n_places++] = (struct sched_place){.node = n, .devices = devices[n]};
            j->min += devices[n];
        }
    j->max = j->min;
    return j;
}

static struct sched_plan decide(const struct world *w)
{
    struct sched_plan plan;
    struct merr err;

    if (sched_schedule(&w->in, &plan, &err) != 0)
        fail_msg("%s", err.text);
    return plan;
}

static void devices_of(const struct sched_plan *plan, size_t job, int32_t ret[NODES])
{
    memset(ret, 0, NODES * sizeof(*ret));
    for (size_t p = 0; p < plan->verdicts[job].n; p++) {
        const struct sched_place *at = &plan->places[plan->verdicts[job].first + p];

        ret[at->node] += at->devices;
    }
}

static void check_places(const struct sched_plan *plan, size_t job, const int32_t want[NODES], size_t row)
{
    int32_t got[NODES];

    devices_of(plan, job, got);
    for (int i = 0; i < NODES; i++)
        if (got[i] != want[i])
            fail_msg("row %zu, job %zu: %d devices of node %d, want %d", row, job, got[i], i, want[i]);
}

/* A job of one device on each of nodes 0 and 1; node 1 is slow, node 2 is free. */
static void pair(struct world *w)
{
    world_init(w, 3);
    slow_down(w, 1, 2000);
    add(w, (const int32_t[NODES]){1, 1});
    w->nodes[0].devices = w->nodes[1].devices = w->nodes[2].devices = 1;
}

static void hurry(struct world *w)
{
    w->jobs[0].changed_us = NOW - 119 * S;
}
static void hasten(struct world *w)
{
    hurry(w);
    w->jobs[0].hasty = true;
}
static void nearly_done(struct world *w)
{
    w->jobs[0].remaining_us = 8 * S;
} /* four seconds on two devices */
static void costly(struct world *w)
{
    w->jobs[0].restart_us = 1000 * S;
}
static void often(struct world *w)
{
    w->jobs[0].restarts = 500;
}
static void unmeasured(struct world *w)
{
    w->jobs[0].remaining_us = -1;
}
static void fixed(struct world *w)
{
    w->jobs[0].fixed = true;
}
static void hardly(struct world *w)
{
    w->nodes[1].slow_milli = 1100;
}
static void other_type(struct world *w)
{
    w->nodes[2].type = 1;
}
static void as_slow(struct world *w)
{
    slow_down(w, 2, 1300);
}
static void fast(struct world *w)
{
    w->in.config.mode = SCHED_FAST;
}
static void fifo(struct world *w)
{
    w->in.config.policy = SCHED_POLICY_FIFO;
}
static void known_and_laid(struct world *w)
{
    w->nodes[1].slow_us = w->jobs[0].changed_us;
}
static void nothing_slow(struct world *w)
{
    w->nodes[1].slow_milli = 0;
}
static void as_it_is(struct world *w)
{
    (void)w;
}

static void taken(struct world *w)
{
    add(w, (const int32_t[NODES]){0, 0, 1});
}

static void waited_for(struct world *w)
{
    w->jobs[w->in.n_jobs++] = (struct sched_job){.id = 2,
                                                 .min = 1,
                                                 .max = 1,
                                                 .types = 1,
                                                 .hetero_ok = true,
                                                 .home = -1,
                                                 .weight_milli = 1000,
                                                 .restart_us = 5 * S,
                                                 .submit_us = NOW - 5 * S,
                                                 .waiting_us = NOW - 5 * S,
                                                 .remaining_us = -1,
                                                 .rho_milli = 1000,
                                                 .profile = &w->profile};
}

static void a_slow_device_is_replaced_where_that_is_worth_a_restart(void **state)
{
    static const struct {
        const char *name;
        void (*change)(struct world *w);
        bool moves;
    } table[] = {
        {"half as fast, and one is free", as_it_is, true},
        {"its work was laid by that speed", known_and_laid, true},
        {"a tenth slower", hardly, false},
        {"given devices two minutes ago", hurry, false},
        {"likewise, and it may leave slow ones before its hold is over", hasten, true},
        {"eight seconds of work left, four if it moved", nearly_done, false},
        {"a restart of 1000 s", costly, false},
        {"restarted all the time", often, false},
        {"nobody knows what work is left", unmeasured, false},
        {"not to be touched", fixed, false},
        {"the free one is of another type", other_type, false},
        {"the free one is slow itself", as_slow, false},
        {"the other is taken", taken, false},
        {"another job waits for it", waited_for, false},
        {"an event's round", fast, false},
        {"a policy to compare with", fifo, false},
        {"nothing is slow", nothing_slow, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct sched_plan plan;
        struct world w;

        pair(&w);
        table[i].change(&w);
        plan = decide(&w);
        if (plan.verdicts[0].action != (table[i].moves ? SCHED_MOVE : SCHED_KEEP) ||
            plan.verdicts[0].reason != (table[i].moves ? SCHED_SLOW : SCHED_RUNS))
            fail_msg("%s: %s, %s", table[i].name, sched_action_name(plan.verdicts[0].action),
                     sched_reason_name(plan.verdicts[0].reason));
        check_places(&plan, 0, table[i].moves ? (const int32_t[NODES]){1, 0, 1} : (const int32_t[NODES]){1, 1}, i);
        sched_plan_clear(&plan);
    }
}

static void the_rest_stays_and_the_tightest_gap_is_filled(void **state)
{
    static const struct {
        int32_t has[NODES], devices[NODES], slow[NODES], replica, want[NODES];
    } table[] = {
        /* the same machine first, in the order of nodes, of gaps that are alike */
        {{2, 1, 0, 0}, {2, 1, 1, 1}, {0, 1500}, 1, {2, 0, 1, 0}},
        {{0, 0, 2, 1}, {0, 1, 2, 1, 1}, {0, 0, 0, 1500}, 1, {0, 0, 2, 0, 1}},
        {{2, 1}, {2, 1, 4, 1}, {0, 1500}, 1, {2, 0, 0, 1}},
        /* where the job is already */
        {{1, 1}, {4, 1, 1}, {0, 1500}, 1, {2, 0, 0}},
        /* the slower of two, when only one is free */
        {{1, 1, 1}, {1, 1, 1, 1}, {0, 1300, 4000}, 1, {1, 1, 0, 1}},
        /* parts of several nodes */
        {{0, 3}, {0, 3, 2, 1}, {0, 1500}, 1, {0, 0, 2, 1}},
        /* whole replicas: a half that is free helps nobody */
        {{4, 4}, {4, 4, 3}, {0, 1500}, 4, {4, 4, 0}},
        {{4, 4}, {4, 4, 4}, {0, 1500}, 4, {4, 0, 4}},
        /* what stays slow decides */
        {{1, 2}, {1, 2, 1}, {0, 9000}, 3, {1, 2, 0}},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct sched_plan plan;
        struct world w;

        world_init(&w, NODES);
        for (size_t n = 0; n < NODES; n++) {
            w.nodes[n].devices = table[i].devices[n];
            if (table[i].slow[n])
                slow_down(&w, n, table[i].slow[n]);
        }
        add(&w, table[i].has)->replica = table[i].replica;
        plan = decide(&w);
        check_places(&plan, 0, table[i].want, i);
        sched_plan_clear(&plan);
    }
}

static void who_gains_most_goes_first(void **state)
{
    struct sched_plan plan;
    struct world w;

    (void)state;
    world_init(&w, 4);
    slow_down(&w, 1, 1400);
    slow_down(&w, 2, 3000);
    add(&w, (const int32_t[NODES]){2, 1});
    add(&w, (const int32_t[NODES]){0, 0, 1});
    w.nodes[3].devices = 1;
    plan = decide(&w);
    check_places(&plan, 0, (const int32_t[NODES]){2, 1}, 0);
    check_places(&plan, 1, (const int32_t[NODES]){0, 0, 0, 1}, 0);
    sched_plan_clear(&plan);
}

static void slow_devices_are_placed_last(void **state)
{
    static const struct {
        int32_t min, max;
        int32_t want[NODES];
    } table[] = {
        /* node 0 is slow; nodes of two devices */
        {1, 1, {0, 1}}, {2, 2, {0, 2}}, {4, 4, {0, 2, 2}}, {3, 3, {0, 2, 1}}, {5, 5, {1, 2, 2}}, {6, 6, {2, 2, 2}},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++)
        for (int mode = SCHED_FAST; mode <= SCHED_FULL; mode++) {
            struct sched_plan plan;
            struct world w;

            world_init(&w, 3);
            slow_down(&w, 0, 1500);
            waited_for(&w);
            w.jobs[0].min = table[i].min;
            w.jobs[0].max = table[i].max;
            w.in.config.mode = (enum sched_mode)mode;
            plan = decide(&w);
            check_places(&plan, 0, table[i].want, i);
            sched_plan_clear(&plan);
        }
}

static void who_keeps_slow_devices_is_told(void **state)
{
    static const char *const types[] = {"cpu"};
    struct explain_cause c;
    struct sched_plan plan;
    struct world w;
    struct buf b;

    (void)state;
    pair(&w);
    taken(&w);
    plan = decide(&w);
    assert_int_equal(explain_job(&w.in, &plan, 0, &c), 0);
    assert_int_equal(c.wait.code, EXPLAIN_SLOW);
    assert_int_equal(c.wait.need, 1);
    buf_init(&b, BYTES_MAX);
    assert_int_equal(explain_print(&c, types, &b), 0);
    assert_non_null(strstr(buf_text(&b), "\"slow-devices\", \"text\": \"1 of its devices is slower than others"));
    buf_clear(&b);
    assert_int_equal(explain_job(&w.in, &plan, 1, &c), 0);
    assert_int_equal(c.wait.code, EXPLAIN_ASSIGNED);
    sched_plan_clear(&plan);
}

static uint32_t draw(uint32_t seed, uint32_t *draws, uint32_t below)
{
    uint32_t key[2] = {seed, 7}, ctr[4] = {(*draws)++, 0, 0, 0}, out[4];

    philox4x32(ctr, key, out);
    return out[0] % below;
}

static void print(const struct world *w, struct buf *plan_text)
{
    struct sched_plan plan = decide(w);

    assert_int_equal(sched_plan_print(&w->in, &plan, plan_text), 0);
    sched_plan_clear(&plan);
}

static void random_world(struct world *w, uint32_t seed)
{
    uint32_t draws = 0;
    int32_t left[NODES];

    world_init(w, NODES);
    for (size_t n = 0; n < NODES; n++) {
        left[n] = w->nodes[n].devices = 1 + (int32_t)draw(seed, &draws, 4);
        w->nodes[n].type = (uint8_t)draw(seed, &draws, 2);
        if (draw(seed, &draws, 3) == 0)
            slow_down(w, n, 1001 + (int32_t)draw(seed, &draws, 4000));
    }
    for (int i = 0; i < 3; i++) {
        int32_t has[NODES] = {0}, all = 0;

        for (size_t n = 0; n < NODES; n++) {
            has[n] = (int32_t)draw(seed, &draws, (uint32_t)left[n] + 1);
            has[n] = all + has[n] <= 8 ? has[n] : 0;
            left[n] -= has[n];
            all += has[n];
        }
        if (all > 0) {
            add(w, has)->types = 3;
            w->jobs[w->in.n_jobs - 1].remaining_us = (int64_t)draw(seed, &draws, 100000) * S;
        }
    }
}

/* Whatever is slow: nothing is given twice, jobs keep their number of devices of each type, and what a snapshot says
 * gives the same bytes again. */
static void every_plan_holds_and_replays(void **state)
{
    static const char *const types[] = {"a", "b"};
    int moved = 0;

    (void)state;
    for (uint32_t seed = 1; seed <= 400; seed++) {
        struct buf text, here, there;
        int32_t used[NODES] = {0};
        struct sched_plan plan;
        struct snapshot s;
        struct merr err;
        struct world w;

        random_world(&w, seed);
        plan = decide(&w);
        for (size_t i = 0; i < w.in.n_jobs; i++) {
            int32_t got[NODES], by_type[2] = {0};

            devices_of(&plan, i, got);
            for (size_t n = 0; n < NODES; n++) {
                used[n] += got[n];
                by_type[w.nodes[n].type] += got[n];
            }
            for (size_t p = 0; p < w.jobs[i].n_places; p++)
                by_type[w.nodes[w.jobs[i].places[p].node].type] -= w.jobs[i].places[p].devices;
            moved += plan.verdicts[i].reason == SCHED_SLOW;
            if (plan.verdicts[i].reason == SCHED_SLOW && (by_type[0] != 0 || by_type[1] != 0))
                fail_msg("seed %u: job %zu changed its types", seed, i);
        }
        for (size_t n = 0; n < NODES; n++)
            if (used[n] > w.nodes[n].devices)
                fail_msg("seed %u: node %zu gives %d of %d devices", seed, n, used[n], w.nodes[n].devices);
        sched_plan_clear(&plan);
        buf_init(&text, BYTES_MAX);
        buf_init(&here, BYTES_MAX);
        buf_init(&there, BYTES_MAX);
        assert_int_equal(snapshot_print(&w.in, types, 2, &text), 0);
        if (snapshot_parse(text.data, text.len, &s, &err) != 0)
            fail_msg("seed %u: %s", seed, err.text);
        print(&w, &here);
        w.in = s.in;
        print(&w, &there);
        if (strcmp(buf_text(&here), buf_text(&there)) != 0)
            fail_msg("seed %u:\n%s---\n%s", seed, buf_text(&here), buf_text(&there));
        snapshot_clear(&s);
        buf_clear(&text);
        buf_clear(&here);
        buf_clear(&there);
    }
    assert_true(moved > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_device_is_replaced_where_that_is_worth_a_restart),
        cmocka_unit_test(the_rest_stays_and_the_tightest_gap_is_filled),
        cmocka_unit_test(who_gains_most_goes_first),
        cmocka_unit_test(slow_devices_are_placed_last),
        cmocka_unit_test(who_keeps_slow_devices_is_told),
        cmocka_unit_test(every_plan_holds_and_replays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
