/* Medians, and values sorted side by side: held to sorting them one by one. */
#include "scheduler/diagnose/lag_priv.h"
#include "tests/unit/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static uint32_t draw(uint32_t *chance)
{
    return *chance = *chance * 1664525 + 1013904223;
}

static void a_median_is_the_one_of_the_sorted_values(void **state)
{
    static const size_t count[] = {1, 2, 3, 10, 31, 32, 47, 48, 49, 50, 512, 513, 1500};
    static float v[1500], sorted[1500];
    uint32_t chance = 1;

    (void)state;
    for (size_t c = 0; c < COUNT(count); c++)
        for (int shape = 0; shape < 6; shape++) {
            size_t n = count[c];
            float want, got;

            for (size_t i = 0; i < n; i++) {
                float u = (float)(draw(&chance) >> 8) / (float)(1 << 24);

                v[i] = shape == 0   ? u
                       : shape == 1 ? 1 + u / 50                     /* close together */
                       : shape == 2 ? (float)(int)(3 * u)            /* few values, many times each */
                       : shape == 3 ? (i % 9 ? 1 : 1e30f * u)        /* a few far off */
                       : shape == 4 ? (u - 0.5f) * expf(60 * u - 30) /* of both signs, of all sizes */
                                    : (i % 2 ? -1.0f : 1.0f);        /* the two middle ones differ */
            }
            memcpy(sorted, v, n * sizeof(*v));
            qsort(sorted, n, sizeof(*sorted), by_size);
            want = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
            got = lag_median(v, n);
            if (got != want)
                fail_msg("of %zu values of shape %d: %g, not %g", n, shape, (double)got, (double)want);
            assert_true(lag_median_few(v, n) == want);
        }
    assert_true(lag_median(v, 0) == 0);
}

/* What sorts all orders of zeros and ones sorts everything; more than ten are drawn. */
static void lanes_are_sorted_each_by_itself(void **state)
{
    static float v[64][LAG_LANES];
    uint32_t chance = 7;

    (void)state;
    for (int n = 2; n <= 64; n = n < 11 ? n + 1 : n * 2 - 3)
        for (uint32_t from = 0; from < (n <= 10 ? 1U << n : 1024U); from += LAG_LANES) {
            int ones[LAG_LANES] = {0};

            for (uint32_t k = 0; k < LAG_LANES; k++)
                for (int i = 0; i < n; i++) {
                    bool one = n <= 10 ? (from + k) >> i & 1 : draw(&chance) >> 16 & 1;

                    v[i][k] = one;
                    ones[k] += one;
                }
            lag_sort_lanes(v, n);
            for (int k = 0; k < LAG_LANES; k++)
                for (int i = 0; i < n; i++)
                    assert_true(v[i][k] == (i >= n - ones[k]));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_median_is_the_one_of_the_sorted_values),
        cmocka_unit_test(lanes_are_sorted_each_by_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
