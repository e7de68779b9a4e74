#include "tests/unit/test.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/philox.h"
#include "scheduler/cluster/rates.h"

static uint32_t draw(uint32_t *n, uint32_t below)
{
    uint32_t key[2] = {20260101, 7}, ctr[4] = {(*n)++, 0, 0, 0}, out[4];

    philox4x32(ctr, key, out);
    return out[0] % below;
}

/* The least slowest-device time over every way to lay the workers, by trying each possible time. */
static int64_t brute(const struct rates_est *parts, size_t n, int32_t workers)
{
    int64_t best = INT64_MAX;

    for (size_t k = 0; k < n; k++)
        for (int64_t a = 1; a <= workers && parts[k].devices > 0; a++) {
            int64_t f = a * parts[k].worker_ns, fit = 0;

            for (size_t i = 0; i < n; i++)
                fit += parts[i].devices * (f / parts[i].worker_ns);
            if (fit >= workers && f < best)
                best = f;
        }
    return best == INT64_MAX ? 0 : best;
}

static void the_binary_search_is_as_good_as_trying_all(void **state)
{
    uint32_t at = 0;

    (void)state;
    for (int run = 0; run < 5000; run++) {
        struct rates_est p[4];
        size_t n = 1 + draw(&at, 4);
        int32_t workers = 1 + (int32_t)draw(&at, 40);
        int64_t f, slowest = 0, total = 0;

        for (size_t k = 0; k < n; k++)
            p[k] = (struct rates_est){.devices = (int32_t)draw(&at, 6), .worker_ns = 1 + draw(&at, 50)};
        f = rates_map_workers(p, n, workers);
        if (f != brute(p, n, workers))
            fail_msg("seed 20260101 run %d: %lld, all tried gives %lld", run, (long long)f,
                     (long long)brute(p, n, workers));
        for (size_t k = 0; f > 0 && k < n; k++) {
            total += (int64_t)p[k].devices * p[k].each - p[k].fewer;
            if (p[k].devices > p[k].fewer && p[k].each * p[k].worker_ns > slowest)
                slowest = p[k].each * p[k].worker_ns;
            assert_true(p[k].fewer == 0 || p[k].each > 0);
        }
        if (f > 0) {
            assert_int_equal(total, workers); /* each worker lies somewhere, none twice */
            assert_true(slowest <= f);
        }
    }
}

/* What the devices can do less what they waste (EasyScale 2022) is the workers over the slowest one's time. */
static void throughput_is_workers_over_the_slowest_ones_time(void **state)
{
    uint32_t at = 0;

    (void)state;
    for (int run = 0; run < 2000; run++) {
        struct rates_est p[4];
        size_t n = 1 + draw(&at, 4);
        int32_t workers = 1 + (int32_t)draw(&at, 40), laid = 0;
        double slowest = 0, able = 0, waste = 0;

        for (size_t k = 0; k < n; k++)
            p[k] = (struct rates_est){.devices = 1 + (int32_t)draw(&at, 5), .worker_ns = 1 + draw(&at, 50)};
        assert_true(rates_map_workers(p, n, workers) > 0);
        for (size_t k = 0; k < n; k++)
            if (p[k].devices > p[k].fewer && (double)p[k].each * (double)p[k].worker_ns > slowest)
                slowest = (double)p[k].each * (double)p[k].worker_ns;
        for (size_t k = 0; k < n; k++) {
            able += p[k].devices / (double)p[k].worker_ns;
            waste += p[k].devices * (1 / (double)p[k].worker_ns - p[k].each / slowest);
            laid += p[k].devices * p[k].each;
        }
        waste += (laid - workers) / slowest;
        if (fabs(able - waste - workers / slowest) > 1e-9 * able)
            fail_msg("run %d: %g less %g is not %d over %g", run, able, waste, workers, slowest);
    }
}

static void counts_between_measured_ones_lie_between_their_rates(void **state)
{
    static struct rates_profile p = {.n = {3, 1},
                                     .points = {{{1, 1000000}, {4, 3200000}, {8, 5000000}}, {{2, 3000000}}}};
    bool modelled;

    (void)state;
    assert_int_equal(rates_at(&p, 0, 4, &modelled), 3200000);
    assert_false(modelled);
    assert_in_range(rates_at(&p, 0, 2, &modelled), 1800000, 2000000); /* t(2) = a + b/2 through 1 s and 0.3125 s */
    assert_true(modelled);
    assert_in_range(rates_at(&p, 0, 16, NULL), 5000000, 10000000);
    assert_int_equal(rates_at(&p, 1, 1, NULL), 1500000); /* one point: linear */
    assert_int_equal(rates_at(&p, 1, 4, NULL), 6000000);
    assert_int_equal(rates_at(&p, 2, 4, NULL), 0);
    for (int n = 1; n < 100; n++)
        assert_true(rates_at(&p, 0, n + 1, NULL) >= rates_at(&p, 0, n, NULL));
}

static void a_mix_is_worth_its_slowest_device_and_tells_what_idles(void **state)
{
    /* type 0 twice as fast as type 1; four workers: two on the fast one and one on each of the slow ones */
    static struct rates_profile p = {.n = {1, 1}, .points = {{{1, 2000000}}, {{1, 1000000}}}};
    double idle = 1;

    (void)state;
    assert_in_range(rates_mixed(&p, 0, 1, 1, 2, 4, &idle), 3999000, 4001000);
    assert_true(idle > -1e-6 && idle < 1e-6);
    assert_int_equal(rates_mixed(&p, 0, 1, 1, 1, 0, &idle), 0); /* no virtual workers, no mix */
    assert_int_equal(rates_mixed(&p, 0, 3, 1, 2, 4, &idle), 0); /* more devices than workers */
    assert_in_range(rates_mixed(&p, 0, 1, 1, 1, 2, &idle), 1999000, 2001000);
    assert_true(idle > 0.33 && idle < 0.34);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_binary_search_is_as_good_as_trying_all),
        cmocka_unit_test(throughput_is_workers_over_the_slowest_ones_time),
        cmocka_unit_test(counts_between_measured_ones_lie_between_their_rates),
        cmocka_unit_test(a_mix_is_worth_its_slowest_device_and_tells_what_idles),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
