#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "worker/train/schedule.h"

static void every_schedule_is_whole_and_runs_on_channels_that_hold_nothing(void **state)
{
    static const enum schedule_kind kinds[] = {SCHEDULE_1F1B, SCHEDULE_GPIPE, SCHEDULE_FORWARD};

    (void)state;
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (int p = 1; p <= 8; p++)
            for (int m = 1; m <= 32; m++) {
                struct schedule *s;
                double span;

                assert_int_equal(schedule_new(kinds[k], p, m, &s, NULL), 0);
                assert_int_equal(schedule_check(s, NULL), 0);
                assert_int_equal(schedule_simulate(s, 1, 2, &span, NULL), 0);
                /* the makespan of the literature: 3(M + P - 1), forward alone M + P - 1 */
                assert_true(span == (kinds[k] == SCHEDULE_FORWARD ? 1 : 3) * (m + p - 1));
                schedule_free(s);
            }
}

static void memory_is_what_the_schedule_promises(void **state)
{
    (void)state;
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= 32; m++) {
            struct schedule *s;

            assert_int_equal(schedule_new(SCHEDULE_1F1B, p, m, &s, NULL), 0);
            for (int r = 0; r < p; r++) {
                int most = schedule_slots(s, r), depth = p - r < m ? p - r : m;

                assert_true(most >= depth);
                assert_true(most <= depth + 1); /* one may be arriving */
            }
            schedule_free(s);
            assert_int_equal(schedule_new(SCHEDULE_GPIPE, p, m, &s, NULL), 0);
            assert_int_equal(schedule_slots(s, 0), m);
            schedule_free(s);
        }
}

static void a_worked_example_prints_as_expected(void **state)
{
    struct schedule *s;
    struct buf b;

    (void)state;
    assert_int_equal(schedule_new(SCHEDULE_1F1B, 2, 3, &s, NULL), 0);
    buf_init(&b, 4096);
    schedule_print(s, &b);
    assert_string_equal(buf_text(&b),
                        "r0: 0F0 0SF0 0F1 0SF1 0RB0 0B0 0F2 0SF2 0RB1 0B1 0RB2 0B2\n"
                        "r1: 1RF0 1F0 1RF1 1B0 1SB0 1F1 1RF2 1B1 1SB1 1F2 1B2 1SB2\n");
    buf_clear(&b);
    schedule_free(s);
}

static void broken_lists_are_found(void **state)
{
    static const struct { int rank, action, code; enum act_op op; int micro; } t[] = {
        {1, 1, -EPROTO, ACT_B, 0},   /* backward before forward */
        {0, 0, -EPROTO, ACT_F, 1},   /* out of order */
        {0, 0, -EPROTO, ACT_F, 99},  /* no such micro-batch */
        {1, 0, -EDEADLK, ACT_RF, 1}, /* waits for a message nobody sends next */
        {0, 1, -EDEADLK, ACT_SB, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        struct schedule *s;
        struct action *a;
        double span;
        int code;

        assert_int_equal(schedule_new(SCHEDULE_1F1B, 2, 3, &s, NULL), 0);
        a = &s->rank[t[i].rank].v[t[i].action];
        a->op = (uint8_t)t[i].op;
        a->micro = t[i].micro;
        code = schedule_check(s, NULL);
        if (code == 0)
            code = schedule_simulate(s, 1, 2, &span, NULL);
        assert_int_equal(code, t[i].code);
        schedule_free(s);
    }
}

static void sizes_out_of_range_are_refused(void **state)
{
    static const int t[][2] = {{0, 1}, {1, 0}, {-1, 4}, {SCHEDULE_STAGES_MAX + 1, 1}, {1, SCHEDULE_MICROS_MAX + 1}};
    struct schedule *s = NULL;

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++)
        assert_int_equal(schedule_new(SCHEDULE_1F1B, t[i][0], t[i][1], &s, NULL), -EINVAL);
    assert_null(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_is_whole_and_runs_on_channels_that_hold_nothing),
        cmocka_unit_test(memory_is_what_the_schedule_promises),
        cmocka_unit_test(a_worked_example_prints_as_expected),
        cmocka_unit_test(broken_lists_are_found),
        cmocka_unit_test(sizes_out_of_range_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
