/* How long a command goes between steps, as its heartbeats tell it. */
#include "tests/unit/test.h"

#include <stdio.h>

#include "worker/agent/beats.h"

#define S INT64_C(1000000)

static void take(struct beats_seen *s, int64_t step, int64_t at_us, const char *section)
{
    struct program_beat b = {.step = step, .at_us = at_us, .for_us = *section ? S : 0};

    (void)snprintf(b.section, sizeof(b.section), "%s", section);
    beats_take(s, &b);
}

static void the_longest_step_of_late_is_known_after_the_first_five(void **state)
{
    struct beats_seen s = {.steps = 0};
    int64_t at_us = 100 * S, step = 40;

    (void)state;
    take(&s, step, at_us, "");
    for (int i = 0; i < BEATS_WARM_STEPS; i++) /* slow at first: not counted */
        take(&s, ++step, at_us += 60 * S, "");
    assert_int_equal(beats_gap_us(&s), 0);
    take(&s, ++step, at_us += 2 * S, "");
    assert_int_equal(beats_gap_us(&s), 2 * S);
    take(&s, step += 10, at_us += 5 * S, ""); /* a mean of ten */
    assert_int_equal(beats_gap_us(&s), 2 * S);
    take(&s, ++step, at_us += 3 * S, "");
    assert_int_equal(beats_gap_us(&s), 3 * S);
    for (int i = 0; i < 2 * BEATS_WINDOW; i++)
        take(&s, ++step, at_us += S, "");
    assert_int_equal(beats_gap_us(&s), S); /* what was long ago is no measure */
}

static void sections_and_what_stands_still_teach_nothing(void **state)
{
    struct beats_seen s = {.steps = 0};
    int64_t at_us = 100 * S, step = 0;

    (void)state;
    for (int i = 0; i < 20; i++)
        take(&s, ++step, at_us += S, "");
    take(&s, step, at_us += S, "eval");
    take(&s, step, at_us, "eval");
    take(&s, ++step, at_us += 500 * S, "");
    take(&s, step, at_us, "");
    assert_int_equal(beats_gap_us(&s), S);
    take(&s, ++step, at_us - 50 * S, ""); /* a clock that goes back */
    assert_int_equal(beats_gap_us(&s), S);
    take(&s, -1, at_us += 2 * S, ""); /* a program that counts no steps */
    assert_true(beats_gap_us(&s) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_step_of_late_is_known_after_the_first_five),
        cmocka_unit_test(sections_and_what_stands_still_teach_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
