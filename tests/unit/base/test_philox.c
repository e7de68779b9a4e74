#include "tests/unit/test.h"

#include <math.h>
#include <stdlib.h>

#include "base/philox.h"

static void the_known_answer_comes_out(void **state)
{
    const uint32_t zero[4] = {0}, key[2] = {0};
    uint32_t out[4];

    (void)state;
    philox4x32(zero, key, out);
    assert_int_equal(out[0], 0x6627e8d5u);
    assert_int_equal(out[1], 0xe169c58du);
    assert_int_equal(out[2], 0xbc57ac4cu);
    assert_int_equal(out[3], 0x9b00dbd8u);
}

static void permute_hits_each_position_once(void **state)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 255, 256, 257, 1000, 4097};

    (void)state;
    for (size_t s = 0; s < COUNT(sizes); s++) {
        uint64_t n = sizes[s];
        char *seen = calloc(n, 1);
        uint32_t key[2];

        assert_non_null(seen);
        philox_key(7, 1, (uint32_t)s, 0, key);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t p = philox_permute(i, n, key);

            assert_true(p < n);
            assert_false(seen[p]);
            seen[p] = 1;
        }
        free(seen);
    }
}

static void permutations_of_two_keys_differ(void **state)
{
    const uint32_t a[2] = {1, 2}, b[2] = {1, 3};
    int same = 0;

    (void)state;
    for (uint64_t i = 0; i < 1000; i++)
        same += philox_permute(i, 1000, a) == philox_permute(i, 1000, b);
    assert_true(same < 20);
}

static void normal_deviates_have_the_moments_of_the_normal(void **state)
{
    enum { N = 100000 };
    const uint32_t key[2] = {11, 12};
    double sum = 0, squares = 0;

    (void)state;
    for (uint32_t i = 0; i < N / 2; i++) {
        const uint32_t ctr[4] = {i, 0, 0, 0};
        uint32_t w[4];
        float z[2];

        philox4x32(ctr, key, w);
        philox_normal2(w[0], w[1], z);
        sum += (double)z[0] + z[1];
        squares += (double)z[0] * z[0] + (double)z[1] * z[1];
    }
    assert_true(fabs(sum / N) < 4 / sqrt(N));
    assert_true(fabs(squares / N - 1) < 4 * sqrt(2.0 / N));
}

static void normal_deviates_are_those_of_a_logarithm_and_a_turn(void **state)
{
    static const uint32_t edge[] = {0,          1,          0x1FFFFFFF, 0x20000000, 0x3FFFFFFF, 0x40000000,
                                    0x5FFFFFFF, 0x60000000, 0x7FFFFFFF, 0x80000000, 0xB504F333, 0xB504F334,
                                    0xBFFFFFFF, 0xC0000000, 0xE0000000, 0xFFFFFFFE, 0xFFFFFFFF};

    (void)state;
    for (size_t i = 0; i < COUNT(edge); i++) {
        for (size_t k = 0; k < COUNT(edge); k++) {
            double u = ((double)edge[i] + 0.5) * 0x1p-32, v = ((double)edge[k] + 0.5) * 0x1p-32;
            double r = sqrt(-2 * log(u)), c = r * cos(2 * M_PI * v), s = r * sin(2 * M_PI * v);
            float z[2];

            philox_normal2(edge[i], edge[k], z);
            assert_true(fabs((double)z[0] - c) <= 6e-8 * fabs(c) + 1e-12);
            assert_true(fabs((double)z[1] - s) <= 6e-8 * fabs(s) + 1e-12);
        }
    }
}

static void eight_deviates_are_the_pairs_of_two_counters(void **state)
{
    const uint32_t key[2] = {5, 6};

    (void)state;
    for (uint64_t index = 0xFFFFFFF0; index < 0x100000010; index++) {
        float z[8], pair[2];

        philox_normal8(key, index, z);
        for (int i = 0; i < 4; i++) {
            uint64_t n = index + (uint64_t)(i / 2);
            const uint32_t ctr[4] = {(uint32_t)n, (uint32_t)(n >> 32), 0, 0};
            uint32_t w[4];

            philox4x32(ctr, key, w);
            philox_normal2(w[i % 2 * 2], w[i % 2 * 2 + 1], pair);
            assert_memory_equal(pair, z + 2 * i, sizeof(pair));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_known_answer_comes_out),
        cmocka_unit_test(permute_hits_each_position_once),
        cmocka_unit_test(permutations_of_two_keys_differ),
        cmocka_unit_test(normal_deviates_have_the_moments_of_the_normal),
        cmocka_unit_test(normal_deviates_are_those_of_a_logarithm_and_a_turn),
        cmocka_unit_test(eight_deviates_are_the_pairs_of_two_counters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
