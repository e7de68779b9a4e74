#include "tests/unit/test.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine/kernels/cpu/pool.h"

struct count {
    atomic_int *seen; /* a count an item */
    int threads;
    atomic_int bad; /* workers out of range */
    int owner[8];   /* items run by each worker: written by that worker alone */
};

static void count_item(void *arg, int item, int worker)
{
    struct count *c = arg;

    if (worker < 0 || worker >= c->threads) {
        atomic_fetch_add(&c->bad, 1);
        return;
    }
    c->owner[worker]++;
    atomic_fetch_add(&c->seen[item], 1);
}

static void each_item_runs_once_on_any_number_of_threads(void **state)
{
    static const int threads[] = {1, 2, 3, 8}, items[] = {0, 1, 2, 7, 1000};

    (void)state;
    for (size_t t = 0; t < COUNT(threads); t++) {
        struct pool *p;

        assert_int_equal(pool_new(threads[t], &p, NULL), 0);
        assert_int_equal(pool_threads(p), threads[t]);
        for (size_t i = 0; i < COUNT(items); i++) {
            for (int round = 0; round < 20; round++) {
                struct count c = {.seen = calloc(1001, sizeof(*c.seen)), .threads = threads[t]};
                int sum = 0;

                assert_non_null(c.seen);
                pool_run(p, items[i], count_item, &c);
                for (int k = 0; k < 1001; k++)
                    assert_int_equal(atomic_load(&c.seen[k]), k < items[i]);
                for (int k = 0; k < 8; k++)
                    sum += c.owner[k];
                assert_int_equal(sum, items[i]);
                assert_int_equal(atomic_load(&c.bad), 0);
                free(c.seen);
            }
        }
        pool_free(p);
    }
    pool_free(NULL);
}

static void what_items_wrote_is_seen_by_the_caller(void **state)
{
    struct count c = {.threads = 4};
    struct pool *p;

    (void)state;
    c.seen = calloc(64, sizeof(*c.seen));
    assert_non_null(c.seen);
    assert_int_equal(pool_new(4, &p, NULL), 0);
    for (int round = 1; round <= 500; round++) {
        int sum = 0;

        pool_run(p, 64, count_item, &c);
        for (int k = 0; k < 4; k++)
            sum += c.owner[k]; /* plain ints: the pool orders them */
        assert_int_equal(sum, 64 * round);
    }
    pool_free(p);
    free(c.seen);
}

static void a_pool_has_a_most_of_threads(void **state)
{
    struct pool *p;

    (void)state;
    assert_int_equal(pool_new(POOL_THREADS_MAX + 50, &p, NULL), 0);
    assert_int_equal(pool_threads(p), POOL_THREADS_MAX);
    pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_item_runs_once_on_any_number_of_threads),
        cmocka_unit_test(what_items_wrote_is_seen_by_the_caller),
        cmocka_unit_test(a_pool_has_a_most_of_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
