#include "tests/unit/test.h"

#include <math.h>
#include <string.h>

#include "worker/engine/train/sample.h"

static void without_temperature_the_likeliest_wins(void **state)
{
    static const struct {
        float z[4];
        int want;
    } t[] = {
        {{0, 3, 1, 2}, 1},
        {{5, 5, 1, 2}, 0},
        {{-9, -8, -7, -7.5f}, 2},
        {{0, 0, 0, 0}, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        float z[4];

        memcpy(z, t[i].z, sizeof(z));
        assert_int_equal(sample_pick(z, 4, 0, 0, 1, 0.999), t[i].want);
    }
}

static void shares_are_those_of_the_softmax(void **state)
{
    int count[3] = {0};

    (void)state;
    for (int i = 0; i < 8000; i++) {
        float z[3] = {0, logf(2), logf(5)};

        count[sample_pick(z, 3, 1, 0, 1, (i + 0.5) / 8000)]++;
    }
    assert_int_equal(count[0], 1000);
    assert_int_equal(count[1], 2000);
    assert_int_equal(count[2], 5000);
}

static void only_the_top_k_are_drawn(void **state)
{
    (void)state;
    for (int k = 1; k <= 6; k++) {
        int seen[6] = {0}, n = 0;

        for (int i = 0; i < 1000; i++) {
            float z[6] = {1, 5, 3, 5, 2, 4};

            seen[sample_pick(z, 6, 3, k, 1, (i + 0.5) / 1000)]++;
        }
        for (int i = 0; i < 6; i++)
            n += seen[i] > 0;
        assert_int_equal(n, k == 1 ? 2 : k); /* two share the first place */
        assert_true(seen[1] > 0 && seen[3] > 0);
    }
}

/* Shares 5, 2, 2, 1 of 10: the fewest likeliest that make up p, equals together. */
static void only_the_top_p_are_drawn(void **state)
{
    static const struct {
        double p;
        int top_k, n;
    } t[] = {
        {0.01, 0, 1},   {0.49, 0, 1}, {0.51, 0, 3}, {0.7, 0, 3}, {0.89, 0, 3}, {0.91, 0, 4},
        {0.9999, 0, 4}, {1, 0, 4},    {0.5, 3, 1},  {0.6, 3, 3}, {0.99, 3, 3}, {0.99, 1, 1},
    };

    (void)state;
    for (size_t k = 0; k < COUNT(t); k++) {
        int seen[4] = {0}, n = 0;

        for (int i = 0; i < 1000; i++) {
            float z[4] = {logf(2), 0, logf(5), logf(2)};

            seen[sample_pick(z, 4, 1, t[k].top_k, t[k].p, (i + 0.5) / 1000)]++;
        }
        for (int i = 0; i < 4; i++)
            n += seen[i] > 0;
        assert_int_equal(n, t[k].n);
        assert_true(seen[2] > 0);
    }
}

static void the_ends_of_the_unit_interval_give_a_token(void **state)
{
    float a[3] = {-1e30f, 0, -1e30f}, b[3] = {-1e30f, 0, -1e30f}, c[3] = {-1e30f, 0, -1e30f};

    (void)state;
    assert_int_equal(sample_pick(a, 3, 1, 0, 1, 0), 1);
    assert_int_equal(sample_pick(b, 3, 1, 2, 1, 1 - 0x1p-24), 1);
    assert_int_equal(sample_pick(c, 3, 1, 0, 0.5, 1 - 0x1p-24), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_temperature_the_likeliest_wins),
        cmocka_unit_test(shares_are_those_of_the_softmax),
        cmocka_unit_test(only_the_top_k_are_drawn),
        cmocka_unit_test(only_the_top_p_are_drawn),
        cmocka_unit_test(the_ends_of_the_unit_interval_give_a_token),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
