#include "tests/unit/test.h"

#include <math.h>

#include "base/philox.h"
#include "scheduler/cluster/slow.h"

#define S INT64_C(1000000)
#define N 4

static const struct slow_rules rules = {.ratio = 1.25, .after_us = 30 * S, .retry_us = 3600 * S};

static void a_replica_is_compared_with_the_others_of_its_class_that_are_well(void **state)
{
    static const struct {
        struct {
            double ms;
            int class_;
            bool slow;
            double usual_ms;
        } v[N];
        double want[N]; /* 0: nothing is said */
        int alone;      /* mask */
    } table[] = {
        {{{10, 0, false, 0}, {10, 0, false, 0}, {15, 0, false, 0}, {10, 0, false, 0}}, {1, 1, 1.5, 1}, 0},
        {{{10, 0, false, 0}, {20, 0, false, 0}, {0, 0, false, 0}, {-1, 0, false, 0}}, {.5, 2, 0, 0}, 0},
        /* each class for itself; a replica of several classes says nothing */
        {{{10, 0, false, 0}, {30, 1, false, 0}, {10, 0, false, 0}, {60, 1, false, 0}}, {1, .5, 1, 2}, 0},
        {{{10, 0, false, 0}, {30, SLOW_NO_CLASS, false, 5}, {10, 0, false, 0}, {9, SLOW_NO_CLASS, false, 0}},
         {1, 0, 1, 0},
         0},
        /* who is slow is no measure for others: three of four are */
        {{{10, 0, false, 8}, {40, 0, true, 8}, {30, 0, true, 8}, {20, 0, true, 8}}, {1.25, 4, 3, 2}, 1},
        /* alone in its class */
        {{{10, 0, false, 8}, {40, 1, false, 10}, {9, 2, false, 0}, {0, 0, false, 0}}, {1.25, 4, 0, 0}, 7},
        {{{NAN, 0, false, 8}, {INFINITY, 1, false, 8}, {1e300, 2, false, 8}, {0, 0, false, 0}}, {0}, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct slow_replica v[N];
        struct slow_ratio got[N];

        for (int k = 0; k < N; k++)
            v[k] = (struct slow_replica){.ms = table[i].v[k].ms,
                                         .class_ = table[i].v[k].class_,
                                         .workers = 4,
                                         .slow = table[i].v[k].slow,
                                         .usual_ms = table[i].v[k].usual_ms};
        slow_compare(v, N, got);
        for (int k = 0; k < N; k++)
            if (fabs(got[k].ratio - table[i].want[k]) > 1e-12 || got[k].alone != (table[i].alone >> k & 1))
                fail_msg("row %zu, replica %d: %g, alone %d", i, k, got[k].ratio, got[k].alone);
    }
}

/* Reports of one ratio, one every seconds, from *now on. The reports until news, 0: there were none. */
static int report(struct slow_device *d, double ratio, bool alone, int n, double seconds, int64_t *now,
                  enum slow_news *ret)
{
    *ret = SLOW_NO_NEWS;
    for (int i = 1; i <= n; i++) {
        *now += (int64_t)(seconds * S);
        *ret = slow_take(d, &rules, &(struct slow_ratio){.ratio = ratio, .alone = alone}, *now);
        if (*ret != SLOW_NO_NEWS)
            return i;
    }
    return 0;
}

static void only_what_stays_slow_for_long_is_called_slow(void **state)
{
    static const struct {
        double ratio, seconds; /* between reports */
        int reports;
        bool alone;
        enum slow_news want;
    } table[] = {
        {1.2, 1, 1000, false, SLOW_NO_NEWS},                                      /* below the ratio, for ever */
        {1.4, 1, 1000, false, SLOW_FOUND},   {6, 0.1, 200, false, SLOW_NO_NEWS},  /* 20 s are too short */
        {6, 0.1, 400, false, SLOW_FOUND},    {6, 60, 9, false, SLOW_NO_NEWS},     /* steps of a minute: too few */
        {6, 60, 20, false, SLOW_FOUND},      {6, 1, 100, true, SLOW_NO_NEWS},     /* alone it takes two minutes */
        {6, 1, 140, true, SLOW_FOUND},       {0.2, 1, 1000, false, SLOW_NO_NEWS}, /* fast is no fault */
        {0, 1, 1000, false, SLOW_NO_NEWS},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct slow_device d = {.ratio = 0};
        enum slow_news got;
        int64_t now = S;

        (void)report(&d, table[i].ratio, table[i].alone, table[i].reports, table[i].seconds, &now, &got);
        if (got != table[i].want || d.slow != (got == SLOW_FOUND))
            fail_msg("row %zu: %d", i, got);
    }
}

static void a_hiccup_of_any_length_makes_no_device_slow(void **state)
{
    struct slow_device d = {.ratio = 0};
    enum slow_news got;
    int64_t now = S;

    (void)state;
    for (int i = 0; i < 500; i++) { /* three steps of every twenty, as around a checkpoint */
        if (report(&d, 1000, false, 3, 5, &now, &got) || report(&d, 1, false, 17, 1, &now, &got))
            fail_msg("turn %d: %d, ratio %g", i, got, d.ratio);
    }
    assert_true(d.ratio < 1.25);
}

static void times_that_scatter_evenly_make_no_device_slow(void **state)
{
    struct slow_device d[2] = {{.ratio = 0}, {.ratio = 0}};

    (void)state;
    for (uint32_t i = 0; i < 20000; i++) { /* ranks that fight for too few processors: 0.4 to 2.5 of the mean */
        uint32_t key[2] = {11, 3}, ctr[4] = {i, 0, 0, 0}, out[4];
        struct slow_replica v[2] = {{.ms = 0}};
        struct slow_ratio ratio[2];

        philox4x32(ctr, key, out);
        for (int k = 0; k < 2; k++)
            v[k].ms = exp2(2.64 * (out[k] / 4294967296.0 - 0.5));
        slow_compare(v, 2, ratio);
        for (int k = 0; k < 2; k++)
            if (slow_take(&d[k], &rules, &ratio[k], i * S / 4) != SLOW_NO_NEWS)
                fail_msg("seed 11, step %u: device %d, ratio %g", i, k, d[k].ratio);
    }
}

static void a_slow_device_is_well_only_when_it_is_clearly_faster_again(void **state)
{
    struct slow_device d = {.ratio = 0};
    enum slow_news got;
    int64_t now = S;

    (void)state;
    assert_true(report(&d, 2, false, 100, 1, &now, &got) > 30);
    assert_int_equal(got, SLOW_FOUND);
    assert_int_equal(d.found_us, now);
    assert_int_equal(report(&d, 1.2, false, 1000, 1, &now, &got), 0); /* between both lines */
    assert_true(d.slow && d.ratio > 1.19 && d.ratio < 1.21);
    assert_true(report(&d, 1, false, 200, 1, &now, &got) > 30);
    assert_int_equal(got, SLOW_WELL);
    assert_true(!d.slow && d.times == 0);
}

static void a_slow_device_with_less_work_is_not_well_because_it_keeps_up(void **state)
{
    const struct slow_replica v[] = {{10, 0, false, 5, 0}, {5, 0, true, 2, 0}, {10, 1, false, 1, 8}};
    struct slow_device d = {.ratio = 2, .slow = true};
    struct slow_ratio r[3];

    (void)state;
    slow_compare(v, 3, r);
    assert_true(r[1].eased && !r[0].eased && !r[2].eased);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(slow_take(&d, &rules, &r[1], i * S), SLOW_NO_NEWS);
    assert_true(d.slow && d.ratio == 2);
    r[1].ratio = 3; /* slower still: that counts */
    for (int i = 0; i < 100; i++)
        assert_int_equal(slow_take(&d, &rules, &r[1], i * S), SLOW_NO_NEWS);
    assert_true(d.ratio > 2.9);
}

static void a_slow_device_is_tried_again_later_each_time(void **state)
{
    static const int hours[] = {1, 2, 4, 8, 16, 24, 24};
    struct slow_device d = {.ratio = 0};
    enum slow_news got;
    int64_t now = S;

    (void)state;
    for (size_t i = 0; i < COUNT(hours); i++) {
        assert_true(report(&d, 2, false, 100, 1, &now, &got) > 0 && got == SLOW_FOUND);
        assert_int_equal(d.retry_at_us, now + hours[i] * 3600 * S);
        assert_false(slow_expire(&d, d.retry_at_us - 1));
        now = d.retry_at_us;
        assert_true(slow_expire(&d, now));
        assert_false(slow_expire(&d, now));
    }
    assert_true(report(&d, 2, false, 100, 1, &now, &got) > 0 && got == SLOW_FOUND);
    assert_true(slow_forgive(&d)); /* by a person: as if it had never been */
    assert_true(report(&d, 2, false, 100, 1, &now, &got) > 0 && got == SLOW_FOUND);
    assert_int_equal(d.retry_at_us, now + 3600 * S);
}

static void another_run_begins_without_what_was_counted(void **state)
{
    struct slow_device d = {.ratio = 0};
    enum slow_news got;
    int64_t now = S;

    (void)state;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(report(&d, 3, false, 25, 1, &now, &got), 0);
        slow_begin(&d);
    }
    assert_true(report(&d, 3, false, 100, 1, &now, &got) > 0);
    slow_begin(&d);
    assert_true(d.slow && d.ratio > 2.5); /* what is known stays */
}

static void a_ratio_of_0_turns_it_off(void **state)
{
    const struct slow_rules off = {.ratio = 0, .after_us = 0, .retry_us = S};
    struct slow_device d = {.ratio = 0};

    (void)state;
    for (int i = 0; i < 100; i++)
        assert_int_equal(slow_take(&d, &off, &(struct slow_ratio){.ratio = 9}, i * S), SLOW_NO_NEWS);
}

static void what_is_usual_follows_slowly_and_no_hiccup(void **state)
{
    struct slow_usual u = {.ms = 0};

    (void)state;
    slow_usual(&u, 200, false); /* the first is a hiccup */
    assert_true(u.ms == 200 && u.n == 1);
    for (int i = 0; i < 400; i++)
        slow_usual(&u, 10, false);
    assert_true(u.ms > 9.9 && u.ms < 10.6);
    slow_usual(&u, 1e6, false);
    slow_usual(&u, 0, false);
    slow_usual(&u, NAN, false);
    slow_usual(&u, INFINITY, false);
    assert_true(u.ms < 10.8);
    for (int i = 0; i < 400; i++)
        slow_usual(&u, 20, true);
    assert_true(u.ms < 10.8);
    for (int i = 0; i < 400; i++)
        slow_usual(&u, 12, false);
    assert_true(u.ms > 11.9 && u.ms < 12.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replica_is_compared_with_the_others_of_its_class_that_are_well),
        cmocka_unit_test(only_what_stays_slow_for_long_is_called_slow),
        cmocka_unit_test(a_hiccup_of_any_length_makes_no_device_slow),
        cmocka_unit_test(times_that_scatter_evenly_make_no_device_slow),
        cmocka_unit_test(a_slow_device_is_well_only_when_it_is_clearly_faster_again),
        cmocka_unit_test(a_slow_device_with_less_work_is_not_well_because_it_keeps_up),
        cmocka_unit_test(a_slow_device_is_tried_again_later_each_time),
        cmocka_unit_test(another_run_begins_without_what_was_counted),
        cmocka_unit_test(a_ratio_of_0_turns_it_off),
        cmocka_unit_test(what_is_usual_follows_slowly_and_no_hiccup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
