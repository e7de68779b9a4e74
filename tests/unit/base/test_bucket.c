/* test_bucket - what a token bucket lets pass, second by second */
#include "tests/unit/test.h"

#include <stdbool.h>

#include "base/bucket.h"

#define SECOND INT64_C(1000000)

static void a_burst_passes_and_then_so_many_a_second(void **state)
{
    static const struct bucket_rule rule = {.per_s = 2, .burst = 3};
    static const struct {
        int64_t at_us;
        bool passes;
    } step[] = {
        {10 * SECOND, true},
        {10 * SECOND, true},
        {10 * SECOND, true},
        {10 * SECOND, false},
        {9 * SECOND, false}, /* a clock that goes back fills nothing in */
        {10 * SECOND + SECOND / 4, false},
        {10 * SECOND + SECOND / 2 + 1, true},
        {10 * SECOND + SECOND / 2 + 1, false},
        {60 * SECOND, true},
        {60 * SECOND, true},
        {60 * SECOND, true},
        {60 * SECOND, false}, /* no more than the burst is saved up */
    };
    struct bucket b = {0};

    (void)state;
    for (size_t i = 0; i < COUNT(step); i++)
        if ((bucket_take(&b, &rule, 1, step[i].at_us) == 0) != step[i].passes)
            fail_msg("step %zu", i);
}

static void the_wait_that_is_told_suffices_and_half_of_it_does_not(void **state)
{
    static const struct bucket_rule rule = {.per_s = 0.5, .burst = 4};
    struct bucket b = {0};
    int64_t now = 5 * SECOND, wait;

    (void)state;
    assert_int_equal(bucket_take(&b, &rule, 4, now), 0);
    wait = bucket_take(&b, &rule, 2, now);
    assert_in_range(wait, 4 * SECOND, 4 * SECOND + 2);
    assert_true(bucket_wait_us(&b, &rule, 2, now + wait / 2) > 0);
    assert_int_equal(bucket_wait_us(&b, &rule, 2, now + wait), 0);
    assert_int_equal(bucket_take(&b, &rule, 2, now + wait), 0);
}

static void more_than_the_burst_waits_for_a_full_bucket_and_is_paid_off(void **state)
{
    static const struct bucket_rule rule = {.per_s = 1, .burst = 10};
    struct bucket b = {0};

    (void)state;
    assert_int_equal(bucket_take(&b, &rule, 1, SECOND), 0);
    assert_true(bucket_take(&b, &rule, 30, SECOND) > 0);
    assert_int_equal(bucket_take(&b, &rule, 30, 3 * SECOND), 0);
    assert_true(bucket_take(&b, &rule, 1, 23 * SECOND) > 0);
    assert_int_equal(bucket_take(&b, &rule, 1, 25 * SECOND), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_passes_and_then_so_many_a_second),
        cmocka_unit_test(the_wait_that_is_told_suffices_and_half_of_it_does_not),
        cmocka_unit_test(more_than_the_burst_waits_for_a_full_bucket_and_is_paid_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
