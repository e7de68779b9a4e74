#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "scheduler/cluster/calendar.h"
#include "scheduler/cluster/sched.h"

#define S INT64_C(1000000)
#define NOW (100000 * S)
#define HOUR (3600 * S)
#define NODES 6
#define JOBS 40

struct world {
    struct sched_node nodes[NODES];
    struct sched_tenant tenant;
    struct sched_job jobs[JOBS];
    struct sched_place places[JOBS];
    struct rates_profile profile;
    struct sched_input in;
    struct sched_plan plan;
};

static void world_init(struct world *w, size_t nodes, int32_t devices)
{
    memset(w, 0, sizeof(*w));
    for (size_t i = 0; i < nodes; i++)
        w->nodes[i].devices = devices;
    w->tenant = (struct sched_tenant){.borrow = -1, .weight_milli = 1000};
    w->profile.points[0][0] = (struct rates_point){.count = 1, .rate_ups = 1000000};
    w->profile.n[0] = 1;
    w->in = (struct sched_input){.config = {.mode = SCHED_FAST,
                                            .now_us = NOW,
                                            .round_us = 60 * S,
                                            .starve_us = 100000 * S,
                                            .hold_us = 120 * S,
                                            .spread = true},
                                 .nodes = w->nodes,
                                 .n_nodes = nodes,
                                 .tenants = &w->tenant,
                                 .n_tenants = 1,
                                 .jobs = w->jobs};
}

/* One that waits, the oldest first. */
static struct sched_job *add(struct world *w, int32_t n, int64_t limit_us)
{
    size_t at = w->in.n_jobs++;

    w->jobs[at] = (struct sched_job){.id = at + 1,
                                     .min = n,
                                     .max = n,
                                     .types = 1,
                                     .home = -1,
                                     .submit_us = NOW - (int64_t)(JOBS - at) * S,
                                     .waiting_us = NOW - (int64_t)(JOBS - at) * S,
                                     .weight_milli = 1000,
                                     .restart_us = 5 * S,
                                     .remaining_us = -1,
                                     .limit_us = limit_us,
                                     .rho_milli = 1000,
                                     .profile = &w->profile};
    return &w->jobs[at];
}

static void decide(struct world *w, enum sched_mode mode)
{
    struct merr err;

    w->in.config.mode = mode;
    if (sched_schedule(&w->in, &w->plan, &err) != 0)
        fail_msg("%s", err.text);
}

/* The first node that a job gets; -1: none. */
static int node_of(const struct world *w, size_t job)
{
    const struct sched_verdict *v = &w->plan.verdicts[job];

    return v->n == 0 ? -1 : (int)w->plan.places[v->first].node;
}

static void a_job_is_not_put_where_its_time_limit_runs_into_maintenance(void **state)
{
    (void)state;
    for (int mode = SCHED_FAST; mode <= SCHED_FULL; mode++) {
        struct world w;

        world_init(&w, 2, 4);
        w.nodes[0].closes_us = NOW + HOUR;
        add(&w, 4, 2 * HOUR);
        add(&w, 4, HOUR);
        decide(&w, (enum sched_mode)mode);
        assert_int_equal(node_of(&w, 0), 1);
        assert_int_equal(node_of(&w, 1), 0);
        sched_plan_clear(&w.plan);
    }
}

static void short_jobs_pass_long_ones_before_a_maintenance_of_all_nodes(void **state)
{
    (void)state;
    for (int mode = SCHED_FAST; mode <= SCHED_FULL; mode++) {
        struct world w;

        world_init(&w, 2, 4);
        w.nodes[0].closes_us = w.nodes[1].closes_us = NOW + HOUR;
        for (int i = 0; i < 20; i++)
            add(&w, 4, 24 * HOUR);
        add(&w, 4, HOUR / 2);
        decide(&w, (enum sched_mode)mode);
        assert_int_equal(node_of(&w, 0), -1);
        assert_int_equal(w.plan.verdicts[0].reason, SCHED_CLOSING);
        assert_true(node_of(&w, 20) >= 0);
        sched_plan_clear(&w.plan);
    }
}

static void long_jobs_that_wait_for_open_nodes_leave_the_closing_ones_to_short_jobs(void **state)
{
    (void)state;
    for (int mode = SCHED_FAST; mode <= SCHED_FULL; mode++) {
        struct world w;

        world_init(&w, 2, 4);
        w.nodes[0].closes_us = NOW + HOUR;
        for (int i = 0; i < 3; i++)
            add(&w, 4, 24 * HOUR);
        add(&w, 4, HOUR / 2);
        decide(&w, (enum sched_mode)mode);
        assert_int_equal((node_of(&w, 0) == 1) + (node_of(&w, 1) == 1) + (node_of(&w, 2) == 1), 1);
        assert_int_equal(node_of(&w, 3), 0);
        sched_plan_clear(&w.plan);
    }
}

static void a_job_without_a_limit_goes_elsewhere_where_that_is_possible(void **state)
{
    (void)state;
    for (int mode = SCHED_FAST; mode <= SCHED_FULL; mode++) {
        struct world w;

        world_init(&w, 2, 4);
        w.nodes[0].closes_us = NOW + HOUR;
        add(&w, 4, 0);
        decide(&w, (enum sched_mode)mode);
        assert_int_equal(node_of(&w, 0), 1);
        sched_plan_clear(&w.plan);
        w.nodes[1].devices = 0;
        decide(&w, (enum sched_mode)mode);
        assert_int_equal(node_of(&w, 0), 0);
        sched_plan_clear(&w.plan);
        w.nodes[0].closes_us = NOW + CALENDAR_LEAD_US; /* it would be told to leave at once */
        decide(&w, (enum sched_mode)mode);
        assert_int_equal(node_of(&w, 0), -1);
        sched_plan_clear(&w.plan);
    }
}

static void who_runs_there_stays_where_it_is(void **state)
{
    (void)state;
    for (int mode = SCHED_FAST; mode <= SCHED_FULL; mode++) {
        struct world w;

        world_init(&w, 2, 4);
        w.nodes[0].closes_us = NOW + HOUR;
        for (int i = 0; i < 2; i++) {
            struct sched_job *j = add(&w, 2, i == 0 ? 0 : 3 * HOUR);

            w.places[i] = (struct sched_place){.node = 0, .devices = 2};
            j->places = &w.places[i];
            j->n_places = 1;
        }
        decide(&w, (enum sched_mode)mode);
        assert_int_equal(w.plan.n_order, 0);
        sched_plan_clear(&w.plan);
    }
}

static uint64_t next_random(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static void in_random_rounds_nobody_starts_where_it_may_not(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15);
        struct world w;

        world_init(&w, NODES, 4);
        for (size_t i = 0; i < NODES; i++)
            w.nodes[i].closes_us = next_random(&x) % 2 ? NOW + HOUR * (1 + (int64_t)(next_random(&x) % 4)) : 0;
        for (int i = 0, n = 2 + (int)(next_random(&x) % (JOBS - 2)); i < n; i++)
            add(&w, 1 + (int32_t)(next_random(&x) % 4), (int64_t)(next_random(&x) % 6) * HOUR);
        decide(&w, seed % 2 ? SCHED_FULL : SCHED_FAST);
        for (size_t i = 0; i < w.in.n_jobs; i++) {
            const struct sched_verdict *v = &w.plan.verdicts[i];

            for (size_t p = v->first; p < v->first + v->n; p++)
                if (calendar_bars(NOW, w.jobs[i].limit_us, w.nodes[w.plan.places[p].node].closes_us))
                    fail_msg("seed %llu: job %zu", (unsigned long long)seed, i + 1);
        }
        sched_plan_clear(&w.plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_is_not_put_where_its_time_limit_runs_into_maintenance),
        cmocka_unit_test(short_jobs_pass_long_ones_before_a_maintenance_of_all_nodes),
        cmocka_unit_test(long_jobs_that_wait_for_open_nodes_leave_the_closing_ones_to_short_jobs),
        cmocka_unit_test(a_job_without_a_limit_goes_elsewhere_where_that_is_possible),
        cmocka_unit_test(who_runs_there_stays_where_it_is),
        cmocka_unit_test(in_random_rounds_nobody_starts_where_it_may_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
