#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "compress/optq.h"
#include "tests/unit/compress/data.h"

#define N 200000
#define GUARD 0x5A

static float m[N], v[N], got_m[N + 8], got_v[N + 8];
static uint8_t block[13 * N], damaged[13 * N];
static struct optq *o;

/* Moments as AdamW has them: v over some octaves, m / sqrt(v) of standard deviation sqrt((1 - 0.9) / (1 + 0.9)). */
static void fill(size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float size = 1e-4f * exp2f(1.55f * data_value(DATA_NORMAL, 1, i));

        v[i] = size * size;
        m[i] = 0.2294f * size * data_value(DATA_NORMAL, 2, i);
    }
}

static size_t round_trip(float rho, float eb, size_t n)
{
    const struct optq_bounds bounds = {.rho = rho, .eb = eb};
    struct merr err;
    size_t len;

    assert_int_equal(optq_encode(o, &bounds, m, v, n, block, &len, &err), 0);
    assert_true(len <= optq_size_max(n));
    memset(got_m, GUARD, sizeof(got_m));
    memset(got_v, GUARD, sizeof(got_v));
    assert_int_equal(optq_decode(o, block, len, got_m, got_v, n, &err), 0);
    for (size_t i = 0; i < 32; i++) {
        assert_int_equal(((uint8_t *)(got_m + n))[i], GUARD);
        assert_int_equal(((uint8_t *)(got_v + n))[i], GUARD);
    }
    return len;
}

static double update(float first, float second)
{
    return (double)first / sqrt((double)second);
}

static void bits_and_errors_of_the_update_are_the_known_ones(void **state)
{
    static const struct {
        float rho, eb;
        double bits, nmse; /* published of a small model; 0: not */
    } rows[] = {{0.01f, 0x1p-7f, 14.6, 4.5e-4}, {0.05f, 0x1p-7f, 12.4, 0}, {0.1f, 0x1p-5f, 9.4, 7e-3}};

    (void)state;
    fill(N);
    for (size_t r = 0; r < COUNT(rows); r++) {
        double bits = 8.0 * (double)round_trip(rows[r].rho, rows[r].eb, N) / N, error = 0, energy = 0;

        for (size_t i = 0; i < N; i++) {
            double u = update(m[i], v[i]), off = u - update(got_m[i], got_v[i]);

            error += off * off;
            energy += u * u;
        }
        print_message("# rho %g, eb %g: %.2f bits for both, published %.1f; error of updates %.1e\n",
                      (double)rows[r].rho, (double)rows[r].eb, bits, rows[r].bits, error / energy);
        assert_true(fabs(bits - rows[r].bits) < 0.35);
        assert_true(rows[r].nmse == 0 || (error / energy > 0.7 * rows[r].nmse && error / energy < 1.2 * rows[r].nmse));
    }
}

/* Exact where the bounds do not hold, or for both moments as near as they say. */
static void check_bounds_at(float rho, float eb, size_t i)
{
    if (!(v[i] > 0 && isfinite(v[i]) && isfinite(m[i]))) {
        if (v[i] == 0)
            assert_true(got_v[i] == 0);
        else if (!(v[i] > 0 && isfinite(v[i])) || isnan(m[i]))
            assert_memory_equal(&got_v[i], &v[i], 4);
        if (m[i] != 0)
            assert_memory_equal(&got_m[i], &m[i], 4);
        return;
    }
    assert_true(fabs((double)got_v[i] - (double)v[i]) <= (double)rho * (double)v[i]);
    assert_true(fabs(update(got_m[i], got_v[i]) - update(m[i], v[i])) <= (double)eb * (1 + 0x1p-20));
}

static void any_moments_keep_their_bounds_or_their_bits(void **state)
{
    static const size_t lens[] = {0, 1, 2, 1023, 65535, 65536, 65537, N};
    static const struct optq_bounds bounds[] = {{0.001f, 0x1p-20f}, {0.01f, 0x1p-7f}, {0.5f, 1}};
    uint32_t chance = 4711;

    (void)state;
    print_message("# seed %u\n", chance);
    for (size_t k = 0; k < COUNT(lens) * COUNT(bounds); k++) {
        const struct optq_bounds *b = &bounds[k / COUNT(lens)];
        size_t n = lens[k % COUNT(lens)];

        fill(n);
        for (size_t i = 0; i < n; i++) {
            chance = chance * 1664525u + 1013904223u;
            if (chance >> 20 < 8)
                v[i] = chance >> 20 < 4 ? 0 : 1e-40f;
            if (chance >> 21 == 4)
                memcpy(&v[i], &chance, 4);
            if (chance >> 21 == 5)
                memcpy(&m[i], &chance, 4);
            if (chance >> 21 == 6)
                m[i] = chance & 256 ? NAN : INFINITY;
        }
        (void)round_trip(b->rho, b->eb, n);
        for (size_t i = 0; i < n; i++)
            check_bounds_at(b->rho, b->eb, i);
    }
}

static void simple_moments_are_known_numbers(void **state)
{
    (void)state;
    v[0] = 1, m[0] = 0.5f;
    v[1] = 1, m[1] = -0.5f;
    v[2] = 0, m[2] = 0;
    v[3] = 0, m[3] = 0.1f;
    v[4] = 1.0201f, m[4] = 0;
    (void)round_trip(0.01f, 0x1p-7f, 5);
    assert_true(got_v[0] == 1 && got_m[0] == 0.5f && got_m[1] == -0.5f);
    assert_true(got_v[2] == 0 && got_m[2] == 0 && got_v[3] == 0 && got_m[3] == 0.1f);
    assert_true(fabsf(got_v[4] - 1.0201f) < 1e-6f && got_m[4] == 0);
}

static void moments_never_updated_cost_next_to_nothing(void **state)
{
    (void)state;
    memset(m, 0, sizeof(m));
    memset(v, 0, sizeof(v));
    assert_true(round_trip(0.01f, 0x1p-7f, N) < 400);
}

static void moments_coded_twice_are_those_coded_once(void **state)
{
    (void)state;
    fill(N);
    (void)round_trip(0.01f, 0x1p-7f, N);
    memcpy(m, got_m, sizeof(m));
    memcpy(v, got_v, sizeof(v));
    (void)round_trip(0.01f, 0x1p-7f, N);
    assert_memory_equal(v, got_v, sizeof(v));
    assert_memory_equal(m, got_m, sizeof(m));
}

static void bounds_and_damage_are_refused(void **state)
{
    static const struct optq_bounds wrong[] = {
        {0, 0.01f}, {NAN, 0.01f}, {1, 0.01f}, {1e-4f, 0.01f}, {0.01f, 0}, {0.01f, NAN}, {0.01f, 2}, {0.01f, 1e-7f},
    };
    const struct optq_bounds usual = {0.01f, 0x1p-7f};
    struct merr err;
    size_t len = 0;
    uint32_t chance = 99;

    (void)state;
    fill(9000);
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_int_equal(optq_encode(o, &wrong[i], m, v, 5, block, &len, &err), -EINVAL);
    assert_int_equal(len, 0);
    assert_int_equal(optq_encode(o, &usual, m, v, 9000, block, &len, &err), 0);
    assert_int_equal(optq_decode(o, block, len - 1, got_m, got_v, 9000, &err), -EBADMSG);
    assert_int_equal(optq_decode(o, block, len + 1, got_m, got_v, 9000, &err), -EBADMSG);
    assert_int_equal(optq_decode(o, block, len, got_m, got_v, 8999, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "9000"));
    assert_int_equal(optq_decode(o, block, 7, got_m, got_v, 9000, &err), -EBADMSG);
    for (size_t i = 0; i < 16; i++) {
        memcpy(damaged, block, len);
        damaged[i] ^= 0x40;
        assert_int_equal(optq_decode(o, damaged, len, got_m, got_v, 9000, &err), -EBADMSG);
    }
    for (int i = 0; i < 300; i++) { /* moments may be others then, but nothing beyond them is touched */
        chance = chance * 1664525u + 1013904223u;
        memcpy(damaged, block, len);
        damaged[24 + (chance >> 8) % (len - 24)] ^= (uint8_t)(1u << (chance & 7));
        (void)optq_decode(o, damaged, len, got_m, got_v, 9000, &err);
    }
}

static int make(void **state)
{
    (void)state;
    o = optq_new();
    return o ? 0 : -1;
}

static int drop(void **state)
{
    (void)state;
    optq_free(o);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_and_errors_of_the_update_are_the_known_ones),
        cmocka_unit_test(any_moments_keep_their_bounds_or_their_bits),
        cmocka_unit_test(simple_moments_are_known_numbers),
        cmocka_unit_test(moments_never_updated_cost_next_to_nothing),
        cmocka_unit_test(moments_coded_twice_are_those_coded_once),
        cmocka_unit_test(bounds_and_damage_are_refused),
    };

    return cmocka_run_group_tests(tests, make, drop);
}
