#include "tests/unit/test.h"

#include <string.h>

#include "scheduler/cluster/forecast.h"

#define S INT64_C(1000000)
#define NOW (1000 * S)

struct world {
    struct sched_node nodes[2]; /* of types 0 and 1 */
    struct sched_tenant tenants[2];
    struct sched_job jobs[16];
    struct sched_place places[16];
    struct rates_profile profile;
    struct sched_input in;
    struct forecast told[16];
};

static void world_init(struct world *w, int32_t devices, int32_t of_other_type)
{
    memset(w, 0, sizeof(*w));
    w->nodes[0].devices = devices;
    w->nodes[1] = (struct sched_node){.type = 1, .devices = of_other_type};
    for (int t = 0; t < 2; t++) {
        w->tenants[t] = (struct sched_tenant){.borrow = -1, .weight_milli = 1000};
        w->profile.points[t][0] = (struct rates_point){.count = 1, .rate_ups = 1000000};
        w->profile.n[t] = 1;
    }
    w->in = (struct sched_input){.config = {.mode = SCHED_FAST,
                                            .now_us = NOW,
                                            .round_us = 60 * S,
                                            .starve_us = 100000 * S,
                                            .hold_us = 120 * S,
                                            .spread = true},
                                 .nodes = w->nodes,
                                 .n_nodes = 2,
                                 .tenants = w->tenants,
                                 .n_tenants = 2,
                                 .jobs = w->jobs};
}

/* A job of n devices; holds: so many of the first node's. */
static struct sched_job *add(struct world *w, int32_t n, int32_t holds)
{
    size_t at = w->in.n_jobs++;
    struct sched_job *j = &w->jobs[at];

    *j = (struct sched_job){.id = at + 1,
                            .min = n,
                            .max = n,
                            .types = 1,
                            .home = -1,
                            .submit_us = (int64_t)at * S,
                            .waiting_us = (int64_t)at * S,
                            .weight_milli = 1000,
                            .restart_us = 5 * S,
                            .remaining_us = -1,
                            .rho_milli = 1000,
                            .fixed = holds > 0,
                            .profile = &w->profile};
    if (holds > 0) {
        w->places[at] = (struct sched_place){.node = 0, .devices = holds};
        j->places = &w->places[at];
        j->n_places = 1;
    }
    return j;
}

static const struct forecast *tell(struct world *w, size_t job)
{
    struct sched_plan plan;
    struct merr err;

    if (sched_schedule(&w->in, &plan, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(forecast_all(&w->in, &plan, w->told), 0);
    sched_plan_clear(&plan);
    return &w->told[job];
}

static void a_start_names_the_job_whose_time_limit_gives_the_last_devices(void **state)
{
    const struct forecast *f;
    struct world w;

    (void)state;
    world_init(&w, 4, 0);
    add(&w, 2, 2)->limit_us = 40 * S;
    add(&w, 2, 2)->limit_us = 90 * S;
    add(&w, 4, 0);
    f = tell(&w, 2);
    assert_int_equal(f->start_us, NOW + 90 * S);
    assert_int_equal(f->basis, FORECAST_BY_LIMITS);
    assert_int_equal(f->after, 2);
    w.jobs[1].remaining_us = 2 * 80 * S; /* learned: it is done before its limit */
    f = tell(&w, 2);
    assert_int_equal(f->start_us, NOW + 80 * S);
    assert_int_equal(f->basis, FORECAST_BY_WORK);
}

static void jobs_that_wait_take_what_comes_free_one_after_the_other(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 4, 0);
    add(&w, 4, 4)->limit_us = 40 * S;
    add(&w, 4, 0)->limit_us = 100 * S;
    add(&w, 2, 0);
    (void)tell(&w, 2);
    assert_int_equal(w.told[1].start_us, NOW + 40 * S);
    assert_int_equal(w.told[2].start_us, NOW + 140 * S);
    assert_int_equal(w.told[2].after, 2);
    w.jobs[1].limit_us = 0; /* nobody knows when it ends */
    (void)tell(&w, 2);
    assert_int_equal(w.told[2].start_us, -1);
    assert_int_equal(w.told[2].basis, FORECAST_UNKNOWN);
}

static void the_place_in_the_queue_goes_by_priority_and_counts_rivals_alone(void **state)
{
    const struct forecast *f;
    struct world w;

    (void)state;
    world_init(&w, 4, 2);
    add(&w, 4, 4);
    add(&w, 3, 0);
    add(&w, 2, 0)->tenant = 1;
    add(&w, 4, 0)->types = 2; /* of another type, of which there are too few */
    add(&w, 1, 0);
    add(&w, 2, 0)->weight_milli = 4000;
    f = tell(&w, 5);
    assert_int_equal(f->ahead, 0);
    f = tell(&w, 4);
    assert_int_equal(f->ahead, 3);
    assert_int_equal(f->ahead_devices, 7);
    assert_int_equal(f->of_project, 3); /* the one of another type, too */
}

static void a_job_that_has_waited_too_long_is_told_when_it_starts_at_the_latest(void **state)
{
    const struct forecast *f;
    struct world w;

    (void)state;
    world_init(&w, 4, 0);
    w.in.config.starve_us = 10 * S;
    add(&w, 2, 2)->limit_us = 40 * S;
    add(&w, 2, 2)->limit_us = 90 * S;
    add(&w, 4, 0);
    f = tell(&w, 2);
    assert_int_equal(f->latest_us, NOW + 90 * S);
    assert_int_equal(f->start_us, NOW + 90 * S);
}

static void of_a_long_queue_the_first_are_foreseen_and_all_have_a_place(void **state)
{
    static struct sched_job jobs[FORECAST_JOBS_MAX + 20];
    static struct forecast told[FORECAST_JOBS_MAX + 20];
    size_t n = FORECAST_JOBS_MAX + 20;
    struct sched_plan plan;
    struct world w;

    (void)state;
    world_init(&w, 4, 0);
    add(&w, 4, 4)->limit_us = 40 * S;
    add(&w, 4, 0)->limit_us = 10 * S;
    jobs[0] = w.jobs[0];
    for (size_t i = 1; i < n; i++) {
        jobs[i] = w.jobs[1];
        jobs[i].id = i + 1;
    }
    w.in.jobs = jobs;
    w.in.n_jobs = n;
    assert_int_equal(sched_schedule(&w.in, &plan, NULL), 0);
    assert_int_equal(forecast_all(&w.in, &plan, told), 0);
    sched_plan_clear(&plan);
    assert_int_equal(told[FORECAST_JOBS_MAX].start_us, NOW + 40 * S + (FORECAST_JOBS_MAX - 1) * 10 * S);
    assert_int_equal(told[FORECAST_JOBS_MAX + 1].start_us, -1);
    assert_int_equal(told[n - 1].ahead, (int32_t)n - 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_names_the_job_whose_time_limit_gives_the_last_devices),
        cmocka_unit_test(jobs_that_wait_take_what_comes_free_one_after_the_other),
        cmocka_unit_test(the_place_in_the_queue_goes_by_priority_and_counts_rivals_alone),
        cmocka_unit_test(a_job_that_has_waited_too_long_is_told_when_it_starts_at_the_latest),
        cmocka_unit_test(of_a_long_queue_the_first_are_foreseen_and_all_have_a_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
