/* tile_body - the tile of tile.h, included by one file for each width of vectors
 *
 * The including file sets TILE_TABLE, ROWS, WIDTH, the floats of a vector, and AHEAD, the steps of the depth by which B
 * is asked for beforehand, 0 for not at all; there is no guard, as it is the whole of that file. A tile is two vectors
 * wide. Operands are packed by vectors of eight whatever the width.
 */
#include "worker/engine/kernels/cpu/tile.h"

#include <stdint.h>
#include <string.h>

#include "base/bf16.h"

typedef float v8 __attribute__((vector_size(32)));
typedef uint32_t v8u __attribute__((vector_size(32)));
typedef uint16_t v8h_at __attribute__((vector_size(16), aligned(2), may_alias));
typedef float v8_at __attribute__((vector_size(32), aligned(4), may_alias));
typedef float vw __attribute__((vector_size(4 * WIDTH)));
typedef float vw_at __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

enum { COLUMNS = 2 * WIDTH, LANES = 8 };

_Static_assert(ROWS *COLUMNS <= TILE_FLOATS_MAX, "the edges of C are made in an array of so many");
_Static_assert(ROWS <= 2 * LANES, "a panel of A is turned in two parts");

static inline v8 load(const float *p)
{
    return *(const v8_at *)p;
}

static inline void store(float *p, v8 v)
{
    *(v8_at *)p = v;
}

/* Columns of eight rows of eight numbers become rows. */
static inline void turn8(v8 r[LANES])
{
    v8 a[LANES], b[LANES];

    for (int i = 0; i < LANES; i += 2) {
        a[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        a[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < LANES; i += 4) {
        b[i] = __builtin_shufflevector(a[i], a[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        b[i + 1] = __builtin_shufflevector(a[i], a[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        b[i + 2] = __builtin_shufflevector(a[i + 1], a[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        b[i + 3] = __builtin_shufflevector(a[i + 1], a[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
    for (int i = 0; i < LANES / 2; i++) {
        r[i] = __builtin_shufflevector(b[i], b[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        r[i + 4] = __builtin_shufflevector(b[i], b[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

/* What is packed, moved on by n numbers; whether it is bf16 is known where these are inlined. */
static inline const void *on(bool bf16, const void *x, size_t n)
{
    return (const char *)x + n * (bf16 ? sizeof(uint16_t) : sizeof(float));
}

static inline v8 eight(bool bf16, const void *x, size_t at)
{
    if (!bf16)
        return load((const float *)x + at);
    return (v8)(__builtin_convertvector(*(const v8h_at *)((const uint16_t *)x + at), v8u) << 16);
}

static inline float one(bool bf16, const void *x, size_t at)
{
    return bf16 ? bf16_to_float(((const uint16_t *)x)[at]) : ((const float *)x)[at];
}

/* Up to eight lines, each of them contiguous. A store of fewer than eight is made good by the next one. */
static inline void turn_lines(bool bf16, const void *x, size_t ld, int have, int depth, float *to, int width)
{
    int p = 0;

    for (; p + LANES <= depth; p += LANES, to += LANES * width) {
        v8 r[LANES];

#pragma GCC unroll 8
        for (int i = 0; i < LANES; i++)
            r[i] = i < have ? eight(bf16, x, (size_t)i * ld + (size_t)p) : (v8){0};
        turn8(r);
#pragma GCC unroll 8
        for (int i = 0; i < LANES; i++)
            store(to + i * width, r[i]);
    }
    for (; p < depth; p++, to += width) {
        v8 r = {0};

        for (int i = 0; i < have && i < LANES; i++)
            r[i] = one(bf16, x, (size_t)i * ld + (size_t)p);
        store(to, r);
    }
}

/* The last lines first: what is stored behind them the others make good. */
static inline void turn_rows(bool bf16, const void *x, size_t ld, int have, int depth, float *to)
{
    if (ROWS > LANES)
        turn_lines(bf16, on(bf16, x, LANES * ld), ld, have - LANES, depth, to + LANES, ROWS);
    turn_lines(bf16, x, ld, have < LANES ? have : LANES, depth, to, ROWS);
}

static inline void pack_turned(bool bf16, const void *x, size_t ld, int width, int lines, int depth, float *to,
                               size_t apart)
{
    for (; lines > 0; lines -= width, x = on(bf16, x, ld * (size_t)width), to += apart) {
        if (width == ROWS && lines >= ROWS)
            turn_rows(bf16, x, ld, ROWS, depth, to);
        else if (width == ROWS)
            turn_rows(bf16, x, ld, lines, depth, to);
        else if (lines >= COLUMNS)
            for (int i = 0; i < COLUMNS; i += LANES)
                turn_lines(bf16, on(bf16, x, (size_t)i * ld), ld, LANES, depth, to + i, COLUMNS);
        else
            for (int i = 0; i < COLUMNS; i += LANES)
                turn_lines(bf16, on(bf16, x, (size_t)i * ld), ld, lines - i, depth, to + i, COLUMNS);
    }
}

/* `have` numbers as floats, the rest of width 0. left: how many numbers follow x in its row. */
static inline void spread(bool bf16, const void *x, int have, int left, float *out, int width)
{
    int i = 0;

    if (!bf16) {
        memcpy(out, x, (size_t)have * sizeof(*out));
        i = have;
    }
    for (; i < have && left - i >= LANES; i += LANES) {
        v8 v = eight(bf16, x, (size_t)i);

        memcpy(out + i, &v, (size_t)(width - i < LANES ? width - i : LANES) * sizeof(*out));
    }
    for (; i < have; i++)
        out[i] = one(bf16, x, (size_t)i);
    for (i = have; i < width; i++)
        out[i] = 0;
}

/* The lines of one step of the depth lie side by side. */
static inline void pack_straight(bool bf16, const void *x, size_t ld, int width, int lines, int depth, float *to,
                                 size_t apart)
{
    int whole = lines / width * width;

    for (int p = 0; p < depth; p++, x = on(bf16, x, ld), to += width) {
        float *out = to;

        for (int i = 0; i < lines; i += bf16 ? 32 : 16)
            __builtin_prefetch(on(bf16, x, 16 * ld + (size_t)i));
        for (int i = 0; i < whole; i += width, out += apart)
            spread(bf16, on(bf16, x, (size_t)i), width, lines - i, out, width);
        if (whole < lines)
            spread(bf16, on(bf16, x, (size_t)whole), lines - whole, lines - whole, out, width);
    }
}

static inline void pack_as(bool bf16, const void *x, size_t ld, bool turned, int width, int lines, int depth, float *to,
                           size_t apart)
{
    if (turned)
        pack_turned(bf16, x, ld, width, lines, depth, to, apart);
    else if (width == COLUMNS)
        pack_straight(bf16, x, ld, COLUMNS, lines, depth, to, apart);
    else
        pack_straight(bf16, x, ld, ROWS, lines, depth, to, apart);
}

static void pack(enum kern_type type, const void *x, size_t ld, bool turned, int width, int lines, int depth, float *to,
                 size_t apart)
{
    if (type == KERN_BF16)
        pack_as(true, x, ld, turned, width, lines, depth, to, apart);
    else
        pack_as(false, x, ld, turned, width, lines, depth, to, apart);
}

static inline vw wide(const float *p)
{
    return *(const vw_at *)p;
}

/* rows, and which of row and step is 1, are known where this is inlined. */
static inline __attribute__((always_inline)) void tile(int rows, int depth, const float *restrict a, size_t row,
                                                       size_t step, const float *restrict b, float *restrict c,
                                                       size_t ldc, bool add)
{
    vw s[ROWS][2];

#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        s[i][0] = s[i][1] = (vw){0};
        __builtin_prefetch(c + (size_t)i * ldc, 1);
    }
    for (int p = 0; p < depth; p++, a += step, b += COLUMNS) {
        vw b0 = wide(b), b1 = wide(b + WIDTH);

        if (AHEAD) {
            __builtin_prefetch(b + AHEAD * COLUMNS);
            __builtin_prefetch(b + AHEAD * COLUMNS + WIDTH);
        }
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            s[i][0] += a[(size_t)i * row] * b0;
            s[i][1] += a[(size_t)i * row] * b1;
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++, c += ldc) {
        *(vw_at *)c = add ? wide(c) + s[i][0] : s[i][0];
        *(vw_at *)(c + WIDTH) = add ? wide(c + WIDTH) + s[i][1] : s[i][1];
    }
}

static void multiply(int depth, const float *a, const float *b, float *c, size_t ldc, bool add)
{
    tile(ROWS, depth, a, 1, ROWS, b, c, ldc, add);
}

#define FEWER(n)                                                                                                       \
    case n:                                                                                                            \
        if (n < ROWS)                                                                                                  \
            tile(n, depth, a, row, step, b, c, ldc, add);                                                              \
        break

static inline __attribute__((always_inline)) void lying(int rows, int depth, const float *a, size_t row, size_t step,
                                                        const float *b, float *c, size_t ldc, bool add)
{
    switch (rows) {
        FEWER(1);
        FEWER(2);
        FEWER(3);
        FEWER(4);
        FEWER(5);
#if ROWS > 6
        FEWER(6);
        FEWER(7);
        FEWER(8);
        FEWER(9);
        FEWER(10);
        FEWER(11);
#endif
    default:
        tile(ROWS, depth, a, row, step, b, c, ldc, add);
    }
}

static void multiply_lying(int rows, int depth, const float *a, size_t row, size_t step, const float *b, float *c,
                           size_t ldc, bool add)
{
    if (row == 1)
        lying(rows, depth, a, 1, step, b, c, ldc, add);
    else
        lying(rows, depth, a, row, 1, b, c, ldc, add);
}

const struct cpu_tile TILE_TABLE = {
    .rows = ROWS, .columns = COLUMNS, .pack = pack, .multiply = multiply, .multiply_lying = multiply_lying};
