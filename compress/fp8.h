/* fp8 - eight-bit floats E4M3 and E5M2, bit for bit as the conversion instructions of processors make them
 *
 *            bits s/e/m  bias  largest  least normal  least  beyond
 *   E4M3     1/4/3       7     448      2^-6          2^-9   no infinity; S.1111.111 is NaN
 *   E5M2     1/5/2       15    57344    2^-14         2^-16  infinity and NaN as IEEE
 *
 * Conversion rounds to nearest, ties to even, and saturates: no finite or infinite number becomes infinity or NaN.
 */
#ifndef MUSTER_COMPRESS_FP8_H
#define MUSTER_COMPRESS_FP8_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/device.h"

enum fp8_kind { FP8_E4M3, FP8_E5M2 };

#define FP8_E4M3_MAX 448.0f
#define FP8_E5M2_MAX 57344.0f

DEVICE_INLINE uint8_t fp8_encode(float x, enum fp8_kind kind)
{
    const int wide = kind == FP8_E5M2;
    const uint32_t shift = wide ? 21 : 20, rebias = wide ? 112 * 4 : 120 * 8;
    const float max = wide ? FP8_E5M2_MAX : FP8_E4M3_MAX, min_normal = wide ? 0x1p-14f : 0x1p-6f;
    uint32_t u, sign;
    float a = fabsf(x);

    memcpy(&u, &x, sizeof(u));
    sign = u >> 24 & 0x80;
    if (a != a)
        return (uint8_t)(sign | 0x7F);
    if (a > max)
        a = max;
    if (a < min_normal) /* a carry into the exponent is right by itself */
        return (uint8_t)(sign | (uint32_t)rintf(a * (wide ? 0x1p16f : 0x1p9f)));
    memcpy(&u, &a, sizeof(u));
    u += ((uint32_t)1 << (shift - 1)) - 1 + (u >> shift & 1);
    return (uint8_t)(sign | ((u >> shift) - rebias));
}

/* 1: the code is no finite number. */
DEVICE_INLINE int fp8_is_special(uint8_t code, enum fp8_kind kind)
{
    return (code & 0x7F) >= (kind == FP8_E5M2 ? 0x7C : 0x7F);
}

DEVICE_INLINE float fp8_decode(uint8_t code, enum fp8_kind kind)
{
    const int wide = kind == FP8_E5M2;
    uint32_t mag = code & 0x7F, u;
    float a;

    if (fp8_is_special(code, kind)) {
        u = wide && mag == 0x7C ? 0x7F800000 : 0x7FC00000;
        memcpy(&a, &u, sizeof(a));
    } else if (mag <= (wide ? 3u : 7u)) {
        a = (float)mag * (wide ? 0x1p-16f : 0x1p-9f);
    } else {
        u = (mag + (wide ? 112 * 4 : 120 * 8)) << (wide ? 21 : 20);
        memcpy(&a, &u, sizeof(a));
    }
    return code & 0x80 ? -a : a;
}

#endif
