/* The rates that a job is thought to have, with and without measurements. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/cluster/profile.h"

/* The rate of k replicas on a type, in millionths of a step a second; fails where there is no such point. */
static int64_t rate(const struct rates_profile *p, int type, int32_t count)
{
    for (int i = 0; i < p->n[type]; i++)
        if (p->points[type][i].count == count)
            return p->points[type][i].rate_ups;
    fail_msg("no point for %d devices of type %d", count, type);
    return 0;
}

static void all_replicas_wait_for_the_one_with_most_workers(void **state)
{
    static const struct {
        bool command;
        int workers, k;
        double want;
    } table[] = {
        {false, 8, 1, 1}, {false, 8, 2, 2}, {false, 8, 3, 8. / 3}, {false, 8, 5, 4}, {false, 8, 7, 4},
        {false, 8, 8, 8}, {false, 1, 1, 1}, {true, 8, 3, 3},       {true, 1, 5, 5},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++)
        if (profile_law(table[i].command, table[i].workers, table[i].k) != table[i].want)
            fail_msg("row %zu: %g", i, profile_law(table[i].command, table[i].workers, table[i].k));
}

static void without_measurements_all_types_are_alike(void **state)
{
    struct profile_job j = {.workers = 8, .replica = 2};
    struct profile_type types[] = {{.class_ = 5}, {.class_ = 9}};
    struct rates_profile p = {.n = {0}};

    (void)state;
    profile_fill(&j, types, 2, &p);
    assert_int_equal(p.n[0], 8);
    assert_int_equal(p.n[1], 8);
    assert_int_equal(p.n[2], 0);
    assert_int_equal(rate(&p, 0, 2), 1000000);
    assert_int_equal(rate(&p, 0, 10), 4000000); /* 5 replicas: two workers on some */
    assert_int_equal(rate(&p, 0, 16), 8000000);
    assert_memory_equal(p.points[0], p.points[1], sizeof(p.points[0]));
}

static void two_counts_of_a_class_say_what_more_replicas_do_not_shorten_on_all_classes(void **state)
{
    /* a step takes 2/9 s x (1/2 + 1/k): 1/3 s on one replica of class 5, 1/6 s on four; class 9 is ten times as fast */
    static const struct profile_speed speeds[] = {{5, 2, 3}, {5, 8, 6}, {9, 2, 30}};
    struct profile_job j = {.workers = 8, .replica = 2, .speeds = speeds, .n_speeds = 3};
    struct profile_type types[] = {{.class_ = 5}, {.class_ = 9}, {.class_ = 1}};
    struct rates_profile p = {.n = {0}};
    double fixed;

    (void)state;
    assert_true(profile_fixed(&j, &fixed));
    assert_true(fixed > 0.49 && fixed < 0.51);
    assert_true(profile_fill(&j, types, 3, &p));
    assert_int_equal(rate(&p, 0, 2), 3000000); /* as measured */
    assert_int_equal(rate(&p, 0, 8), 6000000);
    assert_in_range(rate(&p, 0, 16), 7100000, 7300000); /* and not 12 a second, as replicas alone would have it */
    assert_in_range(rate(&p, 1, 4), 44000000, 46000000);
    assert_in_range(rate(&p, 2, 2) * 2, 3000000 + 29000000, 3000000 + 31000000); /* the mean of those it was seen on */
}

static void a_class_without_measurements_is_as_fast_as_classes_are_beside_each_other(void **state)
{
    static const struct profile_speed speeds[] = {{5, 1, 3}};
    struct profile_job j = {.workers = 8, .replica = 1, .speeds = speeds, .n_speeds = 1, .fixed = 1};
    struct profile_type types[] = {{.class_ = 5, .speed = 0.5}, {.class_ = 9, .speed = 2}};
    struct rates_profile p = {.n = {0}};

    (void)state;
    assert_true(profile_fill(&j, types, 2, &p));
    assert_int_equal(rate(&p, 1, 1), 12000000);
    assert_int_equal(rate(&p, 1, 4), 19200000); /* 12 x 2 / 1.25: others show that half a step stays as long */
    assert_int_equal(rate(&p, 0, 1), 3000000);
}

static void the_planners_prediction_counts_until_something_is_measured(void **state)
{
    static const struct profile_speed speeds[] = {{9, 1, 5}};
    struct profile_job j = {.workers = 4, .replica = 1, .predicted = {5, 2, 8}};
    struct profile_type types[] = {{.class_ = 5, .speed = 1}, {.class_ = 9, .speed = 3}};
    struct rates_profile p = {.n = {0}};

    (void)state;
    assert_true(profile_fill(&j, types, 2, &p));
    assert_int_equal(rate(&p, 0, 2), 8000000);
    assert_int_equal(rate(&p, 1, 1), 12000000);
    j.speeds = speeds;
    j.n_speeds = 1;
    assert_true(profile_fill(&j, types, 2, &p));
    assert_int_equal(rate(&p, 1, 1), 5000000);
    j = (struct profile_job){.workers = 4, .replica = 1};
    assert_false(profile_fill(&j, types, 2, &p)); /* nothing is known: the rates are relative */
    assert_int_equal(rate(&p, 1, 1), 3 * rate(&p, 0, 1));
}

static void more_devices_that_make_a_job_slower_leave_all_of_a_step_fixed(void **state)
{
    static const struct profile_speed speeds[] = {{0, 1, 10}, {0, 2, 2}, {0, 8, 1}};
    struct profile_job j = {.workers = 8, .replica = 1, .speeds = speeds, .n_speeds = 3};
    double fixed;

    (void)state;
    assert_true(profile_fixed(&j, &fixed)); /* it comes to an end */
    assert_true(fixed > 1 && fixed <= 8);
}

static void single_workers_say_it_where_whole_steps_do_not(void **state)
{
    static const struct profile_speed speeds[] = {{5, 2, 3}};
    struct profile_job j = {.workers = 8, .replica = 2, .speeds = speeds, .n_speeds = 1};
    struct profile_type types[] = {{.class_ = 5, .worker_ms = 1}, {.class_ = 9, .worker_ms = 25}};
    struct rates_profile p = {.n = {0}};

    (void)state;
    profile_fill(&j, types, 2, &p);
    assert_int_equal(rate(&p, 0, 2), 3000000); /* a measured step goes before workers */
    assert_int_equal(rate(&p, 1, 2), 5000000); /* eight workers of 25 ms one after the other: five steps a second */
    assert_int_equal(rate(&p, 1, 16), 40000000);
}

static void a_job_of_very_many_workers_has_points_up_to_all_of_them(void **state)
{
    struct profile_job j = {.workers = 1000, .replica = 1};
    struct profile_type type = {.class_ = 0};
    struct rates_profile p = {.n = {0}};

    (void)state;
    profile_fill(&j, &type, 1, &p);
    assert_int_equal(p.n[0], RATES_POINTS_MAX);
    for (int i = 1; i < p.n[0]; i++)
        assert_true(p.points[0][i].count > p.points[0][i - 1].count);
    assert_int_equal(rate(&p, 0, 1000), INT64_C(1000000000));
}

static void no_measurement_makes_a_rate_of_nothing_or_without_end(void **state)
{
    static const struct profile_speed speeds[] = {{0, 1, 1e-12}, {1, 1, 1e12}};
    struct profile_job j = {.workers = 1, .replica = 1, .speeds = speeds, .n_speeds = 2};
    struct profile_type types[] = {{.class_ = 0}, {.class_ = 1}};
    struct rates_profile p = {.n = {0}};

    (void)state;
    profile_fill(&j, types, 2, &p);
    assert_int_equal(rate(&p, 0, 1), 1);
    assert_int_equal(rate(&p, 1, 1), (int64_t)1e14);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_replicas_wait_for_the_one_with_most_workers),
        cmocka_unit_test(without_measurements_all_types_are_alike),
        cmocka_unit_test(two_counts_of_a_class_say_what_more_replicas_do_not_shorten_on_all_classes),
        cmocka_unit_test(a_class_without_measurements_is_as_fast_as_classes_are_beside_each_other),
        cmocka_unit_test(the_planners_prediction_counts_until_something_is_measured),
        cmocka_unit_test(more_devices_that_make_a_job_slower_leave_all_of_a_step_fixed),
        cmocka_unit_test(single_workers_say_it_where_whole_steps_do_not),
        cmocka_unit_test(a_job_of_very_many_workers_has_points_up_to_all_of_them),
        cmocka_unit_test(no_measurement_makes_a_rate_of_nothing_or_without_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
