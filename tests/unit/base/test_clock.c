#include "tests/unit/test.h"

#include "base/clock.h"
#include "tests/unit/fake_clock.h"

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

static void the_real_clock_reads_as_the_plain_functions_do(void **state)
{
    const struct clock *c = clock_real();
    int64_t mono_us = clock_mono_us(), wall_us = clock_wall_us();

    (void)state;
    assert_in_range(clock_read_mono_us(c), mono_us, mono_us + 60000000);
    assert_in_range(clock_read_wall_us(c), wall_us - 60000000, wall_us + 60000000);
}

static void a_fake_clock_goes_only_when_it_is_told_to(void **state)
{
    struct fake_clock f;
    const struct clock *c = fake_clock_init(&f, 5, 1000);

    (void)state;
    assert_int_equal(clock_read_mono_us(c), 5);
    assert_int_equal(clock_read_wall_us(c), 1000);
    fake_clock_pass(&f, 10);
    assert_int_equal(clock_read_mono_us(c), 15);
    assert_int_equal(clock_read_wall_us(c), 1010);
    f.wall_us = 3; /* somebody sets the wall clock: the monotonic one does not follow */
    assert_int_equal(clock_read_mono_us(c), 15);
    assert_int_equal(clock_read_wall_us(c), 3);
}

static void times_are_read_as_they_are_printed_and_others_refused(void **state)
{
    static const struct {
        const char *text;
        int64_t us; /* -1: refused */
    } t[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"2026-11-21T06:05:17.123Z", INT64_C(1795241117123000)},
        {"2026-11-21T06:05:17.1234567Z", INT64_C(1795241117123456)},
        {"2024-02-29T23:59:59Z", INT64_C(1709251199000000)},
        {"2023-02-29T00:00:00Z", -1},
        {"2026-13-01T00:00:00Z", -1},
        {"2026-01-01T24:00:00Z", -1},
        {"2026-01-01T00:00:60Z", -1},
        {"1969-12-31T23:59:58Z", -1},
        {"2026-01-01T00:00:00", -1},
        {"2026-01-01T00:00:00.Z", -1},
        {"2026-01-01T00:00:00+01:00", -1},
        {"2026-01-01 00:00:00Z", -1},
        {"+026-01-01T00:00:00Z", -1},
        {"2026-01-01T00:00:00Z ", -1},
        {"", -1},
    };
    char text[CLOCK_RFC3339_MAX];
    int64_t us;

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        us = -1;
        if ((clock_read_rfc3339(t[i].text, &us) == 0) != (t[i].us >= 0) || us != t[i].us)
            fail_msg("'%s' is read as %lld", t[i].text, (long long)us);
    }
    for (int64_t at = 0; at < INT64_C(4000000000000000); at = at * 3 + 86399123000) {
        clock_rfc3339(at, text);
        assert_int_equal(clock_read_rfc3339(text, &us), 0);
        assert_int_equal(us, at / 1000 * 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_print_as_rfc3339),
        cmocka_unit_test(times_are_read_as_they_are_printed_and_others_refused),
        cmocka_unit_test(a_past_deadline_polls_without_waiting_and_a_far_one_is_capped),
        cmocka_unit_test(the_monotonic_clock_never_goes_back),
        cmocka_unit_test(the_real_clock_reads_as_the_plain_functions_do),
        cmocka_unit_test(a_fake_clock_goes_only_when_it_is_told_to),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
