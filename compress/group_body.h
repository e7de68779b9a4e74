/* group_body - whole groups of ordinary numbers by vectors, in the order of group_plain.c: the same bits
 *
 * Included by one file for each width, which first includes its vector_*.h and sets GROUP_TABLE and GROUP_NAME; there
 * is no guard, as it is the whole of that file.
 */
#include "compress/group.h"

/* --- bf16 -------------------------------------------------------------------------------------------------------- */

static void widen(const uint16_t *in, float *out, size_t n)
{
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        store(out + i, (vf)(halves_at(in + i) << 16));
    for (; i < n; i++)
        out[i] = bf16_to_float(in[i]);
}

INLINE vu rounded(vf x)
{
    vu u = (vu)x;

    return (u + ((u >> 16 & 1) + 0x7FFF)) >> 16;
}

static void narrow(const float *in, uint16_t *out, size_t n)
{
    size_t i = 0;

    for (; i + 2 * LANES <= n; i += 2 * LANES)
        store_halves(out + i, rounded(load(in + i)), rounded(load(in + i + LANES)));
    for (; i < n; i++)
        out[i] = (uint16_t)(bf16_round_bits(group_bits(in[i])) >> 16);
}

/* The compiler makes vectors of these. */
static void subtract(const float *master, const uint16_t *replica, float *out, size_t n)
{
    group_subtract(master, replica, out, n);
}

static void add_rounded(const float *d, uint16_t *replica, size_t n)
{
    group_add_rounded(d, replica, n);
}

/* --- transform of floats ----------------------------------------------------------------------------------------- */

INLINE void butterfly(vf *a, vf *b)
{
    vf x = *a;

    *a = x + *b;
    *b = x - *b;
}

/* The sign bits of TRANSFORM_RHT: group_sign of entries 0..127. */
#define S(w, i) (((w) >> (i)&1) << 31)
#define S8(w, i) S(w, i), S(w, i + 1), S(w, i + 2), S(w, i + 3), S(w, i + 4), S(w, i + 5), S(w, i + 6), S(w, i + 7)
#define S32(w) S8(w, 0), S8(w, 8), S8(w, 16), S8(w, 24)
static const uint32_t signs[128] __attribute__((aligned(VECTOR_BYTES))) = {
    S32(0x7F4A7C15u),
    S32(0x9E3779B9u),
    S32(0xD192ED03u),
    S32(0xD1B54A32u),
};

/* The random signs of values i on. */
INLINE vf with_signs(vf x, size_t i)
{
    return (vf)((vu)x ^ *(const vu *)(signs + i));
}

/* Magnitudes as bits: what is not finite has more than the largest number. */
INLINE vu higher(vu m, vf x)
{
    return larger_of(m, (vu)x & 0x7FFFFFFF);
}

INLINE uint32_t magnitude(const float *v, size_t n)
{
    vu m = {0}, m2 = m;

    for (size_t i = 0; i < n; i += 2 * LANES) {
        m = higher(m, load(v + i));
        m2 = higher(m2, load(v + i + LANES));
    }
    return largest_of(larger_of(m, m2));
}

/* Transform n (32 or more, a power of two) values of in, unnormalised, into y (may be in): eight vectors at a time in
 * registers. Returns magnitudes, the largest of which is the largest of y, and at least that of in: if it is ordinary,
 * all was. */
INLINE vu wht_floats(const float *in, float *y, size_t n, int random_signs)
{
    const size_t base = n < 8 * LANES ? n : 8 * LANES, vectors = base / LANES;
    vu m = {0};
    vf v[8];

    for (size_t b = 0; b < n; b += base) {
        for (size_t k = 0; k < vectors; k++) {
            v[k] = load(in + b + LANES * k);
            v[k] = wht_within(random_signs ? with_signs(v[k], b + LANES * k) : v[k]);
        }
        for (size_t h = 1; h < vectors; h *= 2)
            for (size_t k = 0; k < vectors; k++)
                if (!(k & h))
                    butterfly(&v[k], &v[k + h]);
        for (size_t k = 0; k < vectors; k++) {
            store(y + b + LANES * k, v[k]);
            if (n == base)
                m = higher(m, v[k]);
        }
    }
    for (size_t h = base; h < n; h *= 2)
        for (size_t i = 0; i < n; i += 2 * h)
            for (size_t j = i; j < i + h; j += LANES) {
                vf a = load(y + j), c = load(y + j + h);

                butterfly(&a, &c);
                store(y + j, a);
                store(y + j + h, c);
                if (2 * h == n)
                    m = higher(higher(m, a), c);
            }
    return m;
}

/* The same without signs; the compiler knows the sizes there mostly are. */
INLINE vu wht_group(const float *in, float *y, size_t n)
{
    return n == 128   ? wht_floats(in, y, 128, 0)
           : n == 64  ? wht_floats(in, y, 64, 0)
           : n == 256 ? wht_floats(in, y, 256, 0)
                      : wht_floats(in, y, n, 0);
}

static int is_ordinary(uint32_t bits)
{
    return bits == 0 || (bits >= group_bits(GROUP_SMALL) && bits <= group_bits(GROUP_LARGE));
}

/* Coefficients of a group but for *ret_norm, in y or where they are. Returns the bits of their largest magnitude, also
 * without norm. */
INLINE uint32_t transform(const struct codec *c, const float *v, float *y, const float **ret, float *ret_norm)
{
    vu m = {0};

    *ret = y;
    *ret_norm = c->transform == TRANSFORM_H32 ? 0x1p-5f : group_norm(c);
    if (c->transform == TRANSFORM_RHT)
        return largest_of(wht_floats(v, y, 128, 1));
    if (c->transform == TRANSFORM_H)
        return largest_of(wht_group(v, y, c->group));
    if (c->transform == TRANSFORM_H32) {
        for (size_t i = 0; i < c->group; i += 32)
            m = larger_of(m, wht_floats(v + i, y + i, 32, 0));
        return largest_of(m);
    }
    *ret = v;
    return magnitude(v, c->group);
}

/* --- chance ------------------------------------------------------------------------------------------------------ */

#define PHILOX_M0 0xD2511F53u /* base/philox.h */
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u
#define CHAINS (32 / LANES) /* side by side for 128 values, so that none waits for its products */

/* LANES / 2 blocks of Philox, a 64-bit lane each. Only the low half of a lane counts: that is what a product takes, so
 * what is above may be anything. */
struct philox {
    vl c0, c1, c2, c3;
};

INLINE void philox_round(struct philox *p, vl k0, vl k1)
{
    vl p0 = product(p->c0, PHILOX_M0), p1 = product(p->c2, PHILOX_M1);

    p->c0 = xor3(p1 >> 32, p->c1, k0);
    p->c2 = xor3(p0 >> 32, p->c3, k1);
    p->c1 = p1;
    p->c3 = p0;
}

/* Blocks from block on, which differ in their third word alone, after two rounds: what the others make in the first is
 * the same for all, and so is one product of the second. */
INLINE struct philox philox_start(const struct group_chance *chance, uint64_t block)
{
    const uint64_t p0 = (uint64_t)PHILOX_M0 * chance->step;
    const uint64_t q1 = (uint64_t)PHILOX_M1 * ((uint32_t)(p0 >> 32) ^ (uint32_t)(block >> 32) ^ chance->key[1]);
    const uint32_t k0 = chance->key[0] + PHILOX_W0, k1 = chance->key[1] + PHILOX_W1;
    vl p1 = product(block_order() + block, PHILOX_M1);
    vl q0 = product(p1 >> 32 ^ (uint64_t)(chance->micro ^ chance->key[0]), PHILOX_M0);

    return (struct philox){p1 ^ (uint64_t)((uint32_t)(q1 >> 32) ^ k0), (vl){0} + (uint64_t)(uint32_t)q1,
                           q0 >> 32 ^ (uint64_t)((uint32_t)p0 ^ k1), q0};
}

/* 16 random bits as a number in (0, 1): as the last bits of a number from 128 on, and half a bit. */
INLINE vf unit(vu bits)
{
    return (vf)(bits | group_bits(128)) - (128 - 0x1p-17f);
}

/* Numbers in (0, 1) of 128 values from index (a multiple of 128) on. */
INLINE void draw128(const struct group_chance *chance, uint64_t index, vf u[128 / LANES])
{
    vl k0 = (vl){0} + (uint64_t)(chance->key[0] + 2 * PHILOX_W0);
    vl k1 = (vl){0} + (uint64_t)(chance->key[1] + 2 * PHILOX_W1);
    struct philox p[CHAINS];
    vu half[4];

    for (size_t k = 0; k < CHAINS; k++)
        p[k] = philox_start(chance, index / 8 + LANES / 2 * k);
    for (int round = 2; round < 10; round++) {
        for (size_t k = 0; k < CHAINS; k++)
            philox_round(&p[k], k0, k1);
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    for (size_t k = 0; k < CHAINS; k++) {
        split_blocks(joined(p[k].c0, p[k].c1), joined(p[k].c2, p[k].c3), half);
        for (size_t i = 0; i < 4; i++)
            u[4 * k + i] = unit(half[i]);
    }
}

/* --- codes ------------------------------------------------------------------------------------------------------- */

INLINE vi fp8_codes(vf t, enum fp8_kind kind)
{
    const int shift = kind == FP8_E4M3 ? 20 : 21;
    const uint32_t rebias = kind == FP8_E4M3 ? 960 : 448;
    const float max = kind == FP8_E4M3 ? FP8_E4M3_MAX : FP8_E5M2_MAX, least = kind == FP8_E4M3 ? 0x1p-6f : 0x1p-14f;
    const float per = kind == FP8_E4M3 ? 0x1p9f : 0x1p16f;
    vf a = smaller_of((vf)((vu)t & 0x7FFFFFFF), max);
    vu sign = (vu)t >> 24 & 0x80, u = (vu)a;

    u += (u >> shift & 1) + ((1u << (shift - 1)) - 1);
    return (vi)(sign | where_less(a, least, (vu)nearest_of(a * per), (u >> shift) - rebias));
}

INLINE vf fp8_floats(vu code, enum fp8_kind kind)
{
    const int shift = kind == FP8_E4M3 ? 20 : 21;
    const uint32_t rebias = kind == FP8_E4M3 ? 960 : 448;
    const float normal = kind == FP8_E4M3 ? 8 : 4, per = kind == FP8_E4M3 ? 0x1p-9f : 0x1p-16f;
    vu mag = code & 0x7F, sign = (code & 0x80) << 24;
    vf number = __builtin_convertvector((vi)mag, vf);

    return (vf)(where_less(number, normal, (vu)(number * per), (mag + rebias) << shift) | sign);
}

INLINE void pack(vb q, unsigned bits, uint8_t *to)
{
    if (bits == 8)
        *(vb_at *)to = q;
    else if (bits == 6)
        store_sixes(to, q);
    else
        store_nibbles(to, q);
}

/* The reverse, with the sign of each code. */
INLINE vb unpack(const uint8_t *from, unsigned bits)
{
    if (bits == 8)
        return *(const vb_at *)from;
    if (bits == 6) {
        vu w = triples_at(from);

        w = (w & 0x3F) | (w << 2 & 0x3F00) | (w << 4 & 0x3F0000) | (w << 6 & 0x3F000000);
        return ((vb)w ^ 0x20) - 0x20;
    }
    vw w = wide_bytes_at(from);

    return ((vb)(w >> 4 | (w << 8 & 0x0F00)) ^ 0x08) - 0x08;
}

/* Codes of a group's numbers times inv. */
INLINE void put_codes(const struct codec *c, unsigned bits, int stochastic, const struct group_chance *chance,
                      uint64_t at, const float *y, float inv, uint8_t *codes)
{
    const int8_t top = (int8_t)group_levels(c);
    vf u[128 / LANES];
    vi q[4];
    vb all;

    for (size_t i = 0; i < c->group; i += 4 * LANES, codes += LANES / 2 * bits) {
        if (stochastic && i % 128 == 0)
            draw128(chance, chance->offset + at + i, u);
        for (size_t k = 0; k < 4; k++) {
            vf t = load(y + i + LANES * k) * inv;

            if (c->fp8)
                q[k] = fp8_codes(t, (enum fp8_kind)c->kind);
            else /* the nearest is within the scale */
                q[k] = stochastic ? floor_of(t + u[i % 128 / LANES + k]) : nearest_of(t);
        }
        all = bytes_of(q, c->fp8);
        pack(stochastic ? clamp_bytes(all, (int8_t)-top, top) : all, bits, codes);
    }
}

/* --- the table --------------------------------------------------------------------------------------------------- */

INLINE void codes_and_scale(const struct codec *c, const struct group_chance *chance, uint64_t at, const float *y,
                            float amax, float norm, uint8_t *codes, uint8_t *scales)
{
    float s;

    (void)group_scale_write(c, amax * norm, 1, scales, &s);
    if (c->bits == 8)
        put_codes(c, 8, c->stochastic, chance, at, y, norm / s, codes);
    else if (c->bits == 6)
        put_codes(c, 6, 0, chance, at, y, norm / s, codes);
    else
        put_codes(c, 4, c->stochastic, chance, at, y, norm / s, codes);
}

/* Two-scale blocks are for comparison; no codec has groups as short as that. */
static int is_for_plain(const struct codec *c)
{
    return c->scale == SCALE_PAPER || c->group < 4 * LANES;
}

/* 6 bits are never stochastic, and chance comes 128 numbers at a time. */
static int is_plain_chance(const struct codec *c, const struct group_chance *chance, uint64_t at)
{
    return c->stochastic && (c->bits == 6 || (chance->offset + at) % 128);
}

static int encode(const struct codec *c, const struct group_chance *chance, uint64_t at, const float *v, uint8_t *codes,
                  uint8_t *scales)
{
    GROUP_ALIGNED float room[GROUP_MAX], norm;
    const float *y;
    uint32_t bits;

    if (is_for_plain(c) || is_plain_chance(c, chance, at))
        return 1;
    bits = transform(c, v, room, &y, &norm);
    if (!is_ordinary(bits))
        return 1;
    codes_and_scale(c, chance, at, y, group_float(bits), norm, codes, scales);
    return 0;
}

static int quantise(const struct codec *c, const struct group_chance *chance, uint64_t at, const float *sum,
                    uint8_t *codes, uint8_t *scales)
{
    uint32_t bits;

    if (is_for_plain(c) || is_plain_chance(c, chance, at))
        return 1;
    bits = magnitude(sum, c->group);
    if (!is_ordinary(bits))
        return 1;
    codes_and_scale(c, chance, at, sum, group_float(bits), 1, codes, scales);
    return 0;
}

/* Sums of at most 128 integers of 8 bits fit 16: exact, in any order. Transforms run of width 1, 32 or 128. */
INLINE int decode_integers(const struct codec *c, unsigned bits, size_t width, const uint8_t *codes, float by,
                           float *out)
{
    const size_t per = 2 * LANES, step = width < 2 * per ? 2 * per : width, vectors = step / per;
    const int8_t never = (int8_t) - (1 << (bits - 1));
    vb bad = {0};
    vs v[128 / (2 * LANES)];
    vf x[2];

    for (size_t i = 0; i < c->group; i += step, out += step) {
        for (size_t k = 0; k < vectors; k += 2, codes += LANES / 2 * bits) {
            vb q = unpack(codes, bits);

            bad |= q == never;
            shorts_of(q, v + k);
        }
        for (size_t k = 0; width > 1 && k < vectors; k++)
            v[k] = wht_shorts_within(v[k]);
        for (size_t h = 1; h < width / per; h *= 2)
            for (size_t k = 0; k < vectors; k++)
                if (!(k & h)) {
                    vs a = v[k];

                    v[k] = a + v[k + h];
                    v[k + h] = a - v[k + h];
                }
        for (size_t k = 0; k < vectors; k++) {
            floats_of(v[k], x);
            for (size_t h = 0, at = per * k; h < 2; h++, at += LANES)
                store(out + at, width == 128 ? with_signs(x[h] * by, at) : x[h] * by);
        }
    }
    return is_any_set(bad);
}

INLINE int decode_width(const struct codec *c, unsigned bits, const uint8_t *codes, float by, float *out)
{
    return c->transform == TRANSFORM_RHT   ? decode_integers(c, bits, 128, codes, by, out)
           : c->transform == TRANSFORM_H32 ? decode_integers(c, bits, 32, codes, by, out)
                                           : decode_integers(c, bits, 1, codes, by, out);
}

INLINE int fp8_unpack(const struct codec *c, const uint8_t *codes, float *out)
{
    const enum fp8_kind kind = (enum fp8_kind)c->kind;
    const uint32_t last = kind == FP8_E4M3 ? 0x7E : 0x7B;
    vi bad = {0};

    for (size_t i = 0; i < c->group; i += LANES) {
        vu code = bytes_at(codes + i);

        bad |= (code & 0x7F) > last;
        store(out + i, fp8_floats(code, kind));
    }
    return is_any_set((vb)bad);
}

static int decode(const struct codec *c, const uint8_t *codes, struct group_scales s, float *out, int *ret_bad)
{
    const float *y;
    float norm = group_norm(c);

    if (is_for_plain(c) || s.s > GROUP_LARGE)
        return 1;
    if (!c->fp8) {
        *ret_bad = c->bits == 8   ? decode_width(c, 8, codes, s.s * norm, out)
                   : c->bits == 6 ? decode_width(c, 6, codes, s.s * norm, out)
                                  : decode_width(c, 4, codes, s.s * norm, out);
        return 0;
    }
    *ret_bad = fp8_unpack(c, codes, out);
    if (*ret_bad)
        return 0;
    (void)transform(c, out, out, &y, &norm);
    for (size_t i = 0; i < c->group; i += LANES)
        store(out + i, load(out + i) * (norm * s.s));
    return 0;
}

INLINE int add_integers(const struct codec *c, unsigned bits, const uint8_t *codes, float s, float *sum)
{
    const int8_t never = (int8_t) - (1 << (bits - 1));
    vb bad = {0};
    int8_t q[VECTOR_BYTES];

    for (size_t i = 0; i < c->group; i += 4 * LANES, codes += LANES / 2 * bits) {
        vb v = unpack(codes, bits);

        bad |= v == never;
        *(vb_at *)q = v;
        for (size_t k = 0; k < 4 * LANES; k += LANES)
            store(sum + i + k, load(sum + i + k) + __builtin_convertvector(integers_at(q + k), vf) * s);
    }
    return is_any_set(bad);
}

/* sum += y times by. */
INLINE void add_times(const struct codec *c, const float *y, float by, float *sum)
{
    for (size_t i = 0; i < c->group; i += LANES)
        store(sum + i, load(sum + i) + load(y + i) * by);
}

static int add(const struct codec *c, const uint8_t *codes, struct group_scales s, float *sum, int *ret_bad)
{
    GROUP_ALIGNED float room[GROUP_MAX];

    if (is_for_plain(c))
        return 1;
    if (!c->fp8) {
        *ret_bad = c->bits == 8   ? add_integers(c, 8, codes, s.s, sum)
                   : c->bits == 6 ? add_integers(c, 6, codes, s.s, sum)
                                  : add_integers(c, 4, codes, s.s, sum);
        return 0;
    }
    *ret_bad = fp8_unpack(c, codes, room);
    add_times(c, room, s.s, sum);
    return 0;
}

static int add_own(const struct codec *c, const float *v, float *sum)
{
    GROUP_ALIGNED float room[GROUP_MAX], norm;
    const float *y;

    if (is_for_plain(c) || !is_ordinary(transform(c, v, room, &y, &norm)))
        return 1;
    add_times(c, y, norm, sum);
    return 0;
}

static int finish(const struct codec *c, float *sum)
{
    const float norm = group_norm(c);

    if (is_for_plain(c) || magnitude(sum, c->group) > group_bits(GROUP_LARGE))
        return 1;
    if (c->transform == TRANSFORM_H32) {
        for (size_t i = 0; i < c->group; i += 32)
            (void)wht_floats(sum + i, sum + i, 32, 0);
    } else if (c->transform != TRANSFORM_NONE) {
        (void)wht_group(sum, sum, c->group);
        for (size_t i = 0; i < c->group; i += LANES) {
            vf x = load(sum + i) * norm;

            store(sum + i, c->transform == TRANSFORM_RHT ? with_signs(x, i) : x);
        }
    }
    return 0;
}

const struct group_ops GROUP_TABLE = {
    .name = GROUP_NAME,
    .widen = widen,
    .narrow = narrow,
    .subtract = subtract,
    .add_rounded = add_rounded,
    .encode = encode,
    .decode = decode,
    .add = add,
    .add_own = add_own,
    .finish = finish,
    .quantise = quantise,
};
