#include "tests/unit/test.h"

#include <math.h>
#include <string.h>

#include "checkpoint/format/dtype.h"

static float to_float(uint16_t h)
{
    float f;

    dtype_convert(MCK_F16, MCK_F32, &h, &f, 1);
    return f;
}

static uint16_t to_half(float f)
{
    uint16_t h;

    dtype_convert(MCK_F32, MCK_F16, &f, &h, 1);
    return h;
}

static void every_half_is_a_float_and_comes_back(void **state)
{
    (void)state;
    for (unsigned h = 0; h <= 0xffff; h++) {
        float f = to_float((uint16_t)h);
        bool nan = (h & 0x7c00) == 0x7c00 && (h & 0x3ff) != 0;

        assert_int_equal(nan, isnan(f) != 0);
        if (nan)
            assert_true(isnan(to_float(to_half(f))));
        else
            assert_int_equal(to_half(f), h);
    }
}

/* Halves in the order of their values: no other is nearer, and of two as near the one with a last bit of 0. */
static void floats_go_to_the_nearest_half(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x7bff; h++) { /* up to the largest finite one */
        double low = to_float((uint16_t)h), high = to_float((uint16_t)(h + 1));
        float middle = (float)((low + high) / 2); /* exact */
        unsigned even = h & 1 ? h + 1 : h;

        assert_int_equal(to_half(middle), even);
        assert_int_equal(to_half(nextafterf(middle, 0)), h);
        assert_int_equal(to_half(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(to_half(-middle), even | 0x8000);
    }
}

static void what_a_half_cannot_hold_becomes_infinite_or_zero(void **state)
{
    static const struct {
        float from;
        uint16_t to;
    } row[] = {
        {65504, 0x7bff},     {65519.996F, 0x7bff}, {65520, 0x7c00}, {1e30F, 0x7c00},
        {INFINITY, 0x7c00},  {-INFINITY, 0xfc00},  {0x1p-25F, 0},   {0x1.000002p-25F, 1},
        {-0x1p-30F, 0x8000}, {0x1p-149F, 0},       {-0.0F, 0x8000},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++)
        assert_int_equal(to_half(row[i].from), row[i].to);
}

static void names_and_sizes_belong_together(void **state)
{
    static const size_t size[MCK_DTYPES] = {4, 2, 2, 8, 8, 4, 1, 1, 2, 1, 1, 1, 2, 4, 8, 8, 16};

    (void)state;
    for (int i = 0; i < MCK_DTYPES; i++) {
        assert_int_equal(dtype_parse(dtype_name(i)), i);
        assert_int_equal(dtype_size(i), size[i]);
        for (int k = 0; k < MCK_DTYPES; k++)
            assert_int_equal(dtype_converts(i, k), i == k || (i <= MCK_F16 && k <= MCK_F16));
    }
    assert_int_equal(dtype_size(MCK_DTYPES), 0);
    assert_true(dtype_parse("f8") < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_is_a_float_and_comes_back),
        cmocka_unit_test(floats_go_to_the_nearest_half),
        cmocka_unit_test(what_a_half_cannot_hold_becomes_infinite_or_zero),
        cmocka_unit_test(names_and_sizes_belong_together),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
