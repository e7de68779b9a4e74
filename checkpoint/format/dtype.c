#include "checkpoint/format/dtype.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/bf16.h"

static const struct {
    const char *name;
    size_t size;
} dtypes[MCK_DTYPES] = {
    [MCK_F32] = {"f32", 4},
    [MCK_BF16] = {"bf16", 2},
    [MCK_F16] = {"f16", 2},
    [MCK_F64] = {"f64", 8},
    [MCK_I64] = {"i64", 8},
    [MCK_I32] = {"i32", 4},
    [MCK_U8] = {"u8", 1},
    [MCK_I8] = {"i8", 1},
    [MCK_I16] = {"i16", 2},
    [MCK_BOOL] = {"bool", 1},
    [MCK_F8E4M3FN] = {"f8e4m3fn", 1},
    [MCK_F8E5M2] = {"f8e5m2", 1},
    [MCK_U16] = {"u16", 2},
    [MCK_U32] = {"u32", 4},
    [MCK_U64] = {"u64", 8},
    [MCK_C64] = {"c64", 8},
    [MCK_C128] = {"c128", 16},
};

static const char *const roles[MCK_ROLES] = {
    "master", "weight", "moment1", "moment2", "optimizer", "ema", "gradient", "buffer", "opaque",
};

size_t dtype_size(int dtype)
{
    return dtype >= 0 && dtype < MCK_DTYPES ? dtypes[dtype].size : 0;
}

const char *dtype_name(int dtype)
{
    return dtype >= 0 && dtype < MCK_DTYPES ? dtypes[dtype].name : "?";
}

int dtype_parse(const char *name)
{
    for (int i = 0; i < MCK_DTYPES; i++)
        if (!strcmp(dtypes[i].name, name))
            return i;
    return -EINVAL;
}

const char *role_name(int role)
{
    return role >= 0 && role < MCK_ROLES ? roles[role] : "?";
}

static int is_float(int dtype)
{
    return dtype == MCK_F32 || dtype == MCK_BF16 || dtype == MCK_F16;
}

size_t dtype_part_size(int dtype)
{
    return dtype == MCK_C64 || dtype == MCK_C128 ? dtype_size(dtype) / 2 : dtype_size(dtype);
}

int dtype_is_float(int dtype)
{
    return is_float(dtype) || dtype == MCK_F64 || dtype == MCK_C64 || dtype == MCK_C128;
}

int dtype_converts(int from, int to)
{
    return from == to || (is_float(from) && is_float(to));
}

static uint16_t f16_from_float(float f)
{
    uint32_t u, sign, mant;
    int exp;

    memcpy(&u, &f, 4);
    sign = u >> 16 & 0x8000u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (u >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (u >= 0x38800000u) { /* normal: rebias by 112, drop 13 bits, nearest even */
        u -= 0x38000000u;
        return (uint16_t)(sign | (u + 0xfffu + (u >> 13 & 1)) >> 13);
    }
    if (u <= 0x33000000u) /* at most half of the smallest subnormal */
        return (uint16_t)sign;
    exp = (int)(u >> 23);
    mant = (u & 0x7fffffu) | 0x800000u;
    exp = 126 - exp; /* bits to drop, 14..24, leaving units of 2^-24 */
    return (uint16_t)(sign | (mant + (1u << (exp - 1)) - 1 + (mant >> exp & 1)) >> exp);
}

static float f16_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = h >> 10 & 31, mant = h & 0x3ffu, u;
    float f;

    if (exp == 0) {
        f = (float)mant * 0x1p-24f;
        return sign ? -f : f;
    }
    u = exp == 31 ? sign | 0x7f800000u | mant << 13 : sign | (exp + 112) << 23 | mant << 13;
    memcpy(&f, &u, 4);
    return f;
}

static float load_float(int dtype, const uint8_t *p)
{
    uint16_t h;
    float f;

    if (dtype == MCK_F32) {
        memcpy(&f, p, 4);
        return f;
    }
    memcpy(&h, p, 2);
    return dtype == MCK_F16 ? f16_to_float(h) : bf16_to_float(h);
}

static void store_float(int dtype, uint8_t *p, float f)
{
    uint16_t h;

    if (dtype == MCK_F32) {
        memcpy(p, &f, 4);
        return;
    }
    h = dtype == MCK_F16 ? f16_from_float(f) : bf16_from_float(f);
    memcpy(p, &h, 2);
}

void dtype_convert(int from, int to, const void *src, void *dst, size_t n)
{
    size_t a = dtype_size(from), b = dtype_size(to);
    const uint8_t *s = src;
    uint8_t *d = dst;

    assert(dtype_converts(from, to));
    if (from == to) {
        memcpy(d, s, n * a);
        return;
    }
    for (size_t i = 0; i < n; i++)
        store_float(to, d + i * b, load_float(from, s + i * a));
}
