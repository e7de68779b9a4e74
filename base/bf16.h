/* bf16 - the upper half of a float: its sign, its exponent and seven bits of its mantissa */
#ifndef MUSTER_BASE_BF16_H
#define MUSTER_BASE_BF16_H

#include <stdint.h>
#include <string.h>

#include "base/device.h"

/* Bits of a float that is no NaN, rounded to the nearest bf16, ties to even; the lower half is zero. */
DEVICE_INLINE uint32_t bf16_round_bits(uint32_t u)
{
    return (u + 0x7FFF + (u >> 16 & 1)) & 0xFFFF0000;
}

/* To the nearest, ties to even. A NaN stays one and becomes quiet: rounding could make it infinite. */
DEVICE_INLINE uint16_t bf16_from_float(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof(u));
    return (uint16_t)(((u & 0x7FFFFFFF) > 0x7F800000 ? u | 0x400000 : bf16_round_bits(u)) >> 16);
}

DEVICE_INLINE float bf16_to_float(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;

    memcpy(&f, &u, sizeof(f));
    return f;
}

#endif
