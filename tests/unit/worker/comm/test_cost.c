#include "tests/unit/test.h"

#include <math.h>

#include "worker/engine/comm/coded.h"
#include "worker/engine/comm/cost.h"

static const struct cost_codec r8 = {0.0004, 0.0003, 0.0003, 1.016, 0}; /* about what a core does */

static struct cost_line link_of(double mb_s)
{
    return (struct cost_line){50, 1 / mb_s};
}

static double raw_us(int members, size_t count, const struct cost_line *l)
{
    return 2 * (l->fixed_us + (double)count * 4 / members * l->byte_us);
}

static void a_line_comes_from_the_shortest_and_the_two_longest(void **state)
{
    const double bytes[] = {256, 4096, 65536, 262144}, us[] = {50, 60, 100, 900};
    struct cost_line l = cost_fit(bytes, us, 4);

    (void)state;
    assert_true(l.fixed_us == 50);
    assert_true(fabs(l.byte_us - 800.0 / 196608) < 1e-12);
    l = cost_fit(bytes, us, 1);
    assert_true(l.fixed_us == 50 && l.byte_us > 0);
    l = cost_fit(bytes, (const double[]){10, 9, 8, 8}, 4); /* noise: no slope below zero */
    assert_true(l.byte_us > 0);
}

static void slow_links_are_worth_coding_for_and_fast_ones_are_not(void **state)
{
    static const struct {
        double mb_s;
        bool coded;
    } t[] = {
        {12.5, true}, {125, true}, {1250, true}, {20000, false}, {100000, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        struct cost_line l = link_of(t[i].mb_s);
        size_t slice = 0, n = 4 << 20;
        double us = cost_best_us(COST_ALL_REDUCE, 2, n, &l, &r8, &slice);

        assert_int_equal(cost_worth(raw_us(2, n, &l), us), t[i].coded);
        assert_int_equal(slice % CODED_ALIGN, 0);
        assert_true(us <= cost_coded_us(COST_ALL_REDUCE, 2, n, CODED_SLICE, &l, &r8));
    }
}

static void short_messages_gain_nothing_from_slices(void **state)
{
    struct cost_line l = link_of(12.5);
    double one = cost_coded_us(COST_SEND, 2, 1000, CODED_SLICE, &l, &r8);

    (void)state;
    assert_true(one == cost_coded_us(COST_SEND, 2, 1000, 2 * CODED_SLICE, &l, &r8));
    assert_true(one > l.fixed_us);
}

static void each_shape_moves_what_it_must(void **state)
{
    struct cost_line l = {0, 1};
    struct cost_codec free_codec = {0, 0, 0, 1, 0};
    size_t n = 1 << 20;

    (void)state;
    assert_true(cost_coded_us(COST_ALL_REDUCE, 4, n, CODED_SLICE, &l, &free_codec) == (double)n / 2);
    assert_true(cost_coded_us(COST_REDUCE_SCATTER, 4, n, CODED_SLICE, &l, &free_codec) == (double)n / 4);
    assert_true(cost_coded_us(COST_ALL_GATHER, 4, n, CODED_SLICE, &l, &free_codec) == (double)n / 4);
    assert_true(cost_coded_us(COST_SEND, 4, n, CODED_SLICE, &l, &free_codec) == (double)n);
}

/* What starting a GPU's kernels costs: the more slices, the more of it. */
static void calls_that_are_slow_to_start_want_long_slices(void **state)
{
    static const struct {
        enum cost_shape shape;
        double calls;
    } t[] = {
        {COST_ALL_REDUCE, 8},
        {COST_REDUCE_SCATTER, 4},
        {COST_ALL_GATHER, 5},
        {COST_SEND, 2},
    };
    struct cost_line l = {0, 0};
    struct cost_codec c = {0, 0, 0, 1, 10};
    size_t n = 16 * CODED_SLICE, slice = 0;

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        double share = t[i].shape == COST_SEND ? 16 : 4;

        assert_true(cost_coded_us(t[i].shape, 4, n, CODED_SLICE, &l, &c) == share * t[i].calls * 10);
        assert_true(cost_coded_us(t[i].shape, 4, n, n, &l, &c) == t[i].calls * 10);
    }
    (void)cost_best_us(COST_ALL_REDUCE, 4, n, &l, &c, &slice);
    assert_true(slice > CODED_SLICE);
}

static void a_group_that_has_a_way_changes_it_for_a_twentieth_only(void **state)
{
    static const struct {
        bool coded;
        double raw_us, coded_us;
        bool want;
    } t[] = {
        {true, 100, 105, true},  {true, 101, 105, true},  {true, 99, 105, false}, {true, 10, 105, false},
        {false, 100, 99, false}, {false, 100, 96, false}, {false, 100, 94, true},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++)
        assert_int_equal(cost_worth_still(t[i].coded, t[i].raw_us, t[i].coded_us), t[i].want);
}

static void one_disturbed_time_does_not_make_a_link_fast(void **state)
{
    static const double bytes[] = {256, 4096, 65536, 262144, 1048576};
    static const struct {
        double us[5], mb_s, within;
    } t[] = {
        {{60, 70, 200, 620, 2300}, 468, 0.01},  /* as it is */
        {{60, 70, 200, 2100, 2300}, 468, 0.01}, /* the second longest was disturbed: not 4 GB/s */
        {{60, 70, 200, 900, 2300}, 468, 0.01},
        {{60, 70, 75, 80, 62000}, 12.7, 0.01},  /* a shaper lets the first bytes through: not 17 MB/s */
        {{60, 70, 200, 2400, 2300}, 468, 0.01}, /* longer than the longest */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        double mb_s = 1 / cost_fit(bytes, t[i].us, 5).byte_us;

        assert_true(fabs(mb_s / t[i].mb_s - 1) < t[i].within);
    }
}

static void both_ways_are_tried_where_the_model_may_err(void **state)
{
    static const struct {
        double raw_us, coded_us;
        int want;
    } t[] = {
        {8000, 5000, 7},     {5000, 8000, 7},       {11000, 6600, 7}, {100, 40, 7}, /* short: trials cost nothing */
        {60000, 30000, 5},   {80000, 60000, 7},     {8000, 800, 7},   {10, 40000, 7},
        {76000, 14000, 5},                          /* a disturbed measurement may be off by any factor */
        {770000, 200000, 0}, {300000, 150000, 0},   /* a slow link, the choice is clear */
        {300000, 250000, 3}, {3000000, 2500000, 0}, /* only trials tell, if they do not take too long */
        {0, 10, 7},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++)
        assert_int_equal(cost_trials(t[i].raw_us, t[i].coded_us), t[i].want);
}

/* Trials of two ways of which one takes 1.7 times as long, some of them disturbed. */
static void few_disturbed_trials_change_no_choice(void **state)
{
    static const struct {
        double raw[7], coded[7];
        bool coded_way;
    } t[] = {
        {{11, 11, 12, 11, 11, 12, 11}, {7, 7, 6, 7, 7, 7, 7}, true},
        {{11, 11, 12, 11, 11, 12, 11}, {7, 40, 6, 35, 7, 90, 7}, true},
        {{4, 11, 12, 5, 11, 12, 3}, {7, 7, 6, 7, 7, 7, 7}, true},
        {{7, 7, 6, 7, 7, 7, 7}, {11, 11, 12, 11, 11, 12, 11}, false},
        {{7, 40, 6, 35, 7, 90, 7}, {11, 11, 12, 11, 11, 12, 11}, false},
        {{7, 7, 7, 7, 7, 7, 7}, {6.9, 6.9, 6.9, 6.9, 6.9, 6.9, 6.9}, false}, /* raw, where it costs next to nothing */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++)
        assert_int_equal(cost_worth(cost_median(t[i].raw, 7), cost_median(t[i].coded, 7)), t[i].coded_way);
    assert_true(cost_median((const double[]){3}, 1) == 3 && cost_median((const double[]){9, 1, 3}, 3) == 3);
}

/* Steps of so many microseconds until it is time to choose again, at most limit; predicted are 10,000 a step. */
static int steps_until(struct cost_watch *w, const double *us, int n, int limit)
{
    for (int i = 0; i < limit; i++)
        if (cost_watch_step(w, us[i % n], 10000))
            return i + 1;
    return limit;
}

static void steady_times_are_left_alone_whatever_they_are(void **state)
{
    static const double t[][4] = {
        {10000, 10000, 10000, 10000},
        {30000, 40000, 25000, 30000},  /* much else beside the wire */
        {20000, 20000, 20000, 200000}, /* one long in four */
        {600, 900, 100, 5},
        {0, 0, 0, 0}, /* too short to matter */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        struct cost_watch w = {0};

        cost_watch_start(&w, false);
        assert_int_equal(steps_until(&w, t[i], 4, 1000), 1000);
    }
}

static void times_that_stay_away_are_noticed_once_they_have_for_long(void **state)
{
    static const double usual = 20000, other[] = {31000, 200000, 13000, 100};
    static const double mixed[] = {31000, 31000, 31000, 31000, 13000};

    (void)state;
    for (size_t i = 0; i < COUNT(other); i++) {
        struct cost_watch w = {0};

        cost_watch_start(&w, false);
        assert_int_equal(steps_until(&w, &usual, 1, 20), 20);
        assert_int_equal(steps_until(&w, &other[i], 1, 100), COST_WATCH_STEPS);
        cost_watch_start(&w, true); /* it was in vain: the next time takes twice as long */
        assert_int_equal(steps_until(&w, &usual, 1, 20), 20);
        assert_int_equal(steps_until(&w, mixed, 5, 100), 100); /* not on one side for long */
        assert_int_equal(steps_until(&w, &usual, 1, 1), 1);
        assert_int_equal(steps_until(&w, &other[i], 1, 100), 2 * COST_WATCH_STEPS);
        cost_watch_start(&w, false);
        assert_int_equal(w.patience, COST_WATCH_STEPS);
    }
}

static void patience_has_a_limit(void **state)
{
    struct cost_watch w = {0};

    (void)state;
    for (int i = 0; i < 20; i++)
        cost_watch_start(&w, i > 0);
    assert_int_equal(w.patience, COST_WATCH_STEPS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_comes_from_the_shortest_and_the_two_longest),
        cmocka_unit_test(one_disturbed_time_does_not_make_a_link_fast),
        cmocka_unit_test(both_ways_are_tried_where_the_model_may_err),
        cmocka_unit_test(few_disturbed_trials_change_no_choice),
        cmocka_unit_test(slow_links_are_worth_coding_for_and_fast_ones_are_not),
        cmocka_unit_test(short_messages_gain_nothing_from_slices),
        cmocka_unit_test(each_shape_moves_what_it_must),
        cmocka_unit_test(calls_that_are_slow_to_start_want_long_slices),
        cmocka_unit_test(a_group_that_has_a_way_changes_it_for_a_twentieth_only),
        cmocka_unit_test(steady_times_are_left_alone_whatever_they_are),
        cmocka_unit_test(times_that_stay_away_are_noticed_once_they_have_for_long),
        cmocka_unit_test(patience_has_a_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
