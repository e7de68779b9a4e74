/* What the steps of ranks were spent on: sums that fit into few buckets, however long a run is. */
#include "tests/unit/test.h"

#include <math.h>

#include "server/cluster/step_parts.h"

static void tell(struct step_parts *p, size_t rank, uint64_t step, float steps, float compute_us)
{
    struct step_parts_sum s = {.steps = steps, .counted = steps};

    s.v[STEP_PART_ALL] = 2 * compute_us * steps;
    s.v[STEP_PART_COMPUTE] = compute_us * steps;
    step_parts_take(p, rank, step, &s);
}

static void nothing_is_known_before_a_rank_tells(void **state)
{
    struct step_parts *p;
    uint64_t first, width;

    (void)state;
    assert_int_equal(step_parts_new(2, &p), 0);
    assert_int_equal(step_parts_buckets(p, &first, &width), 0);
    assert_true(isnan(step_parts_mean(step_parts_last(p, 1), STEP_PART_ALL)));
    assert_true(isnan(step_parts_rest(step_parts_last(p, 1))));
    step_parts_free(p);
    step_parts_free(NULL);
}

static void a_long_run_keeps_every_step_in_wider_buckets(void **state)
{
    struct step_parts *p;
    uint64_t first, width;
    size_t n;
    float steps = 0;

    (void)state;
    assert_int_equal(step_parts_new(2, &p), 0);
    for (uint64_t i = 0; i < 1000; i++)
        for (size_t r = 0; r < 2; r++)
            tell(p, r, 500 + i, 1, i < 512 ? 10 : 30);
    n = step_parts_buckets(p, &first, &width);
    assert_int_equal(first, 500);
    assert_int_equal(width, 16);
    assert_int_equal(n, 63);
    for (size_t i = 0; i < n; i++) {
        assert_true(step_parts_mean(step_parts_bucket(p, 1, i), STEP_PART_COMPUTE) == (i < 32 ? 10 : 30));
        steps += step_parts_bucket(p, 1, i)->steps;
    }
    assert_true(steps == 1000);
    assert_true(fabs(step_parts_mean(step_parts_last(p, 0), STEP_PART_COMPUTE) - 30) < 1e-3);
    assert_true(fabs(step_parts_rest(step_parts_last(p, 0)) - 30) < 1e-3);
    step_parts_free(p);
}

static void records_of_many_steps_early_ones_and_absurd_ones_have_their_place(void **state)
{
    struct step_parts *p;
    uint64_t first, width;

    (void)state;
    assert_int_equal(step_parts_new(2, &p), 0);
    tell(p, 0, 4096, 1024, 10);
    assert_int_equal(step_parts_buckets(p, &first, &width), 1);
    assert_int_equal(width, 1024);
    tell(p, 1, 3000, 4, 20); /* it began before the first that was heard of */
    assert_true(step_parts_mean(step_parts_bucket(p, 1, 0), STEP_PART_COMPUTE) == 20);
    tell(p, 1, UINT64_MAX, 1, 50);
    assert_in_range(step_parts_buckets(p, &first, &width), 1, STEP_PARTS_BUCKETS);
    assert_true(step_parts_bucket(p, 0, 0)->steps == 1024);
    step_parts_free(p);
}

static void stalls_are_shared_out_over_all_steps_and_the_rest_over_those_that_count(void **state)
{
    struct step_parts_sum s = {.steps = 10, .counted = 8};

    (void)state;
    s.v[STEP_PART_SAVE] = 100;
    s.v[STEP_PART_ALL] = 80;
    s.v[STEP_PART_COMPUTE] = 160; /* clocks that were read one after the other */
    assert_true(step_parts_mean(&s, STEP_PART_SAVE) == 10);
    assert_true(step_parts_mean(&s, STEP_PART_ALL) == 10);
    assert_true(step_parts_rest(&s) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_known_before_a_rank_tells),
        cmocka_unit_test(a_long_run_keeps_every_step_in_wider_buckets),
        cmocka_unit_test(records_of_many_steps_early_ones_and_absurd_ones_have_their_place),
        cmocka_unit_test(stalls_are_shared_out_over_all_steps_and_the_rest_over_those_that_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
