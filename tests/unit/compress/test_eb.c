#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "compress/eb.h"
#include "tests/unit/compress/data.h"

#define N 200000
#define GUARD 0x5A

static float x[N], y[N + 8];
static uint8_t block[5 * N], damaged[5 * N];
static struct eb *e;

static double worst(size_t n)
{
    double most = 0;

    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)x[i] - (double)y[i]));
    return most;
}

static size_t round_trip(enum eb_mode mode, float bound, size_t n)
{
    struct merr err;
    size_t len;

    assert_int_equal(eb_encode(e, mode, bound, x, n, block, &len, &err), 0);
    assert_true(len <= eb_size_max(n));
    memset(y, GUARD, sizeof(y));
    assert_int_equal(eb_decode(e, block, len, y, n, &err), 0);
    for (size_t i = 0; i < 32; i++)
        assert_int_equal(((uint8_t *)(y + n))[i], GUARD);
    return len;
}

static void bits_and_errors_are_the_known_ones(void **state)
{
    static const struct {
        enum data_kind kind;
        float bound;
        double db, limit, fixed; /* bits a value: the entropy's, and mode 0's */
    } rows[] = {
        {DATA_NORMAL, 0.1f, 24.8, 4.37, 5.30},  {DATA_T3, 0.1f, 0, 4.88, 6.34},
        {DATA_NORMAL, 0.05f, 30.8, 5.37, 6.29}, {DATA_T3, 0.05f, 0, 5.88, 7.32},
        {DATA_NORMAL, 0.01f, 44.8, 7.69, 8.55}, {DATA_T3, 0.01f, 0, 8.20, 9.63},
        {DATA_NORMAL, 1e-3f, 64.8, 11.0, 12.0}, {DATA_T3, 1e-3f, 0, 11.5, 12.9},
    };

    (void)state;
    for (size_t r = 0; r < COUNT(rows); r++) {
        double fixed, best;
        float bound = rows[r].bound;

        for (size_t i = 0; i < N; i++)
            x[i] = data_value(rows[r].kind, 1, i);
        fixed = 8.0 * (double)round_trip(EB_FIXED, bound, N) / N;
        assert_true(worst(N) <= (double)bound && worst(N) > 0.999 * (double)bound);
        assert_true(fabs(fixed - rows[r].fixed) < 0.12);
        if (rows[r].db > 0)
            assert_true(fabs(data_db(data_nmse(x, y, N)) - rows[r].db) < 0.1);
        best = 8.0 * (double)round_trip(EB_BEST, bound, N) / N;
        assert_true(worst(N) <= (double)bound && best <= fixed && best > rows[r].limit - 0.05);
        print_message("# %s, bound %g: %.2f bits fixed, %.2f at best, limit %.2f\n", data_names[rows[r].kind],
                      (double)bound, fixed, best, rows[r].limit);
        if (bound > 0.04f) /* symbols reach 126 steps: beyond, the fixed layout is the better one */
            assert_true(best < rows[r].limit + (rows[r].kind == DATA_T3 ? 0.4 : 0.1));
    }
}

static void any_floats_come_back_within_the_bound_or_as_they_were(void **state)
{
    static const size_t lens[] = {0, 1, 31, 32, 33, 65535, 65536, 65537, N};
    static const float bounds[] = {1e-30f, 1e-3f, 1, 1e30f};
    uint32_t chance = 777;

    (void)state;
    print_message("# seed %u\n", chance);
    for (size_t k = 0; k < COUNT(lens) * COUNT(bounds) * 2; k++) {
        size_t n = lens[k % COUNT(lens)];
        float bound = bounds[k / COUNT(lens) % COUNT(bounds)];

        for (size_t i = 0; i < n; i++) {
            chance = chance * 1664525u + 1013904223u;
            x[i] = data_value(DATA_NORMAL, chance, i) * (chance >> 28 ? 1 : 1e10f);
            if (chance >> 20 == 5)
                memcpy(&x[i], &chance, 4);
            if (chance >> 20 == 6)
                x[i] = chance & 256 ? NAN : INFINITY;
        }
        (void)round_trip(k % 2 ? EB_FIXED : EB_BEST, bound, n);
        for (size_t i = 0; i < n; i++)
            if (!(fabs((double)x[i] - (double)y[i]) <= (double)bound))
                assert_memory_equal(&x[i], &y[i], 4);
    }
    memset(x, 0, sizeof(x));
    assert_true(round_trip(EB_FIXED, 1, N) < N / 32 + 100);
}

static void bounds_and_damage_are_refused(void **state)
{
    static const float wrong[] = {0, -1, NAN, INFINITY, 1e-45f, 3e38f};
    struct merr err;
    size_t len = 0;
    uint32_t chance = 99;

    (void)state;
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_int_equal(eb_encode(e, EB_BEST, wrong[i], x, 5, block, &len, &err), -EINVAL);
    assert_int_equal(len, 0);
    for (size_t i = 0; i < N; i++)
        x[i] = data_value(DATA_T3, 1, i);
    for (int mode = EB_FIXED; mode <= EB_BEST; mode++) {
        assert_int_equal(eb_encode(e, (enum eb_mode)mode, 0.05f, x, 9000, block, &len, &err), 0);
        assert_int_equal(eb_decode(e, block, len - 1, y, 9000, &err), -EBADMSG);
        assert_int_equal(eb_decode(e, block, len + 1, y, 9000, &err), -EBADMSG);
        assert_int_equal(eb_decode(e, block, len, y, 8999, &err), -EBADMSG);
        assert_int_equal(eb_decode(e, block, 7, y, 9000, &err), -EBADMSG);
        for (size_t i = 0; i < 16; i++) {
            memcpy(damaged, block, len);
            damaged[i] ^= 0x40;
            assert_int_equal(eb_decode(e, damaged, len, y, 9000, &err), -EBADMSG);
        }
        for (int i = 0; i < 300; i++) { /* values may be others then, but nothing beyond them is touched */
            chance = chance * 1664525u + 1013904223u;
            memcpy(damaged, block, len);
            damaged[24 + (chance >> 8) % (len - 24)] ^= (uint8_t)(1u << (chance & 7));
            (void)eb_decode(e, damaged, len, y, 9000, &err);
        }
    }
}

static void bounds_fall_from_their_double_in_the_first_tenth(void **state)
{
    (void)state;
    assert_true(fabsf(eb_bound_at(EB_LOW, 2, 0, 1000) - 0.2f) < 1e-6f);
    assert_true(fabsf(eb_bound_at(EB_LOW, 2, 50, 1000) - 0.15f) < 1e-6f);
    assert_true(fabsf(eb_bound_at(EB_LOW, 2, 100, 1000) - 0.1f) < 1e-6f);
    assert_true(fabsf(eb_bound_at(EB_MEDIUM, 1, 999, 1000) - 0.03f) < 1e-6f);
    assert_true(fabsf(eb_bound_at(EB_HIGH, 1, 0, 0) - 0.01f) < 1e-6f);
}

static int make(void **state)
{
    (void)state;
    e = eb_new();
    return e ? 0 : -1;
}

static int drop(void **state)
{
    (void)state;
    eb_free(e);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_and_errors_are_the_known_ones),
        cmocka_unit_test(any_floats_come_back_within_the_bound_or_as_they_were),
        cmocka_unit_test(bounds_and_damage_are_refused),
        cmocka_unit_test(bounds_fall_from_their_double_in_the_first_tenth),
    };

    return cmocka_run_group_tests(tests, make, drop);
}
