#include "tests/unit/test.h"

#include "base/clock.h"

static void times_print_as_rfc3339(void **state)
{
    static const struct {
        int64_t us;
        const char *text;
    } edge[] = {
        {0, "1970-01-01T00:00:00.000Z"},
        {999, "1970-01-01T00:00:00.000Z"},
        {1000, "1970-01-01T00:00:00.001Z"},
        {-1, "1969-12-31T23:59:59.999Z"},
        {INT64_C(951782399999999), "2000-02-28T23:59:59.999Z"},
        {INT64_C(951782400000000), "2000-02-29T00:00:00.000Z"},
    };
    char out[CLOCK_RFC3339_MAX];

    (void)state;
    for (size_t i = 0; i < COUNT(edge); i++) {
        clock_rfc3339(edge[i].us, out);
        assert_string_equal(out, edge[i].text);
    }
}

static void a_past_deadline_polls_without_waiting_and_a_far_one_is_capped(void **state)
{
    (void)state;
    assert_int_equal(clock_poll_ms(clock_mono_us() - 1), 0);
    assert_int_equal(clock_poll_ms(INT64_MAX / 2), 3600000);
    assert_in_range(clock_poll_ms(clock_mono_us() + 50000), 1, 50);
}

static void the_monotonic_clock_never_goes_back(void **state)
{
    int64_t last = clock_mono_us();

    (void)state;
    for (int i = 0; i < 10000; i++) {
        int64_t now = clock_mono_us();

        assert_true(now >= last);
        last = now;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_print_as_rfc3339),
        cmocka_unit_test(a_past_deadline_polls_without_waiting_and_a_far_one_is_capped),
        cmocka_unit_test(the_monotonic_clock_never_goes_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
