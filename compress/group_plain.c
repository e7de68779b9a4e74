#include "compress/group.h"

#include <assert.h>
#include <math.h>

/* --- numbers ----------------------------------------------------------------------------------------------------- */

/* Values with 0 for what is not finite. Returns flags. */
static uint32_t clean(const float *v, size_t n, float *ret, float *ret_amax)
{
    uint32_t flags = 0;

    *ret_amax = 0;
    for (size_t i = 0; i < n; i++) {
        int finite = group_is_finite(v[i]);

        ret[i] = finite ? v[i] : 0;
        flags |= finite ? 0 : CODEC_NONFINITE;
        *ret_amax = fmaxf(*ret_amax, fabsf(ret[i]));
    }
    return flags;
}

static void multiply(float *y, size_t n, float by)
{
    for (size_t i = 0; by != 1 && i < n; i++)
        y[i] *= by;
}

/* Unnormalised Walsh-Hadamard transform. The order of its stages is part of the format: sums of floats round. */
static void wht(float *y, size_t n)
{
    for (size_t h = 1; h < n; h *= 2)
        for (size_t i = 0; i < n; i += 2 * h)
            for (size_t j = i; j < i + h; j++) {
                float a = y[j], b = y[j + h];

                y[j] = a + b;
                y[j + h] = a - b;
            }
}

static void wht_int(int32_t *y, size_t n)
{
    for (size_t h = 1; h < n; h *= 2)
        for (size_t i = 0; i < n; i += 2 * h)
            for (size_t j = i; j < i + h; j++) {
                int32_t a = y[j], b = y[j + h];

                y[j] = a + b;
                y[j + h] = a - b;
            }
}

/* Is a group of n values transformed? A short one is not: what stands beside coefficients without being one would have
 * another size, and the common scale would suit only one of them. */
static int is_transformed(const struct codec *c, size_t n)
{
    return n == c->group && c->transform != TRANSFORM_NONE;
}

static int has_random_signs(const struct codec *c, size_t n)
{
    return is_transformed(c, n) && c->transform == TRANSFORM_RHT;
}

/* Values become coefficients but for a factor, which is returned. */
static float transform(const struct codec *c, float *y, size_t n)
{
    if (!is_transformed(c, n))
        return 1;
    if (c->transform == TRANSFORM_H32) {
        for (size_t i = 0; i < n; i += 32)
            wht(y + i, 32);
        return 0x1p-5f;
    }
    for (size_t i = 0; has_random_signs(c, n) && i < n; i++)
        y[i] = group_sign(i) ? -y[i] : y[i];
    wht(y, n);
    return group_norm(c);
}

/* --- codes ------------------------------------------------------------------------------------------------------- */

static void pack(unsigned bits, const uint8_t *q, size_t n, uint8_t *codes)
{
    if (bits == 8) {
        memcpy(codes, q, n);
    } else if (bits == 6) {
        for (size_t i = 0; i < n; i += 4) {
            uint32_t w = 0;

            for (size_t k = 0; k < 4 && i + k < n; k++)
                w |= (uint32_t)(q[i + k] & 0x3F) << (6 * k);
            *codes++ = (uint8_t)w;
            *codes++ = (uint8_t)(w >> 8);
            *codes++ = (uint8_t)(w >> 16);
        }
    } else {
        for (size_t i = 0; i < n; i += 2)
            *codes++ = (uint8_t)(q[i] << 4 | (i + 1 < n ? q[i + 1] & 0x0F : 0));
    }
}

/* Numbers of codes, whole ones or FP8. Returns 0, or -1: one is such as no encoder writes. */
static int unpack(const struct codec *c, const uint8_t *codes, size_t n, int32_t *q, float *f)
{
    int bad = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t u;

        if (c->bits == 8) {
            u = codes[i];
        } else if (c->bits == 6) {
            const uint8_t *p = codes + i / 4 * 3;

            u = ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16) >> (6 * (i % 4));
        } else {
            u = (uint32_t)codes[i / 2] >> (i % 2 ? 0 : 4);
        }
        bad |= group_code_is_bad(c, u);
        if (c->fp8)
            f[i] = fp8_decode((uint8_t)u, (enum fp8_kind)c->kind);
        else
            q[i] = group_integer(c, u);
    }
    return bad ? -1 : 0;
}

/* Random numbers in (0, 1) of n values: 16 bits each, so that a block of Philox serves eight. */
static void draw(const struct group_chance *chance, uint64_t at, float *u, size_t n)
{
    uint64_t index = chance->offset + at;
    uint32_t words[4];

    for (size_t i = 0; i < n; i++, index++) {
        if (i == 0 || index % 8 == 0)
            group_draw(chance, index, words);
        u[i] = group_chance_of(words[index % 8 / 2] >> (index % 2 ? 16 : 0));
    }
}

/* Codes of n coefficients times inv. */
static void put_codes(const struct codec *c, const struct group_chance *chance, uint64_t at, const float *y, size_t n,
                      float inv, uint8_t *codes)
{
    float u[GROUP_MAX];
    uint8_t q[GROUP_MAX];

    if (c->stochastic)
        draw(chance, at, u, n);
    for (size_t i = 0; i < n; i++) {
        float t = y[i] * inv;

        if (c->fp8)
            q[i] = fp8_encode(t, (enum fp8_kind)c->kind);
        else
            q[i] = (uint8_t)(c->stochastic ? group_by_chance(c, t, u[i]) : group_nearest(c, t));
    }
    pack(c->bits, q, n, codes);
}

/* --- scales ------------------------------------------------------------------------------------------------------ */

static float get_f32(const uint8_t *from)
{
    return group_float((uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24);
}

int group_scales_read(const struct codec *c, const uint8_t *scales, struct group_scales *ret)
{
    struct group_scales s = {.alpha = 1};

    s.s = c->scale == SCALE_BF16 ? group_float((uint32_t)scales[0] << 16 | (uint32_t)scales[1] << 24) : get_f32(scales);
    if (c->scale == SCALE_PAPER)
        s.alpha = get_f32(scales + 4);
    if (!group_scales_ok(c, s))
        return -1;
    *ret = s;
    return 0;
}

/* --- encode ------------------------------------------------------------------------------------------------------ */

static float largest(const float *y, size_t n)
{
    float amax = 0;

    for (size_t i = 0; i < n; i++)
        amax = fmaxf(amax, fabsf(y[i]));
    return amax;
}

/* Scale and codes of y, which are coefficients times pre / norm. */
static uint32_t encode_coefficients(const struct codec *c, const struct group_chance *chance, uint64_t at,
                                    const float *y, float norm, float pre, size_t n, uint8_t *codes, uint8_t *scales)
{
    float s;
    uint32_t flags = group_scale_write(c, largest(y, n) * norm, pre, scales, &s);

    put_codes(c, chance, at, y, n, norm / s, codes);
    return flags;
}

/* TACO's first scale. */
static float paper_alpha(const struct codec *c, const float *v, size_t n)
{
    float part[8] = {0};

    for (size_t i = 0; i < n; i++)
        part[i % 8] += v[i] * v[i];
    for (size_t k = 4; k > 0; k /= 2)
        for (size_t i = 0; i < k; i++)
            part[i] += part[i + k];
    return group_paper_alpha(c, part[0] / (float)n);
}

/* TACO's second scale and the codes of coefficients, in TACO's order. */
static void paper_encode(const struct codec *c, float alpha, const float *y, size_t n, uint8_t *codes, uint8_t *scales)
{
    const float target = group_target(c);
    float s = group_paper_scale(c, largest(y, n));

    le_put(scales, group_bits(s), 4);
    le_put(scales + 4, group_bits(alpha), 4);
    for (size_t i = 0; i < n; i++)
        codes[i] = fp8_encode(group_clamp(y[i] / s, -target, target), (enum fp8_kind)c->kind);
}

uint32_t group_plain_encode(const struct codec *c, const struct group_chance *chance, uint64_t at, const float *v,
                            size_t n, uint8_t *codes, uint8_t *scales)
{
    float y[GROUP_MAX], amax, pre, norm, alpha;
    uint32_t flags;

    assert(n > 0 && n <= c->group);
    flags = clean(v, n, y, &amax);
    if (c->scale == SCALE_PAPER) {
        alpha = paper_alpha(c, y, n);
        multiply(y, n, alpha);
        multiply(y, n, transform(c, y, n));
        paper_encode(c, alpha, y, n, codes, scales);
        return flags;
    }
    pre = group_power(amax);
    multiply(y, n, pre);
    norm = transform(c, y, n);
    return flags | encode_coefficients(c, chance, at, y, norm, pre, n, codes, scales);
}

uint32_t group_plain_quantise(const struct codec *c, const struct group_chance *chance, uint64_t at, const float *sum,
                              float pre, size_t n, uint8_t *codes, uint8_t *scales)
{
    float y[GROUP_MAX], amax, by, alpha;
    uint32_t flags;

    assert(n > 0 && n <= c->group);
    memcpy(y, sum, n * sizeof(y[0]));
    if (c->scale == SCALE_PAPER)
        multiply(y, n, 1 / pre);
    flags = clean(y, n, y, &amax);
    if (c->scale == SCALE_PAPER) {
        alpha = paper_alpha(c, y, n);
        multiply(y, n, alpha);
        paper_encode(c, alpha, y, n, codes, scales);
        return flags;
    }
    by = group_power(amax);
    multiply(y, n, by);
    return flags | encode_coefficients(c, chance, at, y, 1, pre * by, n, codes, scales);
}

/* --- decode ------------------------------------------------------------------------------------------------------ */

static void limit(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = group_limit(x[i]);
}

/* Whole numbers are transformed as such, exactly, then multiplied once. */
static int decode_integers(const struct codec *c, const uint8_t *codes, float s, float *out, size_t n)
{
    int32_t q[GROUP_MAX];
    float by = is_transformed(c, n) ? s * group_norm(c) : s;
    size_t width = is_transformed(c, n) ? group_width(c) : 1;

    if (unpack(c, codes, n, q, NULL))
        return -1;
    for (size_t i = 0; i < n; i += width)
        wht_int(q + i, width);
    for (size_t i = 0; i < n; i++) {
        float x = (float)q[i] * by;

        out[i] = has_random_signs(c, n) && group_sign(i) ? -x : x;
    }
    limit(out, n);
    return 0;
}

int group_plain_decode(const struct codec *c, const uint8_t *codes, struct group_scales s, float *out, size_t n)
{
    if (!c->fp8)
        return decode_integers(c, codes, s.s, out, n);
    if (unpack(c, codes, n, NULL, out))
        return -1;
    if (c->scale == SCALE_PAPER) {
        multiply(out, n, s.s);
        multiply(out, n, transform(c, out, n));
        for (size_t i = 0; i < n; i++)
            out[i] /= s.alpha;
    } else {
        multiply(out, n, transform(c, out, n) * s.s);
    }
    limit(out, n);
    return 0;
}

int group_plain_add(const struct codec *c, const uint8_t *codes, struct group_scales s, float pre, float *sum, size_t n)
{
    float f[GROUP_MAX], by = s.s * pre;
    int32_t q[GROUP_MAX];

    if (unpack(c, codes, n, q, f))
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (c->scale == SCALE_PAPER)
            sum[i] += s.s * f[i] / s.alpha * pre;
        else
            sum[i] += by * (c->fp8 ? f[i] : (float)q[i]);
    }
    return 0;
}

uint32_t group_plain_add_own(const struct codec *c, const float *v, float pre, float *sum, size_t n)
{
    float y[GROUP_MAX], amax, norm;
    uint32_t flags = clean(v, n, y, &amax);

    multiply(y, n, pre);
    norm = transform(c, y, n);
    for (size_t i = 0; i < n; i++)
        sum[i] += norm * y[i];
    return flags;
}

void group_plain_finish(const struct codec *c, float pre, float *sum, size_t n)
{
    float norm = is_transformed(c, n) ? group_norm(c) : 1;
    size_t width = is_transformed(c, n) ? group_width(c) : 1;

    for (size_t i = 0; i < n; i += width)
        wht(sum + i, width);
    for (size_t i = 0; i < n; i++) {
        sum[i] = sum[i] * norm / pre;
        if (has_random_signs(c, n) && group_sign(i))
            sum[i] = -sum[i];
    }
    limit(sum, n);
}
