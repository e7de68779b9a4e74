/* What is learned across jobs. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/cluster/learned.h"

static double rate(struct learned *l, const struct learned_kind *k, int type, int32_t count)
{
    struct rates_profile p = {.n = {0}};

    struct profile_type two[] = {{.class_ = 0}, {.class_ = 1}};

    (void)learned_rates(l, k, two, 2, NULL, true, &p);
    return (double)rates_at(&p, type, count, NULL) / 1e6;
}

static void one_jobs_measurement_serves_the_next_of_its_kind(void **state)
{
    struct learned *l = learned_new();
    struct learned_kind *k = learned_kind(l, 7, true, 8, 1);

    (void)state;
    assert_null(learned_find(l, 8));
    learned_take_speed(l, k, 0, 4, 12);
    k = learned_kind(l, 7, true, 8, 1);
    assert_int_equal(k->n_speeds, 1);
    assert_true(rate(l, k, 0, 4) == 12);
    assert_true(rate(l, k, 1, 4) == 12); /* of classes nothing is known yet */
    learned_free(l);
}

static void kinds_that_ran_on_two_classes_say_how_fast_a_class_is_for_one_that_ran_on_one(void **state)
{
    struct learned *l = learned_new();
    struct learned_kind *k;

    (void)state;
    for (uint64_t key = 1; key <= 30; key++) {
        k = learned_kind(l, key, true, 8, 1);
        learned_take_speed(l, k, 0, 1, (double)key);
        learned_take_speed(l, k, 1, 1, 3 * (double)key);
    }
    k = learned_kind(l, 99, true, 8, 1);
    learned_take_speed(l, k, 0, 1, 10);
    assert_true(rate(l, k, 1, 1) > 28 && rate(l, k, 1, 1) < 31);
    assert_true(learned_class_speed(l, 1) / learned_class_speed(l, 0) > 2.8);
    learned_free(l);
}

static void what_is_expected_of_a_class_counts_until_jobs_have_shown_it(void **state)
{
    struct learned *l = learned_new();
    struct learned_kind *k = learned_kind(l, 1, true, 8, 1);

    (void)state;
    learned_expect(l, 1, 4);
    learned_take_speed(l, k, 0, 1, 10);
    assert_true(rate(l, k, 1, 1) == 40);
    for (uint64_t key = 2; key <= 60; key++) {
        struct learned_kind *o = learned_kind(l, key, true, 8, 1);

        learned_take_speed(l, o, 0, 1, 1);
        learned_take_speed(l, o, 1, 1, 2);
    }
    assert_true(rate(l, learned_kind(l, 1, true, 8, 1), 1, 1) < 22);
    learned_free(l);
}

static void a_measurement_has_its_count_and_its_spread(void **state)
{
    struct learned *l = learned_new();
    struct learned_kind *k = learned_kind(l, 1, true, 8, 1);
    uint64_t version;

    (void)state;
    for (int i = 0; i < 10; i++)
        learned_take_speed(l, k, 0, 2, i % 2 ? 11 : 9);
    assert_int_equal(k->speeds[0].n, 10);
    assert_true(k->speeds[0].steps_per_s > 9.9 && k->speeds[0].steps_per_s < 10.1);
    assert_true(k->speeds[0].spread > 0.08 && k->speeds[0].spread < 0.12);
    version = learned_version(l);
    learned_take_speed(l, k, 0, 2, 10);
    assert_int_equal(learned_version(l), version); /* no news */
    learned_forget(l, k, 0, 2);
    assert_int_equal(k->n_speeds, 0);
    assert_true(learned_version(l) > version);
    learned_take_speed(l, k, 0, 2, -1); /* no rates: they are left out */
    learned_take_speed(l, k, 0, 0, 1);
    assert_int_equal(k->n_speeds, 0);
    learned_free(l);
}

static void restarts_and_device_time_are_learned_by_kind_and_restarts_of_all(void **state)
{
    struct learned *l = learned_new();
    struct learned_kind *a = learned_kind(l, 1, true, 8, 1), *b;

    (void)state;
    assert_true(learned_restart_s(l, a) == 0);
    learned_take_restart(l, a, 30);
    learned_take_end(a, 100);
    learned_take_end(a, 200);
    b = learned_kind(l, 2, true, 8, 1);
    assert_true(learned_restart_s(l, b) == 30);
    learned_take_restart(l, b, 10);
    assert_true(learned_restart_s(l, b) == 10);
    assert_true(learned_find(l, 1)->device_s == 150 && b->device_s == 0);
    learned_free(l);
}

static void of_a_hundred_thousand_kinds_the_last_asked_for_are_known(void **state)
{
    struct learned *l = learned_new();
    struct learned_kind *k;

    (void)state;
    for (uint64_t key = 1; key <= 100000; key++) {
        k = learned_kind(l, key * UINT64_C(0x9e3779b97f4a7c15), false, 4, 2);
        for (int i = 0; i < 2 * LEARNED_SPEEDS_MAX && key > 99900; i++)
            learned_take_speed(l, k, (uint8_t)(i % 3), 2 + i, 1 + i);
    }
    k = (struct learned_kind *)learned_find(l, 100000 * UINT64_C(0x9e3779b97f4a7c15));
    assert_non_null(k);
    assert_int_equal(k->n_speeds, LEARNED_SPEEDS_MAX);
    assert_int_equal(k->speeds[LEARNED_SPEEDS_MAX - 1].devices, 1 + 2 * LEARNED_SPEEDS_MAX);
    assert_null(learned_find(l, UINT64_C(0x9e3779b97f4a7c15)));
    assert_true(learned_dropped(l) != 0);
    learned_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_jobs_measurement_serves_the_next_of_its_kind),
        cmocka_unit_test(kinds_that_ran_on_two_classes_say_how_fast_a_class_is_for_one_that_ran_on_one),
        cmocka_unit_test(what_is_expected_of_a_class_counts_until_jobs_have_shown_it),
        cmocka_unit_test(a_measurement_has_its_count_and_its_spread),
        cmocka_unit_test(restarts_and_device_time_are_learned_by_kind_and_restarts_of_all),
        cmocka_unit_test(of_a_hundred_thousand_kinds_the_last_asked_for_are_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
