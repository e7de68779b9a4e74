/* What an agent reports of a rank's steps: once a second, and of very short ones only some stretches. */
#include "worker/agent/steps.h"

#include <stdlib.h>

#include "api/protocol/report.h"
#include "tests/unit/test.h"

#define SECOND INT64_C(1000000)

static void add(struct flight *f, uint32_t from, uint32_t n)
{
    for (uint32_t i = from; i < from + n; i++)
        flight_step_add(f, &(struct flight_step){.step = i, .flags = i < 5, .wall_us = 9, .busy_us = 7, .kib = 1});
}

static void each_step_is_told_once_and_at_most_once_a_second(void **state)
{
    struct steps_seen seen = {0};
    struct flight *f;
    size_t n;
    int *all;

    (void)state;
    assert_int_equal(flight_private(&f, NULL), 0);
    assert_null(steps_tell(f, &seen, 5 * SECOND, &n));
    assert_int_equal(n, 0);
    add(f, 0, 7);
    all = steps_tell(f, &seen, 5 * SECOND, &n);
    assert_int_equal(n, 7 * REPORT_STEP_NUMBERS);
    assert_int_equal(all[4 * REPORT_STEP_NUMBERS + REPORT_STEP], 4);
    assert_int_equal(all[4 * REPORT_STEP_NUMBERS + REPORT_STEP_FLAGS], 1);
    assert_int_equal(all[5 * REPORT_STEP_NUMBERS + REPORT_STEP_FLAGS], 0);
    assert_int_equal(all[REPORT_STEP_WALL], 9);
    assert_int_equal(all[REPORT_STEP_BUSY], 7);
    assert_int_equal(all[REPORT_STEP_KIB], 1);
    free(all);
    add(f, 7, 2);
    assert_null(steps_tell(f, &seen, 5 * SECOND + SECOND / 2, &n)); /* a report that came early */
    all = steps_tell(f, &seen, 6 * SECOND, &n);
    assert_int_equal(n, 2 * REPORT_STEP_NUMBERS);
    assert_int_equal(all[REPORT_STEP], 7);
    free(all);
    assert_null(steps_tell(f, &seen, 7 * SECOND, &n));
    flight_close(f);
}

static void of_very_short_steps_whole_stretches_are_told_and_the_same_by_all(void **state)
{
    struct steps_seen one = {0}, other = {0};
    struct flight *f;
    size_t n, m;
    int *a, *b;

    (void)state;
    assert_int_equal(flight_private(&f, NULL), 0);
    add(f, 0, 3000); /* more than the page keeps */
    a = steps_tell(f, &one, SECOND, &n);
    other.n = 40; /* another agent, which looked earlier */
    b = steps_tell(f, &other, SECOND, &m);
    assert_non_null(a);
    assert_non_null(b);
    assert_true(n <= REPORT_STEPS_MAX * REPORT_STEP_NUMBERS && n >= REPORT_STEPS_WINDOW * REPORT_STEP_NUMBERS);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n * sizeof(*a));
    for (size_t i = 0; i < n / REPORT_STEP_NUMBERS; i++)
        if (a[i * REPORT_STEP_NUMBERS] % REPORT_STEPS_WINDOW == 0)
            assert_true(i + REPORT_STEPS_WINDOW <= n / REPORT_STEP_NUMBERS ||
                        i + REPORT_STEPS_WINDOW > REPORT_STEPS_MAX);
    free(a);
    free(b);
    flight_close(f);
}

static void what_no_rank_could_take_is_told_as_the_most_that_a_report_has(void **state)
{
    struct steps_seen seen = {0};
    struct flight *f;
    size_t n;
    int *all;

    (void)state;
    assert_int_equal(flight_private(&f, NULL), 0);
    flight_step_add(f, &(struct flight_step){.step = 1, .busy_us = UINT32_MAX, .call_us = {UINT32_MAX}});
    all = steps_tell(f, &seen, SECOND, &n);
    assert_int_equal(all[REPORT_STEP_BUSY], INT32_MAX);
    assert_int_equal(all[REPORT_STEP_TP], INT32_MAX);
    free(all);
    flight_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_step_is_told_once_and_at_most_once_a_second),
        cmocka_unit_test(of_very_short_steps_whole_stretches_are_told_and_the_same_by_all),
        cmocka_unit_test(what_no_rank_could_take_is_told_as_the_most_that_a_report_has),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
