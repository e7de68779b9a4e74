/* test_progress - when a line of progress is due, and what it says */
#include "worker/engine/train/progress.h"
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#define START 1000000
#define S INT64_C(1000000)

static void the_first_step_each_ten_seconds_and_the_last_are_told(void **state)
{
    struct progress p = {0};
    struct progress_step s = {.of = 100, .loss = 5.54321, .norm = 1.25, .began_us = START};
    char line[PROGRESS_LINE_MAX] = "", told[8][PROGRESS_LINE_MAX];
    int n = 0;

    (void)state;
    for (int i = 1; i <= 100; i++) { /* a step of 256 tokens every quarter of a second */
        s.steps = (uint64_t)i;
        s.tokens = (uint64_t)i * 256;
        if (progress_take(&p, &s, START + i * S / 4, line) && n < 8)
            (void)snprintf(told[n++], sizeof(told[0]), "%s", line);
    }
    assert_int_equal(n, 4);
    assert_string_equal(told[0], "step 1 of 100: loss 5.543, gradient norm 1.25");
    assert_string_equal(told[1], "step 41 of 100: loss 5.543, gradient norm 1.25, 1024 tokens/s, 15 s left");
    assert_string_equal(told[2], "step 81 of 100: loss 5.543, gradient norm 1.25, 1024 tokens/s, 5 s left");
    assert_string_equal(told[3], "step 100 of 100: loss 5.543, gradient norm 1.25, 1024 tokens/s");
}

static void an_attempt_that_goes_on_begins_with_the_step_it_goes_on_with(void **state)
{
    struct progress p = {0};
    struct progress_step s = {.of = 20000, .steps = 12001, .tokens = (uint64_t)12001 << 20, .began_us = START};
    char line[PROGRESS_LINE_MAX];

    (void)state;
    assert_true(progress_take(&p, &s, START + 90 * S, line));
    assert_string_equal(line, "step 12001 of 20000: loss 0, gradient norm 0"); /* no rate of what it has not done */
    s.steps++;
    s.tokens += 1 << 20;
    assert_false(progress_take(&p, &s, START + 99 * S, line));
    assert_true(progress_take(&p, &s, START + 100 * S, line));
    assert_string_equal(line, "step 12002 of 20000: loss 0, gradient norm 0, 104.9k tokens/s, 22 h 13 min left");
    s.tokens += (uint64_t)1 << 40;
    s.steps += 7000;
    assert_true(progress_take(&p, &s, START + 110 * S, line));
    assert_non_null(strstr(line, "M tokens/s, 1 s left"));
}

static void values_that_are_no_numbers_fit_the_line(void **state)
{
    struct progress p = {0};
    struct progress_step s = {
        .of = UINT64_MAX, .steps = 1, .tokens = UINT64_MAX, .loss = -1.0 / 0.0, .norm = 0.0 / 0.0};
    char line[PROGRESS_LINE_MAX];

    (void)state;
    assert_true(progress_take(&p, &s, START, line));
    s.steps = UINT64_MAX / 2;
    assert_true(progress_take(&p, &s, START + 1000 * S, line));
    assert_true(strlen(line) < PROGRESS_LINE_MAX - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_step_each_ten_seconds_and_the_last_are_told),
        cmocka_unit_test(an_attempt_that_goes_on_begins_with_the_step_it_goes_on_with),
        cmocka_unit_test(values_that_are_no_numbers_fit_the_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
