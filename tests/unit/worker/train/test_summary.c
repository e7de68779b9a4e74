/* What a rank tells of a step: what is computing, and what is waiting. */
#include "worker/engine/train/summary.h"

#include "base/clock.h"
#include "tests/unit/test.h"
#include "worker/flight/flight_read.h"

static void pass(int64_t us)
{
    for (int64_t end = clock_mono_us() + us; clock_mono_us() < end;)
        ;
}

static void call(struct flight *f, const char *group, int64_t us)
{
    flight_enter(f, &(struct flight_call){.group = group, .key = 1, .size = 2, .peer = -1, .op = 1, .seq = 1});
    pass(us);
    flight_leave(f);
}

static void a_step_is_told_by_what_it_was_spent_on(void **state)
{
    struct summary s = {0};
    struct flight_step t;

    (void)state;
    assert_int_equal(flight_private(&s.flight, NULL), 0);
    call(s.flight, "tp", 3000); /* before the step */
    summary_begin(&s);
    pass(4000);
    call(s.flight, "tp", 2000);
    call(s.flight, "world", 1000);
    pass(3000);
    s.data_us = 2000;
    summary_computed(&s, 17, 1000, 512);
    call(s.flight, "world", 5000); /* after it */
    summary_end(&s, FLIGHT_EVALUATED, 5 << 10);
    assert_true(flight_read_step_at(s.flight, 0, &t));
    assert_int_equal(t.step, 17);
    assert_int_equal(t.flags, FLIGHT_WARM | FLIGHT_EVALUATED);
    assert_true(t.wall_us >= 15000);
    assert_true(t.call_us[FLIGHT_TP] >= 2000 && t.call_us[FLIGHT_WORLD] >= 1000);
    assert_int_equal(t.data_us, 2000);
    assert_int_equal(t.save_us, 1000);
    assert_true(t.busy_us >= 4000); /* 7 ms besides calls, of which 2 were for data and 1 for saving */
    assert_true(t.busy_us + t.call_us[FLIGHT_TP] + t.call_us[FLIGHT_WORLD] + 3000 + 5000 <= t.wall_us);
    assert_true(t.cpu_us >= 1000);
    assert_true(t.cpu_us < t.wall_us - 3000 - 5000); /* without that of calls, and of what comes after it */
    assert_int_equal(t.work, 512);
    assert_int_equal(t.kib, 5);
    flight_close(s.flight);
}

static void what_comes_between_two_steps_is_flagged_in_both_and_the_first_ones_are(void **state)
{
    struct summary s = {0};
    struct flight_step t;

    (void)state;
    assert_int_equal(flight_private(&s.flight, NULL), 0);
    for (uint32_t i = 0; i < SUMMARY_WARM_STEPS + 4; i++) {
        summary_begin(&s);
        summary_computed(&s, i, 0, 1);
        summary_end(&s, i == SUMMARY_WARM_STEPS + 1 ? FLIGHT_SAVED : 0, 0);
        assert_true(flight_read_step_at(s.flight, i, &t));
        if (i < SUMMARY_WARM_STEPS)
            assert_int_equal(t.flags, FLIGHT_WARM);
        else
            assert_int_equal(t.flags, i == SUMMARY_WARM_STEPS + 1 || i == SUMMARY_WARM_STEPS + 2 ? FLIGHT_SAVED : 0);
    }
    flight_close(s.flight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_told_by_what_it_was_spent_on),
        cmocka_unit_test(what_comes_between_two_steps_is_flagged_in_both_and_the_first_ones_are),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
