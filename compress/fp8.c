#include "compress/fp8.h"

#include <math.h>
#include <string.h>

static const struct form {
    float max, min_normal, min_subnormal;
    uint32_t shift, rebias, mantissa, nan, infinity; /* infinity: the first code that is no finite number */
} forms[] = {
    [FP8_E4M3] = { FP8_E4M3_MAX, 0x1p-6f, 0x1p-9f, 20, 120 * 8, 7, 0x7F, 0x7F },
    [FP8_E5M2] = { FP8_E5M2_MAX, 0x1p-14f, 0x1p-16f, 21, 112 * 4, 3, 0x7F, 0x7C },
};

static uint32_t bits_of(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

uint8_t fp8_encode(float x, enum fp8_kind kind)
{
    const struct form *f = &forms[kind];
    uint32_t u = bits_of(x), sign = u >> 24 & 0x80;
    float a = fabsf(x);

    if (a != a)
        return (uint8_t)(sign | f->nan);
    if (a > f->max)
        a = f->max;
    if (a < f->min_normal) /* a carry into the exponent is right by itself */
        return (uint8_t)(sign | (uint32_t)rintf(a / f->min_subnormal));
    u = bits_of(a);
    u += (UINT32_C(1) << (f->shift - 1)) - 1 + (u >> f->shift & 1);
    return (uint8_t)(sign | ((u >> f->shift) - f->rebias));
}

float fp8_decode(uint8_t code, enum fp8_kind kind)
{
    const struct form *f = &forms[kind];
    uint32_t mag = code & 0x7F, u;
    float a;

    if (mag >= f->infinity) {
        a = kind == FP8_E5M2 && mag == f->infinity ? INFINITY : NAN;
    } else if (mag <= f->mantissa) {
        a = (float)mag * f->min_subnormal;
    } else {
        u = (mag + f->rebias) << f->shift;
        memcpy(&a, &u, sizeof(a));
    }
    return code & 0x80 ? -a : a;
}
