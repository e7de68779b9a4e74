#include "tests/unit/test.h"

#include <math.h>

#include "worker/comm/coded.h"
#include "worker/comm/cost.h"

static const struct cost_codec r8 = {0.0004, 0.0003, 0.0003, 1.016}; /* about what a core does */

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
    static const struct { double mb_s; bool coded; } t[] = {
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
    struct cost_codec free_codec = {0, 0, 0, 1};
    size_t n = 1 << 20;

    (void)state;
    assert_true(cost_coded_us(COST_ALL_REDUCE, 4, n, CODED_SLICE, &l, &free_codec) == (double)n / 2);
    assert_true(cost_coded_us(COST_REDUCE_SCATTER, 4, n, CODED_SLICE, &l, &free_codec) == (double)n / 4);
    assert_true(cost_coded_us(COST_ALL_GATHER, 4, n, CODED_SLICE, &l, &free_codec) == (double)n / 4);
    assert_true(cost_coded_us(COST_SEND, 4, n, CODED_SLICE, &l, &free_codec) == (double)n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_comes_from_the_shortest_and_the_two_longest),
        cmocka_unit_test(slow_links_are_worth_coding_for_and_fast_ones_are_not),
        cmocka_unit_test(short_messages_gain_nothing_from_slices),
        cmocka_unit_test(each_shape_moves_what_it_must),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
