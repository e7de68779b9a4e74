#include "tests/unit/test.h"

#include <math.h>
#include <string.h>

#include "compress/fp8.h"

/* Value of a code by the definition of the format. */
static double value_of(unsigned code, enum fp8_kind kind)
{
    int m_bits = kind == FP8_E4M3 ? 3 : 2, bias = kind == FP8_E4M3 ? 7 : 15;
    int e = (int)(code & 0x7F) >> m_bits, m = (int)code & ((1 << m_bits) - 1);
    double x;

    if (kind == FP8_E4M3 ? (code & 0x7F) == 0x7F : e == 31)
        return kind == FP8_E5M2 && m == 0 ? (code & 0x80 ? -INFINITY : INFINITY) : NAN;
    x = e ? ldexp(1 + ldexp(m, -m_bits), e - bias) : ldexp(m, 1 - bias - m_bits);
    return code & 0x80 ? -x : x;
}

/* The nearest finite code by trying all of them; between two equally near ones the even. */
static unsigned nearest(double x, enum fp8_kind kind)
{
    unsigned best = 0;
    double far = INFINITY;

    for (unsigned code = 0; code < 0x7F; code++) {
        double v = value_of(code, kind), d = fabs(v - fmin(fabs(x), 1e6)); /* exactly */

        if (!isfinite(v))
            break;
        if (d < far || (d == far && code % 2 == 0)) {
            best = code;
            far = d;
        }
    }
    return best | (signbit(x) ? 0x80u : 0);
}

static void every_code_has_the_value_of_its_format(void **state)
{
    (void)state;
    for (int kind = FP8_E4M3; kind <= FP8_E5M2; kind++)
        for (unsigned code = 0; code < 256; code++) {
            double want = value_of(code, (enum fp8_kind)kind);
            float got = fp8_decode((uint8_t)code, (enum fp8_kind)kind);

            assert_int_equal(isnan(want), isnan(got));
            if (isnan(want))
                continue;
            assert_true((double)got == want && !signbit(got) == !signbit(want));
            if (isfinite(want))
                assert_int_equal(fp8_encode(got, (enum fp8_kind)kind), code);
        }
}

static void every_bf16_becomes_the_nearest_code(void **state)
{
    (void)state;
    for (int kind = FP8_E4M3; kind <= FP8_E5M2; kind++)
        for (uint32_t i = 0; i < 65536; i++) {
            uint32_t u = i << 16;
            float x;
            uint8_t code;

            memcpy(&x, &u, 4);
            code = fp8_encode(x, (enum fp8_kind)kind);
            if (isnan(x))
                assert_int_equal(code & 0x7F, 0x7F);
            else
                assert_int_equal(code, nearest((double)x, (enum fp8_kind)kind));
        }
}

static void known_numbers_round_as_the_instructions_do(void **state)
{
    static const struct {
        float x, want;
    } e4m3[] = {
        {17, 16},         {19, 20},      {464, 448},           {1e30f, 448},
        {INFINITY, 448},  {0x1p-10f, 0}, {0x1.8p-9f, 0x1p-8f}, {1.0625f, 1},
        {1.1875f, 1.25f}, {-17, -16},    {0x1.fp-7f, 0x1p-6f}, {0x1.000002p-10f, 0x1p-9f},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(e4m3); i++)
        assert_true(fp8_decode(fp8_encode(e4m3[i].x, FP8_E4M3), FP8_E4M3) == e4m3[i].want);
    assert_true(fp8_decode(fp8_encode(57345, FP8_E5M2), FP8_E5M2) == FP8_E5M2_MAX);
    assert_true(fp8_decode(fp8_encode(-1e30f, FP8_E5M2), FP8_E5M2) == -FP8_E5M2_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_the_value_of_its_format),
        cmocka_unit_test(every_bf16_becomes_the_nearest_code),
        cmocka_unit_test(known_numbers_round_as_the_instructions_do),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
