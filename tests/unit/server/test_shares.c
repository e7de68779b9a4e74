#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "server/shares.h"

#define N 4

static void workers_lie_by_speed(void **state)
{
    static const struct {
        double ms[N];
        int workers, want[N]; /* want[0] 0: evenly */
    } table[] = {
        { { 10, 10, 20, 20 }, 12, { 4, 4, 2, 2 } },
        { { 20, 10, 20, 10 }, 12, { 2, 4, 2, 4 } },
        { { 10, 10, 10, 30 }, 10, { 3, 3, 3, 1 } },
        { { 10, 10.2, 20, 20.3 }, 12, { 4, 4, 2, 2 } }, /* noise makes no class */
        { { 10, 10, 10, 10 }, 12, { 0 } },
        { { 10, 10, 0, 20 }, 12, { 0 } },   /* not measured */
        { { 10, 10, -1, 20 }, 12, { 0 } },
        { { 1, 1, 1, 1000 }, 8, { 0 } },    /* the slow one would have none */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        int got[N] = { 0 };
        bool laid = shares_lay(table[i].ms, N, table[i].workers, got);

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
        if (!shares_lay(ms, N, workers, got))
            continue;
        for (int k = 0; k < N; k++) {
            assert_true(got[k] >= 1);
            sum += got[k];
        }
        if (sum != workers)
            fail_msg("round %d from seed 1: %d of %d workers are laid", i, sum, workers);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_lie_by_speed),
        cmocka_unit_test(every_worker_has_a_place_whatever_the_times),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
