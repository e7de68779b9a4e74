#include "compress/eb.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress/le.h"
#include "compress/symbols.h"

#define CHUNK 65536u /* values */
#define RUN 32u      /* values that share a width */
#define HEADER_BYTES 24
#define CHUNK_HEADER_BYTES 12
#define RAW_RUN_BYTES (1 + 4 * RUN)
#define WIDTH_MAX 30
#define WIDTH_RAW 255
#define VERSION 1
#define ESCAPE 127
#define RAW INT32_MIN /* in place of a q */

enum { MODE_FIXED, MODE_SYMBOLS };

struct eb {
    struct symbols coder;
    int32_t q[CHUNK];
    uint8_t symbols[CHUNK];
};

struct eb *eb_new(void)
{
    struct eb *e = calloc(1, sizeof(*e));

    if (!e)
        return NULL;
    if (symbols_init(&e->coder) < 0) {
        eb_free(e);
        return NULL;
    }
    return e;
}

void eb_free(struct eb *e)
{
    if (!e)
        return;
    symbols_clear(&e->coder);
    free(e);
}

size_t eb_size_max(size_t count)
{
    assert(count <= EB_COUNT_MAX);
    return HEADER_BYTES + (count + CHUNK - 1) / CHUNK * CHUNK_HEADER_BYTES + (count + RUN - 1) / RUN * RAW_RUN_BYTES;
}

float eb_bound_at(enum eb_class class, float rms, uint64_t step, uint64_t steps)
{
    static const float of_rms[] = {[EB_LOW] = 0.05f, [EB_MEDIUM] = 0.03f, [EB_HIGH] = 0.01f};
    double early = (double)steps / 10, done = early > 0 ? (double)step / early : 1;

    return of_rms[class] * rms * (float)(done < 1 ? 2 - done : 1);
}

static int is_bound(float bound)
{
    return bound > 0 && isfinite(2 * bound) && isfinite(0.5f / bound);
}

/* --- encode ------------------------------------------------------------------------------------------------------ */

/* Steps of n values; RAW where the bound would not be kept. */
static void quantise(float bound, const float *in, size_t n, int32_t *q)
{
    const float inv = 0.5f / bound, step = 2 * bound;

    for (size_t i = 0; i < n; i++) {
        float t = in[i] * inv, back;

        if (!(fabsf(t) < 0x1p30f - 1)) {
            q[i] = RAW;
            continue;
        }
        q[i] = (int32_t)(t + copysignf(0.5f, t));
        back = step * (float)q[i];
        if (!(fabs((double)in[i] - (double)back) <= (double)bound) || abs(q[i]) >= 1 << WIDTH_MAX)
            q[i] = RAW;
    }
}

/* Bits of the largest of a run's magnitudes, or WIDTH_RAW. */
static int width_of(const int32_t *q, size_t n)
{
    uint32_t all = 0;
    int w = 0;

    for (size_t i = 0; i < n; i++) {
        if (q[i] == RAW)
            return WIDTH_RAW;
        all |= (uint32_t)abs(q[i]);
    }
    while (all >> w)
        w++;
    return w;
}

static size_t run_bytes(int w)
{
    return w == 0 ? 0 : w == WIDTH_RAW ? 4 * RUN : 4 + 4 * (size_t)w;
}

static void put_run(int w, const int32_t *q, const float *in, size_t n, uint8_t *out)
{
    uint32_t words[1 + WIDTH_MAX] = {0};

    if (w == WIDTH_RAW) {
        memset(out, 0, 4 * RUN);
        memcpy(out, in, 4 * n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t m = (uint32_t)abs(q[i]), top = UINT32_C(1) << (31 - i);

        words[0] |= q[i] < 0 ? top : 0;
        for (int j = 0; j < w; j++)
            words[1 + j] |= m >> j & 1 ? top : 0;
    }
    for (int j = 0; w > 0 && j <= w; j++)
        le_put(out + 4 * j, words[j], 4);
}

static size_t put_fixed(const struct eb *e, const float *in, size_t n, uint8_t *out)
{
    size_t runs = (n + RUN - 1) / RUN;
    uint8_t *at = out + CHUNK_HEADER_BYTES + runs;

    memset(out, 0, CHUNK_HEADER_BYTES);
    for (size_t r = 0; r < runs; r++) {
        size_t first = r * RUN, len = n - first < RUN ? n - first : RUN;
        int w = width_of(e->q + first, len);

        out[CHUNK_HEADER_BYTES + r] = (uint8_t)w;
        put_run(w, e->q + first, in + first, len, at);
        at += run_bytes(w);
    }
    return (size_t)(at - out);
}

/* Symbols in less than cap bytes, written over out only if they fit. Returns bytes, or 0. */
static size_t put_symbols(struct eb *e, const float *in, size_t n, uint8_t *out, size_t cap)
{
    size_t raw = 0, len;

    for (size_t i = 0; i < n; i++) {
        int is_raw = e->q[i] < -126 || e->q[i] > 126;

        e->symbols[i] = (uint8_t)(is_raw ? ESCAPE : e->q[i]);
        raw += (size_t)is_raw;
    }
    if (CHUNK_HEADER_BYTES + 4 * raw + n / 8 >= cap) /* a symbol takes a bit at least */
        return 0;
    len = symbols_pack(&e->coder, e->symbols, n, e->q, sizeof(e->q)); /* over the numbers: not needed again */
    if (len == 0 || CHUNK_HEADER_BYTES + len + 4 * raw >= cap)
        return 0;
    le_put(out, MODE_SYMBOLS, 4);
    le_put(out + 4, len, 4);
    le_put(out + 8, raw, 4);
    memcpy(out + CHUNK_HEADER_BYTES, e->q, len);
    out += CHUNK_HEADER_BYTES + len;
    for (size_t i = 0; i < n; i++)
        if (e->symbols[i] == ESCAPE) {
            memcpy(out, in + i, 4);
            out += 4;
        }
    return CHUNK_HEADER_BYTES + len + 4 * raw;
}

int eb_encode(struct eb *e, enum eb_mode mode, float bound, const float *in, size_t count, void *out, size_t *ret_len,
              struct merr *err)
{
    uint8_t *at = out;

    assert(count <= EB_COUNT_MAX);
    if (!is_bound(bound))
        return merr_set(err, -EINVAL, "an error bound of %g cannot be kept; want a positive number", (double)bound);
    memcpy(at, "EBND", 4);
    le_put(at + 4, VERSION, 4);
    le_put(at + 8, count, 8);
    memcpy(at + 16, &bound, 4);
    le_put(at + 20, 0, 4);
    at += HEADER_BYTES;
    for (size_t i = 0; i < count; i += CHUNK) {
        size_t n = count - i < CHUNK ? count - i : CHUNK, len, smaller;

        quantise(bound, in + i, n, e->q);
        len = put_fixed(e, in + i, n, at);
        smaller = mode == EB_BEST ? put_symbols(e, in + i, n, at, len) : 0;
        at += smaller ? smaller : len;
    }
    *ret_len = (size_t)(at - (uint8_t *)out);
    return 0;
}

/* --- decode ------------------------------------------------------------------------------------------------------ */

static void get_run(int w, const uint8_t *in, float step, float *out, size_t n)
{
    uint32_t words[1 + WIDTH_MAX] = {0};

    if (w == WIDTH_RAW) {
        memcpy(out, in, 4 * n);
        return;
    }
    for (int j = 0; w > 0 && j <= w; j++)
        words[j] = (uint32_t)le_get(in + 4 * j, 4);
    for (size_t i = 0; i < n; i++) {
        int32_t q = 0;

        for (int j = 0; j < w; j++)
            q |= (int32_t)(words[1 + j] >> (31 - i) & 1) << j;
        out[i] = step * (float)(words[0] >> (31 - i) & 1 ? -q : q);
    }
}

/* Decode the runs at in. Returns bytes, or 0: they are none. */
static size_t get_fixed(const uint8_t *in, size_t len, float step, float *out, size_t n)
{
    size_t runs = (n + RUN - 1) / RUN, at = runs;

    if (len < runs)
        return 0;
    for (size_t r = 0; r < runs; r++) {
        size_t first = r * RUN;
        int w = in[r];

        if ((w > WIDTH_MAX && w != WIDTH_RAW) || run_bytes(w) > len - at)
            return 0;
        get_run(w, in + at, step, out + first, n - first < RUN ? n - first : RUN);
        at += run_bytes(w);
    }
    return at;
}

static size_t get_symbols(struct eb *e, const uint8_t *in, size_t len, size_t symbol_bytes, size_t raw, float step,
                          float *out, size_t n)
{
    size_t at = symbol_bytes, used = 0;

    if (raw > n || symbol_bytes + 4 * raw > len)
        return 0;
    if (symbols_unpack(&e->coder, in, symbol_bytes, e->symbols, n) < 0)
        return 0;
    for (size_t i = 0; i < n; i++) {
        int8_t s = (int8_t)e->symbols[i];

        if (s != ESCAPE) {
            out[i] = step * (float)s;
            continue;
        }
        if (used++ == raw)
            return 0;
        memcpy(out + i, in + at, 4);
        at += 4;
    }
    return used == raw ? at : 0;
}

static size_t get_chunk(struct eb *e, const uint8_t *in, size_t len, float step, float *out, size_t n)
{
    uint64_t mode, symbol_bytes, raw;
    size_t used;

    if (len < CHUNK_HEADER_BYTES)
        return 0;
    mode = le_get(in, 4);
    symbol_bytes = le_get(in + 4, 4);
    raw = le_get(in + 8, 4);
    in += CHUNK_HEADER_BYTES;
    len -= CHUNK_HEADER_BYTES;
    if (mode > MODE_SYMBOLS || (mode == MODE_FIXED && (symbol_bytes || raw)))
        return 0;
    used = mode == MODE_FIXED ? get_fixed(in, len, step, out, n)
                              : get_symbols(e, in, len, symbol_bytes, raw, step, out, n);
    return used ? CHUNK_HEADER_BYTES + used : 0;
}

int eb_decode(struct eb *e, const void *in, size_t len, float *out, size_t count, struct merr *err)
{
    const uint8_t *at = in;
    float bound;

    if (len < HEADER_BYTES || memcmp(at, "EBND", 4) != 0 || le_get(at + 4, 4) != VERSION || le_get(at + 20, 4))
        return merr_set(err, -EBADMSG, "%zu bytes are no error-bounded values that this Muster reads", len);
    memcpy(&bound, at + 16, 4);
    if (!is_bound(bound))
        return merr_set(err, -EBADMSG, "error-bounded values carry a bound of %g", (double)bound);
    if (le_get(at + 8, 8) != count)
        return merr_set(err, -EBADMSG, "error-bounded values are %llu, not %zu", (unsigned long long)le_get(at + 8, 8),
                        count);
    at += HEADER_BYTES;
    len -= HEADER_BYTES;
    for (size_t i = 0; i < count; i += CHUNK) {
        size_t used = get_chunk(e, at, len, 2 * bound, out + i, count - i < CHUNK ? count - i : CHUNK);

        if (used == 0)
            return merr_set(err, -EBADMSG, "error-bounded values are damaged in chunk %zu", i / CHUNK);
        at += used;
        len -= used;
    }
    if (len > 0)
        return merr_set(err, -EBADMSG, "%zu bytes follow error-bounded values", len);
    return 0;
}
