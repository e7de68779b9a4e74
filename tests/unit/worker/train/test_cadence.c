#include "tests/unit/test.h"

#include <math.h>
#include <stdbool.h>

#include "worker/engine/train/cadence.h"

static struct cadence measured(double cost_s, double commit_s, double mtbf_s)
{
    struct cadence c;

    cadence_init(&c, mtbf_s, 0);
    cadence_step(&c, 1, false);
    cadence_begun(&c, 0);
    cadence_step(&c, 1 + cost_s, true);
    cadence_committed(&c, commit_s);
    return c;
}

/* Daly 2006 gives these optima, in minutes, for checkpoints of five minutes. */
static void intervals_are_those_that_daly_published(void **state)
{
    static const struct {
        double mtbf_min, minutes;
    } known[] = {{24 * 60, 117}, {6 * 60, 57}, {15, 9.1}, {2, 2}};

    (void)state;
    for (size_t i = 0; i < COUNT(known); i++) {
        struct cadence c = measured(300, 1, known[i].mtbf_min * 60);

        if (fabs(cadence_interval_s(&c) / 60 - known[i].minutes) > known[i].minutes * 0.01)
            fail_msg("%g minutes between failures: an interval of %g", known[i].mtbf_min, cadence_interval_s(&c) / 60);
    }
}

static void no_more_are_begun_than_can_be_under_way(void **state)
{
    struct cadence c = measured(0, 50, 3600);

    (void)state;
    assert_true(cadence_interval_s(&c) == 25);
    c = measured(-1, 0, 3600); /* steps that were quicker by chance cost nothing, which is not less than it */
    assert_true(cadence_interval_s(&c) > 2 && cadence_interval_s(&c) < 3);
}

static void one_is_due_once_the_interval_has_passed(void **state)
{
    struct cadence c;

    (void)state;
    cadence_init(&c, 3600, 1000000);
    assert_false(cadence_due(&c, 1000000 + (int64_t)(CADENCE_FIRST_S * 1e6) - 1));
    assert_true(cadence_due(&c, 1000000 + (int64_t)(CADENCE_FIRST_S * 1e6)));
    cadence_begun(&c, 30000000);
    assert_false(cadence_due(&c, 31000000));
    cadence_init(&c, 2, 0); /* a job that fails all the time cannot wait for the first measurement */
    assert_true(cadence_due(&c, 2000000));
}

static void dearer_checkpoints_come_more_seldom(void **state)
{
    double last = 0;

    (void)state;
    for (double cost = 0.01; cost < 100; cost *= 2) {
        struct cadence c = measured(cost, 0.001, 24 * 3600);

        assert_true(cadence_interval_s(&c) > last);
        last = cadence_interval_s(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(intervals_are_those_that_daly_published),
        cmocka_unit_test(no_more_are_begun_than_can_be_under_way),
        cmocka_unit_test(one_is_due_once_the_interval_has_passed),
        cmocka_unit_test(dearer_checkpoints_come_more_seldom),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
