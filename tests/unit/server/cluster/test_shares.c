#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "server/cluster/shares.h"

#define N 4

static void workers_lie_by_speed(void **state)
{
    static const struct {
        double ms[N];
        int workers, want[N]; /* want[0] 0: evenly */
    } table[] = {
        {{10, 10, 20, 20}, 12, {4, 4, 2, 2}},  {{20, 10, 20, 10}, 12, {2, 4, 2, 4}},
        {{10, 10, 10, 30}, 10, {3, 3, 3, 1}},  {{10, 10.2, 20, 20.3}, 12, {4, 4, 2, 2}}, /* noise makes no class */
        {{10, 10, 10, 10}, 12, {0}},           {{10, 10, 0, 20}, 12, {0}},               /* not measured */
        {{10, 10, -1, 20}, 12, {0}},           {{1, 1, 1, 1000}, 8, {2, 2, 3, 1}}, /* each has one, however slow */
        {{10, 34, 34, 1000}, 5, {2, 1, 1, 1}},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        int got[N] = {0};
        bool laid = shares_divide(table[i].ms, N, table[i].workers, got);

        if (laid != (table[i].want[0] > 0) || memcmp(got, table[i].want, sizeof(got)) != 0)
            fail_msg("row %zu: %d, %d %d %d %d", i, laid, got[0], got[1], got[2], got[3]);
    }
}

static void every_worker_has_a_place_whatever_the_times(void **state)
{
    unsigned seed = 1;

    (void)state;
    for (int i = 0; i < 2000; i++) {
        double ms[N];
        int got[N], workers = N + rand_r(&seed) % 60, sum = 0;

        for (int k = 0; k < N; k++)
            ms[k] = 1 + rand_r(&seed) % 5 * 3;
        if (!shares_divide(ms, N, workers, got))
            continue;
        for (int k = 0; k < N; k++) {
            assert_true(got[k] >= 1);
            sum += got[k];
        }
        if (sum != workers)
            fail_msg("round %d from seed 1: %d of %d workers are laid", i, sum, workers);
    }
}

/* Eight steps in a row must say so, whatever the others said. */
static void work_is_laid_anew_when_it_has_been_off_for_a_while(void **state)
{
    struct shares_watch w = {.generation = 0};

    (void)state;
    shares_begin(&w, 1, 7, 1);
    for (int step = 0; step < 100; step++) {
        shares_watch(&w, step % 8 == 7 ? 1.09 : 5);
        assert_false(shares_are_off(&w, 1));
    }
    for (int step = 0; step < 3; step++) /* four were before: three and four make seven */
        shares_watch(&w, 1.11);
    assert_false(shares_are_off(&w, 1));
    shares_watch(&w, 1.11);
    assert_true(shares_are_off(&w, 1));
    assert_false(shares_are_off(&w, 2));
}

/* How many steps that are off by so much it takes; 0: more than fifty. */
static int steps_until_off(struct shares_watch *w, double times)
{
    for (int step = 1; step <= 50; step++) {
        shares_watch(w, times);
        if (shares_are_off(w, w->generation))
            return step;
    }
    return 0;
}

static void each_time_that_the_same_devices_are_laid_anew_must_be_worth_more(void **state)
{
    struct shares_watch w = {.generation = 0};

    (void)state;
    shares_begin(&w, 1, 7, 1);
    assert_int_equal(steps_until_off(&w, 1.15), 8);
    shares_begin(&w, 2, 7, 2); /* laid anew */
    assert_int_equal(steps_until_off(&w, 1.15), 0);
    assert_int_equal(steps_until_off(&w, 1.22), 8);
    shares_begin(&w, 3, 7, 2); /* restarted as it was */
    assert_int_equal(steps_until_off(&w, 1.22), 8);
    shares_begin(&w, 4, 7, 3);
    assert_int_equal(steps_until_off(&w, 1.22), 0);
    shares_begin(&w, 5, 8, 3); /* on others all begins anew */
    assert_int_equal(steps_until_off(&w, 1.15), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_lie_by_speed),
        cmocka_unit_test(every_worker_has_a_place_whatever_the_times),
        cmocka_unit_test(work_is_laid_anew_when_it_has_been_off_for_a_while),
        cmocka_unit_test(each_time_that_the_same_devices_are_laid_anew_must_be_worth_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
