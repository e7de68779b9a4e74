#include "compress/optq.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "compress/le.h"
#include "compress/symbols.h"

#define CHUNK 65536u /* elements */
#define HEADER_BYTES 24
#define NUMBERS_HEADER_BYTES 24
#define VERSION 1
#define SHIFT_MAX 7
#define HIGH_LEN 125 /* high symbols of numbers */
#define RARE 512     /* one wide number in so many is no reason for another low bit */
#define NUMBER_MAX (1 << 30)
#define RHO_MIN 0.001f
#define RHO_MAX 0.5f
#define EB_MIN 0x1p-20f
#define FRAME_BYTES 512  /* that symbols which do not shrink may grow by */
#define POWERS_MAX 52000 /* either way of 1, at RHO_MIN: 149 octaves in steps of 0.00288 */

enum { ZERO = HIGH_LEN, WIDE, RAW };                          /* high symbols */
enum { NUMBER_ZERO = INT32_MIN, NUMBER_RAW = INT32_MIN + 1 }; /* in place of a number */

struct optq {
    struct symbols coder;
    float rho;                       /* of the powers below; 0: there are none yet */
    int least, most;                 /* exponents of the first and last power that an f32 holds */
    float power[2 * POWERS_MAX + 1]; /* of (1 + rho)^2, from exponent -POWERS_MAX */
    int32_t v[CHUNK], m[CHUNK];
    uint8_t high[CHUNK], low[CHUNK];
};

struct optq *optq_new(void)
{
    struct optq *o = calloc(1, sizeof(*o));

    if (!o)
        return NULL;
    if (symbols_init(&o->coder) < 0) {
        optq_free(o);
        return NULL;
    }
    return o;
}

void optq_free(struct optq *o)
{
    if (!o)
        return;
    symbols_clear(&o->coder);
    free(o);
}

/* Numbers all raw, with symbols that do not shrink. */
size_t optq_size_max(size_t count)
{
    size_t chunks = (count + CHUNK - 1) / CHUNK;

    assert(count <= OPTQ_COUNT_MAX);
    return HEADER_BYTES + chunks * 2 * (NUMBERS_HEADER_BYTES + 2 * FRAME_BYTES) + count * 2 * (2 + sizeof(float));
}

static int check_bounds(const struct optq_bounds *b, int code, struct merr *err)
{
    if (!(b->rho >= RHO_MIN && b->rho <= RHO_MAX))
        return merr_set(err, code, "moments cannot be kept to %g of v; want %g to %g", (double)b->rho, (double)RHO_MIN,
                        (double)RHO_MAX);
    if (!(b->eb >= EB_MIN && b->eb <= 1))
        return merr_set(err, code, "updates cannot be kept to %g of the learning rate; want %g to 1", (double)b->eb,
                        (double)EB_MIN);
    return 0;
}

int optq_check_bounds(const struct optq_bounds *bounds, struct merr *err)
{
    return check_bounds(bounds, -EINVAL, err);
}

/* Powers of (1 + rho)^2 as far as an f32 goes. */
static void make_powers(struct optq *o, float rho)
{
    const double g = (1 + (double)rho) * (1 + (double)rho);
    double squares[17] = {g};

    if (o->rho == rho)
        return;
    for (int i = 1; i < 17; i++)
        squares[i] = squares[i - 1] * squares[i - 1];
    o->rho = rho;
    o->least = o->most = 0;
    o->power[POWERS_MAX] = 1;
    for (int t = 1; t <= POWERS_MAX; t++) {
        double p = 1;

        for (int i = 0; i < 17; i++)
            p *= t >> i & 1 ? squares[i] : 1;
        o->power[POWERS_MAX + t] = (float)p;
        o->power[POWERS_MAX - t] = (float)(1 / p);
        o->most = isfinite(o->power[POWERS_MAX + t]) ? t : o->most;
        o->least = o->power[POWERS_MAX - t] > 0 ? -t : o->least;
    }
}

/* --- encode ------------------------------------------------------------------------------------------------------ */

/* The exponent of the power nearest to v, in *ret_v that power; NUMBER_RAW and v itself where none is near enough. */
static int32_t nearest_power(const struct optq *o, float octaves, float v, float *ret_v)
{
    int t = (int)lrintf(log2f(v) / octaves);

    *ret_v = v;
    if (t < o->least || t > o->most)
        return NUMBER_RAW;
    if (fabs((double)o->power[POWERS_MAX + t] - (double)v) > (double)o->rho * (double)v)
        return NUMBER_RAW;
    *ret_v = o->power[POWERS_MAX + t];
    return t;
}

/* m from its number of steps, by the square root of the v that decoding gives. */
static float scaled(float eb, int32_t q, double root)
{
    return (float)(2 * (double)eb * q * root);
}

/* Steps of m / sqrt(v); NUMBER_RAW where the bound would not be kept. */
static int32_t nearest_step(float eb, float m, float v, float v_coded)
{
    const double u = (double)m / sqrt((double)v), root = sqrt((double)v_coded), t = u * 0.5 / (double)eb;
    int32_t q;

    if (!(fabs(t) < NUMBER_MAX))
        return NUMBER_RAW;
    q = (int32_t)lrint(t);
    return fabs((double)scaled(eb, q, root) - u * root) <= (double)eb * (1 + 0x1p-20) * root ? q : NUMBER_RAW;
}

static void quantise(struct optq *o, float eb, const float *m, const float *v, size_t n)
{
    const float octaves = (float)(2 * log2(1 + (double)o->rho));

    for (size_t i = 0; i < n; i++) {
        float coded;

        if (v[i] == 0) {
            o->v[i] = NUMBER_ZERO;
            o->m[i] = m[i] == 0 ? 0 : NUMBER_RAW;
            continue;
        }
        o->v[i] = o->m[i] = NUMBER_RAW;
        if (!(v[i] > 0 && isfinite(v[i])))
            continue;
        o->v[i] = nearest_power(o, octaves, v[i], &coded);
        o->m[i] = nearest_step(eb, m[i], v[i], coded);
        if (o->m[i] == NUMBER_RAW) /* beside the raw m, only the raw v makes the same update */
            o->v[i] = NUMBER_RAW;
    }
}

static bool is_number(int32_t q)
{
    return q != NUMBER_ZERO && q != NUMBER_RAW;
}

/* Where the numbers of a chunk lie: those that symbols can say begin at base, with shift low bits each. */
struct window {
    int32_t base;
    int shift;
};

static bool is_inside(const struct window *w, int32_t q)
{
    return is_number(q) && q >= w->base && q - (int64_t)w->base < (int64_t)HIGH_LEN << w->shift;
}

/* Around the mean, with as few low bits as leave but few numbers outside. */
static struct window place(const int32_t *q, size_t n)
{
    struct window w = {0};
    int64_t sum = 0, numbers = 0, outside;

    for (size_t i = 0; i < n; i++)
        if (is_number(q[i])) {
            sum += q[i];
            numbers++;
        }
    for (w.shift = 0;; w.shift++) {
        outside = 0;
        w.base = (int32_t)((numbers ? sum / numbers : 0) - ((HIGH_LEN / 2) << w.shift));
        for (size_t i = 0; i < n && outside <= numbers / RARE; i++)
            outside += is_number(q[i]) && !is_inside(&w, q[i]);
        if (w.shift == SHIFT_MAX || outside <= numbers / RARE)
            return w;
    }
}

static size_t put_symbols(struct optq *o, const uint8_t *symbols, size_t n, uint8_t *out)
{
    size_t len = symbols_pack(&o->coder, symbols, n, out, n + FRAME_BYTES);

    assert(len > 0); /* a zstd frame of n bytes that do not shrink fits */
    return len;
}

/* Numbers of a chunk and, for raw ones, the values that they stand for. Returns the bytes. */
static size_t put_numbers(struct optq *o, const int32_t *q, const float *values, size_t n, uint8_t *out)
{
    const struct window w = place(q, n);
    size_t wide = 0, raw = 0, high_len, low_len = 0;
    uint8_t *at = out + NUMBERS_HEADER_BYTES;

    for (size_t i = 0; i < n; i++) {
        uint32_t from_base = (uint32_t)q[i] - (uint32_t)w.base;
        bool inside = is_inside(&w, q[i]);

        o->high[i] = (uint8_t)(inside                ? from_base >> w.shift
                               : q[i] == NUMBER_ZERO ? ZERO
                               : q[i] == NUMBER_RAW  ? RAW
                                                     : WIDE);
        o->low[i] = (uint8_t)(inside ? from_base & ((1u << w.shift) - 1) : 0);
        wide += o->high[i] == WIDE;
        raw += o->high[i] == RAW;
    }
    high_len = put_symbols(o, o->high, n, at);
    at += high_len;
    if (w.shift > 0)
        low_len = put_symbols(o, o->low, n, at);
    at += low_len;
    le_put(out, (uint64_t)w.shift, 4);
    le_put(out + 4, (uint32_t)w.base, 4);
    le_put(out + 8, high_len, 4);
    le_put(out + 12, low_len, 4);
    le_put(out + 16, wide, 4);
    le_put(out + 20, raw, 4);
    for (size_t i = 0; i < n; i++)
        if (o->high[i] == WIDE) {
            le_put(at, (uint32_t)q[i], 4);
            at += 4;
        }
    for (size_t i = 0; i < n; i++)
        if (o->high[i] == RAW) {
            memcpy(at, values + i, 4);
            at += 4;
        }
    return (size_t)(at - out);
}

int optq_encode(struct optq *o, const struct optq_bounds *bounds, const float *m, const float *v, size_t count,
                void *out, size_t *ret_len, struct merr *err)
{
    uint8_t *at = out;
    int r = check_bounds(bounds, -EINVAL, err);

    assert(count <= OPTQ_COUNT_MAX);
    if (r)
        return r;
    make_powers(o, bounds->rho);
    memcpy(at, "OPTQ", 4);
    le_put(at + 4, VERSION, 4);
    le_put(at + 8, count, 8);
    memcpy(at + 16, &bounds->rho, 4);
    memcpy(at + 20, &bounds->eb, 4);
    at += HEADER_BYTES;
    for (size_t i = 0; i < count; i += CHUNK) {
        size_t n = count - i < CHUNK ? count - i : CHUNK;

        quantise(o, bounds->eb, m + i, v + i, n);
        at += put_numbers(o, o->v, v + i, n, at);
        at += put_numbers(o, o->m, m + i, n, at);
    }
    *ret_len = (size_t)(at - (uint8_t *)out);
    return 0;
}

/* --- decode ------------------------------------------------------------------------------------------------------ */

struct numbers_header {
    uint64_t shift, high_len, low_len, wide, raw;
    uint32_t base;
};

/* The header of n numbers in len bytes. Returns all their bytes, or 0: they are none. */
static size_t get_header(const uint8_t *in, size_t len, size_t n, struct numbers_header *h)
{
    size_t body;

    if (len < NUMBERS_HEADER_BYTES)
        return 0;
    *h = (struct numbers_header){.shift = le_get(in, 4),
                                 .base = (uint32_t)le_get(in + 4, 4),
                                 .high_len = le_get(in + 8, 4),
                                 .low_len = le_get(in + 12, 4),
                                 .wide = le_get(in + 16, 4),
                                 .raw = le_get(in + 20, 4)};
    body = h->high_len + h->low_len + 4 * (h->wide + h->raw);
    if (h->shift > SHIFT_MAX || (h->shift == 0) != (h->low_len == 0) || h->wide + h->raw > n ||
        body > len - NUMBERS_HEADER_BYTES)
        return 0;
    return NUMBERS_HEADER_BYTES + body;
}

/* Numbers from symbols, and those that follow them at at; values where a number is NUMBER_RAW. */
static bool expand(const struct optq *o, struct numbers_header h, const uint8_t *at, int32_t *q, float *values,
                   size_t n)
{
    const uint8_t *raws = at + 4 * h.wide;

    for (size_t i = 0; i < n; i++) {
        int high = o->high[i];

        if (high == ZERO) {
            q[i] = NUMBER_ZERO;
        } else if (high == RAW) {
            if (h.raw-- == 0)
                return false;
            q[i] = NUMBER_RAW;
            memcpy(values + i, raws, 4);
            raws += 4;
        } else if (high == WIDE) {
            if (h.wide-- == 0)
                return false;
            q[i] = (int32_t)(uint32_t)le_get(at, 4);
            at += 4;
        } else {
            q[i] = (int32_t)(h.base + ((uint32_t)high << h.shift | o->low[i]));
        }
        if (high > RAW || o->low[i] >> h.shift || (high <= WIDE && high != ZERO && abs(q[i] / 2) > NUMBER_MAX / 2))
            return false;
    }
    return h.raw == 0 && h.wide == 0;
}

/* Numbers of a chunk. Returns the bytes, or 0: they are none. */
static size_t get_numbers(struct optq *o, const uint8_t *in, size_t len, int32_t *q, float *values, size_t n)
{
    struct numbers_header h;
    size_t used = get_header(in, len, n, &h);

    if (used == 0)
        return 0;
    in += NUMBERS_HEADER_BYTES;
    memset(o->low, 0, n);
    if (symbols_unpack(&o->coder, in, h.high_len, o->high, n) < 0 ||
        (h.low_len && symbols_unpack(&o->coder, in + h.high_len, h.low_len, o->low, n) < 0))
        return 0;
    return expand(o, h, in + h.high_len + h.low_len, q, values, n) ? used : 0;
}

/* Moments from numbers. False: no encoder makes such numbers. */
static bool restore(const struct optq *o, float eb, float *m, float *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (o->v[i] == NUMBER_ZERO)
            v[i] = 0;
        else if (o->v[i] != NUMBER_RAW && (o->v[i] < o->least || o->v[i] > o->most))
            return false;
        else if (o->v[i] != NUMBER_RAW)
            v[i] = o->power[POWERS_MAX + o->v[i]];
        if (o->m[i] == NUMBER_RAW)
            continue;
        if (o->m[i] == NUMBER_ZERO || !(v[i] >= 0 && isfinite(v[i])))
            return false;
        m[i] = scaled(eb, o->m[i], sqrt((double)v[i]));
    }
    return true;
}

static size_t get_chunk(struct optq *o, const uint8_t *in, size_t len, float eb, float *m, float *v, size_t n)
{
    size_t first = get_numbers(o, in, len, o->v, v, n), second;

    if (first == 0)
        return 0;
    second = get_numbers(o, in + first, len - first, o->m, m, n);
    return second && restore(o, eb, m, v, n) ? first + second : 0;
}

int optq_decode(struct optq *o, const void *in, size_t len, float *m, float *v, size_t count, struct merr *err)
{
    const uint8_t *at = in;
    struct optq_bounds bounds;
    int r;

    if (len < HEADER_BYTES || memcmp(at, "OPTQ", 4) != 0 || le_get(at + 4, 4) != VERSION)
        return merr_set(err, -EBADMSG, "%zu bytes are no coded moments that this Muster reads", len);
    memcpy(&bounds.rho, at + 16, 4);
    memcpy(&bounds.eb, at + 20, 4);
    r = check_bounds(&bounds, -EBADMSG, err);
    if (r)
        return r;
    if (le_get(at + 8, 8) != count)
        return merr_set(err, -EBADMSG, "coded moments are of %llu elements, not %zu",
                        (unsigned long long)le_get(at + 8, 8), count);
    make_powers(o, bounds.rho);
    at += HEADER_BYTES;
    len -= HEADER_BYTES;
    for (size_t i = 0; i < count; i += CHUNK) {
        size_t n = count - i < CHUNK ? count - i : CHUNK, used = get_chunk(o, at, len, bounds.eb, m + i, v + i, n);

        if (used == 0)
            return merr_set(err, -EBADMSG, "coded moments are damaged in chunk %zu", i / CHUNK);
        at += used;
        len -= used;
    }
    if (len > 0)
        return merr_set(err, -EBADMSG, "%zu bytes follow coded moments", len);
    return 0;
}
