#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "compress/ulpd.h"
#include "tests/unit/compress/data.h"

#define N 300000

static uint16_t base[N], values[N], out[N + 8];
static uint8_t block[2 * N + 4096], damaged[2 * N + 4096];
static struct ulpd *u;

static uint16_t bf16(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, 4);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* Weights N(0, 0.02) and the same after changes of the given root mean square. */
static void fill(float change)
{
    for (size_t i = 0; i < N; i++) {
        float w = data_value(DATA_NORMAL, 1, i) * 0.02f;

        base[i] = bf16(w);
        values[i] = bf16(w + data_value(DATA_NORMAL, 2, i) * change);
    }
}

static size_t round_trip(size_t n)
{
    struct merr err;
    size_t len = ulpd_encode(u, base, values, n, block);

    assert_true(len <= ulpd_bound(n));
    memset(out, 0x5A, sizeof(out));
    assert_int_equal(ulpd_decode(u, base, block, len, out, n, &err), 0);
    assert_memory_equal(out, values, 2 * n);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(out[n + i], 0x5A5A);
    return len;
}

static void ratios_are_near_the_limits_known_for_them(void **state)
{
    static const struct {
        float change;
        double limit; /* of coding each difference by its frequency */
    } rows[] = {{6e-4f, 2.74}, {3e-4f, 3.21}, {1e-4f, 4.5}, {3e-5f, 7.5}, {1e-5f, 13.4}, {3e-6f, 27.9}};

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        double ratio;

        fill(rows[i].change);
        ratio = 2.0 * N / (double)round_trip(N);
        print_message("# change %.0e: ratio %.2f, limit %.1f\n", (double)rows[i].change, ratio, rows[i].limit);
        /* An escape costs 16 bits more than the limit's symbol, and symbols take whole bits. */
        assert_true(ratio > rows[i].limit * 0.9 && ratio < rows[i].limit * 1.02);
    }
    memcpy(values, base, sizeof(values));
    assert_true(round_trip(N) < 100);
}

static void any_bits_come_back(void **state)
{
    static const uint16_t odd[] = {0, 0x8000, 1, 0x8001, 0x7F80, 0xFF80, 0x7FFF, 0xFFFF, 0x7FC1, 0x3F80, 0xBF80};
    static const size_t lens[] = {0, 1, 2, 7, 8, 9, 131071, 131072, 131073, N};

    (void)state;
    for (size_t k = 0; k < COUNT(lens); k++) {
        fill(1e-5f);
        (void)round_trip(lens[k]);
        for (size_t i = 0; i < N; i++) {
            base[i] = odd[i / 3 % COUNT(odd)];
            values[i] = odd[i * 7 % COUNT(odd)];
        }
        (void)round_trip(lens[k]);
        for (size_t i = 0; i < N; i++)
            values[i] = bf16(data_value(DATA_NORMAL, 77, i)); /* nothing to do with base */
        (void)round_trip(lens[k]);
    }
}

static void another_base_and_damage_are_refused(void **state)
{
    struct merr err;
    size_t len;
    uint32_t chance = 12345;
    int refused = 0;

    (void)state;
    fill(1e-5f);
    len = ulpd_encode(u, base, values, 20000, block);
    base[19999] ^= 1;
    assert_int_equal(ulpd_decode(u, base, block, len, out, 20000, &err), -ESTALE);
    assert_non_null(strstr(err.text, "another version"));
    base[19999] ^= 1;
    assert_int_equal(ulpd_decode(u, base, block, len, out, 19999, &err), -EBADMSG);
    assert_int_equal(ulpd_decode(u, base, block, len - 1, out, 20000, &err), -EBADMSG);
    assert_int_equal(ulpd_decode(u, base, block, len + 1, out, 20000, &err), -EBADMSG);
    assert_int_equal(ulpd_decode(u, base, block, 5, out, 20000, &err), -EBADMSG);
    for (int i = 0; i < 400; i++) {
        memcpy(damaged, block, len);
        chance = chance * 1664525u + 1013904223u;
        damaged[i < 60 ? (size_t)i : (chance >> 8) % len] ^= (uint8_t)(1u << (chance & 7));
        if (ulpd_decode(u, base, damaged, len, out, 20000, &err) == 0) /* a bit without meaning */
            assert_memory_equal(out, values, 40000);
        else
            refused++;
    }
    assert_true(refused > 390);
}

static int make(void **state)
{
    (void)state;
    u = ulpd_new();
    return u ? 0 : -1;
}

static int drop(void **state)
{
    (void)state;
    ulpd_free(u);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ratios_are_near_the_limits_known_for_them),
        cmocka_unit_test(any_bits_come_back),
        cmocka_unit_test(another_base_and_damage_are_refused),
    };

    return cmocka_run_group_tests(tests, make, drop);
}
