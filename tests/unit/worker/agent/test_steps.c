/* What an agent reports of a rank's steps: once a second, each of them, and very short ones in sums. */
#include "worker/agent/steps.h"

#include <stdlib.h>

#include "api/protocol/report.h"
#include "tests/unit/test.h"

#define SECOND INT64_C(1000000)

static const struct steps_lack none;

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
    assert_null(steps_tell(f, &seen, 5 * SECOND, &none, &n));
    assert_int_equal(n, 0);
    add(f, 0, 7);
    all = steps_tell(f, &seen, 5 * SECOND, &none, &n);
    assert_int_equal(n, 7 * REPORT_STEP_NUMBERS);
    assert_int_equal(all[4 * REPORT_STEP_NUMBERS + REPORT_STEP], 4);
    assert_int_equal(all[4 * REPORT_STEP_NUMBERS + REPORT_STEP_FLAGS], 1);
    assert_int_equal(all[5 * REPORT_STEP_NUMBERS + REPORT_STEP_FLAGS], 0);
    assert_int_equal(all[4 * REPORT_STEP_NUMBERS + REPORT_STEP_COUNT], 0); /* one of the run's first */
    assert_int_equal(all[4 * REPORT_STEP_NUMBERS + REPORT_STEP_BUSY], 0);
    all += 5 * REPORT_STEP_NUMBERS;
    assert_int_equal(all[REPORT_STEP], 5);
    assert_int_equal(all[REPORT_STEP_SPAN], 1);
    assert_int_equal(all[REPORT_STEP_COUNT], 1);
    assert_int_equal(all[REPORT_STEP_WALL], 9);
    assert_int_equal(all[REPORT_STEP_BUSY], 7);
    assert_int_equal(all[REPORT_STEP_KIB], 1);
    free(all - 5 * REPORT_STEP_NUMBERS);
    add(f, 7, 2);
    assert_null(steps_tell(f, &seen, 5 * SECOND + SECOND / 2, &none, &n)); /* a report that came early */
    all = steps_tell(f, &seen, 6 * SECOND, &none, &n);
    assert_int_equal(n, 2 * REPORT_STEP_NUMBERS);
    assert_int_equal(all[REPORT_STEP], 7);
    free(all);
    assert_null(steps_tell(f, &seen, 7 * SECOND, &none, &n));
    flight_close(f);
}

static void a_step_that_saves_tells_how_long_it_waited_for_that_and_nothing_else(void **state)
{
    struct steps_seen seen = {0};
    struct flight *f;
    size_t n;
    int *all;

    (void)state;
    assert_int_equal(flight_private(&f, NULL), 0);
    flight_step_add(f, &(struct flight_step){.step = 9, .flags = FLIGHT_SAVED, .wall_us = 70, .save_us = 40});
    all = steps_tell(f, &seen, 5 * SECOND, &none, &n);
    assert_int_equal(n, REPORT_STEP_NUMBERS);
    assert_int_equal(all[REPORT_STEP_COUNT], 0);
    assert_int_equal(all[REPORT_STEP_WALL], 0);
    assert_int_equal(all[REPORT_STEP_SAVE], 40);
    free(all);
    flight_close(f);
}

/* Records of two agents, which look at other times: sums of the same, wherever both have whole ones. */
static void of_very_short_steps_sums_are_told_that_leave_none_out(void **state)
{
    static const uint32_t looks[2][5] = {{130, 333, 508, 820, 1000}, {77, 300, 611, 740, 1000}};
    int64_t busy[2] = {0, 0}, counts[2] = {0, 0};

    (void)state;
    for (int agent = 0; agent < 2; agent++) {
        struct steps_seen seen = {0};
        struct flight *f;
        uint32_t done = 0, told = 0;

        assert_int_equal(flight_private(&f, NULL), 0);
        for (int look = 0; look < 5; look++) {
            size_t n;
            int *all;

            add(f, done, looks[agent][look] - done);
            done = looks[agent][look];
            all = steps_tell(f, &seen, (look + 1) * SECOND, &none, &n);
            assert_non_null(all);
            assert_in_range(n / REPORT_STEP_NUMBERS, 10, REPORT_STEPS_MAX);
            for (int *v = all; v < all + n; v += REPORT_STEP_NUMBERS) {
                assert_int_equal(v[REPORT_STEP], told); /* each follows the one before */
                told += (uint32_t)v[REPORT_STEP_SPAN];
                assert_true(v[REPORT_STEP] / 16 == (int)(told - 1) / 16); /* within one multiple */
                counts[agent] += v[REPORT_STEP_COUNT];
                busy[agent] += v[REPORT_STEP_BUSY];
            }
            free(all);
        }
        assert_true(done - told < 16);
        add(f, done, 24 - done % 8);
        free(steps_tell(f, &seen, 9 * SECOND, &none, &(size_t){0}));
        assert_int_equal(seen.n, done + 24 - done % 8);
        assert_int_equal(busy[agent], 7 * counts[agent]);
        assert_int_equal(counts[agent], told - 5);
        flight_close(f);
    }
}

static void what_is_too_much_for_a_report_comes_with_the_next_ones(void **state)
{
    struct steps_seen seen = {0};
    struct flight *f;
    size_t n;
    int *all;

    (void)state;
    assert_int_equal(flight_private(&f, NULL), 0);
    add(f, 0, 3000); /* more than the page keeps */
    all = steps_tell(f, &seen, SECOND, &none, &n);
    assert_int_equal(all[REPORT_STEP], 3000 - FLIGHT_STEPS);
    assert_true(n <= REPORT_STEPS_MAX * REPORT_STEP_NUMBERS);
    assert_in_range(seen.n, 2969, 3000);
    free(all);
    for (uint32_t i = 0; i < 200; i++) /* steps whose numbers go up and down have no sums */
        add(f, i % 2 == 0 ? 5000 : 100, 1);
    for (uint64_t was = seen.n, i = 2; seen.n < 3200; i++, was = seen.n) {
        free(steps_tell(f, &seen, (int64_t)i * SECOND, &none, &n));
        assert_true(n <= REPORT_STEPS_MAX * REPORT_STEP_NUMBERS);
        if (seen.n == was)
            break; /* the last waits for one that follows it */
    }
    assert_true(seen.n >= 3199);
    flight_close(f);
}

static void each_record_tells_how_long_the_rank_had_no_processor(void **state)
{
    const struct steps_lack lack = {.starved = 0.5, .throttled = 0.25};
    struct steps_seen seen = {0};
    struct flight *f;
    size_t n;
    int *all;

    (void)state;
    assert_int_equal(flight_private(&f, NULL), 0);
    flight_step_add(f, &(struct flight_step){.step = 7, .wall_us = 1000});
    all = steps_tell(f, &seen, SECOND, &lack, &n);
    assert_int_equal(all[REPORT_STEP_STARVED], 500);
    assert_int_equal(all[REPORT_STEP_THROTTLED], 250);
    free(all);
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
    all = steps_tell(f, &seen, SECOND, &none, &n);
    assert_int_equal(all[REPORT_STEP_BUSY], INT32_MAX);
    assert_int_equal(all[REPORT_STEP_TP], INT32_MAX);
    free(all);
    flight_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_step_is_told_once_and_at_most_once_a_second),
        cmocka_unit_test(a_step_that_saves_tells_how_long_it_waited_for_that_and_nothing_else),
        cmocka_unit_test(of_very_short_steps_sums_are_told_that_leave_none_out),
        cmocka_unit_test(what_is_too_much_for_a_report_comes_with_the_next_ones),
        cmocka_unit_test(each_record_tells_how_long_the_rank_had_no_processor),
        cmocka_unit_test(what_no_rank_could_take_is_told_as_the_most_that_a_report_has),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
