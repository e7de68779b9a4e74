#include "tests/unit/test.h"

#include <math.h>

#include "base/bf16.h"

static void every_bf16_survives_a_float(void **state)
{
    (void)state;
    for (uint32_t h = 0; h <= 0xFFFF; h++) {
        float f = bf16_to_float((uint16_t)h);

        if (isnan(f))
            assert_int_equal(bf16_from_float(f), h | 0x40); /* quiet */
        else
            assert_int_equal(bf16_from_float(f), h);
    }
}

/* Between two neighbours the nearer one, in the middle the even one. */
static void floats_become_the_nearest(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7F80; h++) {
        const uint32_t offset[] = {1, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
        const uint32_t up[] = {0, 0, h & 1, 1, 1};

        for (size_t i = 0; i < COUNT(offset); i++) {
            uint32_t bits = h << 16 | offset[i], minus = bits | 0x80000000;
            float f, g;

            memcpy(&f, &bits, sizeof(f));
            memcpy(&g, &minus, sizeof(g));
            assert_int_equal(bf16_from_float(f), h + up[i]);
            assert_int_equal(bf16_from_float(g), (h + up[i]) | 0x8000);
        }
    }
    assert_int_equal(bf16_from_float(INFINITY), 0x7F80);
    assert_int_equal(bf16_from_float(-INFINITY), 0xFF80);
}

static void no_nan_becomes_infinite(void **state)
{
    static const uint32_t nan[] = {0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF, 0x7FC00000};

    (void)state;
    for (size_t i = 0; i < COUNT(nan); i++) {
        float f;

        memcpy(&f, &nan[i], sizeof(f));
        assert_true(isnan(bf16_to_float(bf16_from_float(f))));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bf16_survives_a_float),
        cmocka_unit_test(floats_become_the_nearest),
        cmocka_unit_test(no_nan_becomes_infinite),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
