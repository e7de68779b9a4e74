#include "tests/unit/test.h"

#include "scheduler/cluster/calendar.h"

#define NOW INT64_C(1000000000)
#define HOUR INT64_C(3600000000)

static void spans_add_up_to_what_is_now_and_what_comes_next(void **state)
{
    static const struct calendar_span spans[] = {
        {NOW - HOUR, NOW, 0},                     /* over */
        {NOW + 3 * HOUR, NOW + 4 * HOUR, 0},      /* to come */
        {NOW + 2 * HOUR, NOW + 3 * HOUR, 7},      /* sooner */
        {NOW - HOUR, NOW + HOUR, 5},              /* now */
        {NOW - 2 * HOUR, NOW + 5 * HOUR / 10, 0}, /* and for nobody as well */
    };
    struct calendar_state s = {.shut = false}, back = s;

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        calendar_add(&s, &spans[i], NOW);
        calendar_add(&back, &spans[4 - i], NOW);
    }
    assert_true(s.shut && back.shut);
    assert_int_equal(s.holder, 5);
    assert_int_equal(s.closes_us, NOW + 2 * HOUR);
    assert_int_equal(s.opens_us, NOW + HOUR);
    assert_int_equal(back.closes_us, s.closes_us);
    assert_int_equal(back.opens_us, s.opens_us);
}

static void a_span_that_comes_again_is_the_next_one(void **state)
{
    struct calendar_span s = {NOW, NOW + HOUR, 0}, next;

    (void)state;
    next = calendar_next(s, 0, NOW + 10 * HOUR);
    assert_int_equal(next.from_us, NOW);
    next = calendar_next(s, 24 * HOUR, NOW + HOUR - 1);
    assert_int_equal(next.from_us, NOW);
    next = calendar_next(s, 24 * HOUR, NOW + HOUR);
    assert_int_equal(next.from_us, NOW + 24 * HOUR);
    next = calendar_next(s, 24 * HOUR, NOW + 100 * HOUR);
    assert_int_equal(next.from_us, NOW + 120 * HOUR);
    assert_int_equal(next.to_us, NOW + 121 * HOUR);
}

static void a_time_limit_that_ends_in_time_is_no_bar_and_one_that_does_not_is(void **state)
{
    static const struct {
        int64_t limit_us, closes_us;
        bool barred;
    } cases[] = {
        {HOUR, 0, false},
        {HOUR, NOW + HOUR, false},
        {HOUR + 1, NOW + HOUR, true},
        {0, NOW + HOUR, false},                    /* it can save and leave */
        {0, NOW + 2 * CALENDAR_LEAD_US - 1, true}, /* but not at once again */
        {60000000, NOW + CALENDAR_LEAD_US, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (calendar_bars(NOW, cases[i].limit_us, cases[i].closes_us) != cases[i].barred)
            fail_msg("case %zu", i);
}

static void who_may_run_past_the_time_has_to_leave_shortly_before(void **state)
{
    (void)state;
    assert_false(calendar_clears(NOW, INT64_MAX, 0));
    assert_false(calendar_clears(NOW, INT64_MAX, NOW + CALENDAR_LEAD_US + 1));
    assert_true(calendar_clears(NOW, INT64_MAX, NOW + CALENDAR_LEAD_US));
    assert_false(calendar_clears(NOW, CALENDAR_LEAD_US, NOW + CALENDAR_LEAD_US)); /* it is over by itself */
    assert_true(calendar_clears(NOW, CALENDAR_LEAD_US + 1, NOW + CALENDAR_LEAD_US));
    assert_true(calendar_clears(NOW, 1, NOW)); /* it should have left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_add_up_to_what_is_now_and_what_comes_next),
        cmocka_unit_test(a_span_that_comes_again_is_the_next_one),
        cmocka_unit_test(a_time_limit_that_ends_in_time_is_no_bar_and_one_that_does_not_is),
        cmocka_unit_test(who_may_run_past_the_time_has_to_leave_shortly_before),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
