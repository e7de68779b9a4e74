/* Rates of jobs with specs: what the planner says, asked once each. */
#include "scheduler/sim/planned.h"

#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

static struct planned_class class_of(double flops, int devices, int node_devices, uint64_t memory_bytes)
{
    return (struct planned_class){
        .site = {.group = {{.device = {.flops = flops, .bytes_per_s = 1e10, .memory_bytes = memory_bytes},
                            .n = devices}},
                 .groups = 1,
                 .node_devices = node_devices,
                 .inside = {1e-6, 1e11},
                 .between = {1e-4, 1e8}},
        .devices = devices,
    };
}

static struct plan_job small_job(void)
{
    return (struct plan_job){.model = {.family = PLAN_GPT2,
                                       .layers = 8,
                                       .hidden = 64,
                                       .heads = 4,
                                       .kv_heads = 4,
                                       .ffn = 256,
                                       .context = 32,
                                       .vocab = 256,
                                       .tied = true},
                             .sequences = 48,
                             .length = 32,
                             .virtual_workers = 6,
                             .zero = 1};
}

static const struct plan_wish closed = {.tp = 2, .pp = 1, .cp = 1, .chunks = 1, .micro = 1};

static int64_t of_planner(struct planned_class c, int devices, int node_devices)
{
    struct plan_job job = small_job();
    struct plan_result p;

    c.site.group[0].n = devices;
    c.site.node_devices = node_devices;
    assert_int_equal(plan_search(&job, &closed, &c.site, &p, NULL), 0);
    return (int64_t)(1e6 / p.best.cost.step_s + 0.5);
}

static void rates_are_those_of_the_planner_by_class_number_and_place(void **state)
{
    struct planned_class c[2] = {class_of(1e9, 16, 4, 0), class_of(3e9, 6, 2, 0)};
    struct planned *p = planned_new(c, c, 2);
    struct plan_job job = small_job();
    struct rates_profile profile;

    (void)state;
    assert_int_equal(planned_add(p, &job, &closed, 100, NULL), 0);
    assert_int_equal(planned_replica(p, 0), 2);
    assert_int_equal(planned_workers(p, 0), 6);
    assert_int_equal(planned_rate(p, 0, 0, 8, 4), of_planner(c[0], 8, 4));
    assert_int_equal(planned_rate(p, 0, 0, 8, 1), of_planner(c[0], 8, 1));
    assert_int_equal(planned_rate(p, 0, 1, 6, 2), of_planner(c[1], 6, 2));
    assert_int_equal(planned_rate(p, 0, 1, 6, 2), of_planner(c[1], 6, 2));  /* once more, as it was kept */
    assert_true(planned_rate(p, 0, 0, 8, 1) < planned_rate(p, 0, 0, 8, 4)); /* sums over tp between nodes */
    assert_true(planned_rate(p, 0, 1, 2, 2) > planned_rate(p, 0, 0, 2, 2));
    assert_int_equal(planned_rate(p, 0, 0, 1, 1), 0);
    planned_profile(p, 0, &profile);
    assert_int_equal(profile.n[0], 5); /* 1, 2, 3, 4 and 6 replicas: there are 6 virtual workers */
    assert_int_equal(profile.n[1], 3);
    assert_int_equal(profile.points[0][4].count, 12);
    assert_int_equal(profile.points[0][4].rate_ups, of_planner(c[0], 12, 4));
    planned_free(p);
}

static void precisions_have_their_own_rates(void **state)
{
    struct planned_class f32 = class_of(1e9, 8, 4, 0), bf16 = class_of(4e9, 8, 4, 0);
    struct planned *p = planned_new(&f32, &bf16, 1);
    struct plan_job job = small_job();

    (void)state;
    assert_int_equal(planned_add(p, &job, &closed, 8, NULL), 0);
    job.bf16 = true;
    assert_int_equal(planned_add(p, &job, &closed, 8, NULL), 1);
    assert_true(planned_rate(p, 1, 0, 4, 4) > 2 * planned_rate(p, 0, 0, 4, 4));
    planned_free(p);
}

/* What is left open is chosen once, for as many devices as the job takes; a class without the memory has no rates. */
static void the_replica_is_that_of_the_largest_plan(void **state)
{
    struct planned_class c[2] = {class_of(1e9, 8, 4, UINT64_C(64) << 20), class_of(1e9, 4, 4, 1)};
    struct planned *p = planned_new(c, c, 2);
    struct plan_job job = small_job();
    struct plan_wish open = {.any_cp = true, .any_workers = true, .any_schedule = true, .any_recompute = true};
    struct rates_profile profile;
    struct merr err = {""};

    (void)state;
    job.program_bytes = 1;
    assert_int_equal(planned_add(p, &job, &open, 8, &err), 0);
    assert_true(planned_replica(p, 0) >= 1 && planned_workers(p, 0) >= 6);
    planned_profile(p, 0, &profile);
    assert_true(profile.n[0] > 0);
    assert_int_equal(profile.n[1], 0);
    planned_free(p);
}

static void what_no_class_can_run_is_refused_in_the_planners_words(void **state)
{
    struct planned_class c = class_of(1e9, 8, 4, 1);
    struct planned *p = planned_new(&c, &c, 1);
    struct plan_job job = small_job();
    struct plan_wish wide = closed;
    struct merr err = {""};

    (void)state;
    assert_int_equal(planned_add(p, &job, &closed, 8, &err), -EINVAL);
    assert_non_null(strstr(err.text, "no layout fits"));
    wide.pp = 8;
    assert_int_equal(planned_add(p, &job, &wide, 8, &err), -EINVAL);
    assert_non_null(strstr(err.text, "one replica takes more than the 8 devices"));
    planned_free(p);
    p = planned_new(&c, &c, 0);
    assert_int_equal(planned_add(p, &job, &closed, 8, &err), -EINVAL);
    assert_non_null(strstr(err.text, "no class"));
    planned_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_those_of_the_planner_by_class_number_and_place),
        cmocka_unit_test(precisions_have_their_own_rates),
        cmocka_unit_test(the_replica_is_that_of_the_largest_plan),
        cmocka_unit_test(what_no_class_can_run_is_refused_in_the_planners_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
