#include "compress/chunk.h"

#include <assert.h>
#include <errno.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#include <zstd.h>

#include "compress/optq.h"
#include "compress/symbols.h"

#define PROBE_BYTES (16u << 10)

struct chunk_coder {
    struct symbols coder;
    uint8_t *planes; /* CHUNK_BYTES_MAX */
    struct optq *optq;
    float *moments; /* both of CHUNK_MOMENTS elements */
    uint8_t probe[2 * PROBE_BYTES];
};

struct chunk_coder *chunk_coder_new(void)
{
    struct chunk_coder *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->planes = malloc(CHUNK_BYTES_MAX);
    c->optq = optq_new();
    c->moments = malloc(2 * (size_t)CHUNK_BYTES_MAX);
    if (symbols_init(&c->coder) < 0 || !c->planes || !c->optq || !c->moments) {
        chunk_coder_free(c);
        return NULL;
    }
    return c;
}

void chunk_coder_free(struct chunk_coder *c)
{
    if (!c)
        return;
    symbols_clear(&c->coder);
    optq_free(c->optq);
    free(c->moments);
    free(c->planes);
    free(c);
}

/* --- filters ----------------------------------------------------------------------------------- */

#define SPLIT(bits)                                                                                                    \
    static void split##bits(int rotate, const uint8_t *in, uint8_t *out, size_t begin, size_t count)                   \
    {                                                                                                                  \
        for (size_t i = begin; i < count; i++) {                                                                       \
            uint##bits##_t u;                                                                                          \
                                                                                                                       \
            memcpy(&u, in + i * sizeof(u), sizeof(u));                                                                 \
            if (rotate)                                                                                                \
                u = (uint##bits##_t)(u << 1 | u >> (bits - 1));                                                        \
            for (size_t k = 0; k < sizeof(u); k++)                                                                     \
                out[k * count + i] = (uint8_t)(u >> (bits - 8 - 8 * k));                                               \
        }                                                                                                              \
    }                                                                                                                  \
    static void join##bits(int rotate, const uint8_t *in, uint8_t *out, size_t count)                                  \
    {                                                                                                                  \
        for (size_t i = 0; i < count; i++) {                                                                           \
            uint##bits##_t u = 0;                                                                                      \
                                                                                                                       \
            for (size_t k = 0; k < sizeof(u); k++)                                                                     \
                u |= (uint##bits##_t)((uint##bits##_t)in[k * count + i] << (bits - 8 - 8 * k));                        \
            if (rotate)                                                                                                \
                u = (uint##bits##_t)(u >> 1 | u << (bits - 1));                                                        \
            memcpy(out + i * sizeof(u), &u, sizeof(u));                                                                \
        }                                                                                                              \
    }
SPLIT(16)
SPLIT(32)
SPLIT(64)

/* As split32 of the first of count elements: how many that were. Memory is as fast. */
#if defined(__SSE2__)
#define AT_ONCE 16u

/* The upper and the lower bytes of sixteen words. */
static __m128i upper(__m128i a, __m128i b)
{
    return _mm_packus_epi16(_mm_srli_epi16(a, 8), _mm_srli_epi16(b, 8));
}

static __m128i lower(__m128i a, __m128i b)
{
    const __m128i byte = _mm_set1_epi16(0xFF);

    return _mm_packus_epi16(_mm_and_si128(a, byte), _mm_and_si128(b, byte));
}

static __m128i load(const uint8_t *p, int rotate)
{
    const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);

    return rotate ? _mm_or_si128(_mm_slli_epi32(v, 1), _mm_srli_epi32(v, 31)) : v;
}

static void store(uint8_t *p, __m128i v)
{
    _mm_storeu_si128((__m128i *)(void *)p, v);
}

static size_t split32_most(int rotate, const uint8_t *in, uint8_t *out, size_t count)
{
    size_t i = 0;

    for (; count - i >= AT_ONCE; i += AT_ONCE) {
        __m128i odd[2], even[2]; /* bytes 3 and 1 of elements in turn; bytes 2 and 0 */

        for (size_t k = 0; k < 2; k++) {
            const __m128i a = load(in + 4 * i + 32 * k, rotate), b = load(in + 4 * i + 32 * k + 16, rotate);

            odd[k] = upper(a, b);
            even[k] = lower(a, b);
        }
        store(out + i, upper(odd[0], odd[1]));
        store(out + count + i, upper(even[0], even[1]));
        store(out + 2 * count + i, lower(odd[0], odd[1]));
        store(out + 3 * count + i, lower(even[0], even[1]));
    }
    return i;
}
#else
static size_t split32_most(int rotate, const uint8_t *in, uint8_t *out, size_t count)
{
    (void)rotate, (void)in, (void)out, (void)count;
    return 0;
}
#endif

void chunk_split(size_t esize, int rotate, const void *in, void *out, size_t n)
{
    size_t count = n / esize, whole = count * esize;

    if (esize == 2)
        split16(rotate, in, out, 0, count);
    else if (esize == 4)
        split32(rotate, in, out, split32_most(rotate, in, out, count), count);
    else if (esize == 8)
        split64(rotate, in, out, 0, count);
    else
        whole = 0;
    memcpy((uint8_t *)out + whole, (const uint8_t *)in + whole, n - whole);
}

void chunk_join(size_t esize, int rotate, const void *in, void *out, size_t n)
{
    size_t count = n / esize, whole = count * esize;

    if (esize == 2)
        join16(rotate, in, out, count);
    else if (esize == 4)
        join32(rotate, in, out, count);
    else if (esize == 8)
        join64(rotate, in, out, count);
    else
        whole = 0;
    memcpy((uint8_t *)out + whole, (const uint8_t *)in + whole, n - whole);
}

/* --- encode ------------------------------------------------------------------------------------ */

/* Does the first plane promise to save 3 % of all planes? Judged by a piece from its middle. */
static int worth_it(struct chunk_coder *c, const uint8_t *plane, size_t count, size_t planes)
{
    size_t n = count < PROBE_BYTES ? count : PROBE_BYTES;
    size_t len = symbols_pack(&c->coder, plane + (count - n) / 2, n, c->probe, sizeof(c->probe));

    return len && (n - (len < n ? len : n)) * 100 >= n * planes * 3;
}

/* Returns stored bytes, or 0: not worth it. */
static size_t encode_plane(struct chunk_coder *c, size_t esize, const uint8_t *in, size_t n, uint8_t *out)
{
    size_t count = n / esize, len;
    uint32_t stored;

    if (!count)
        return 0;
    chunk_split(esize, 1, in, c->planes, n);
    if (!worth_it(c, c->planes, count, esize) || count < 8)
        return 0;
    len = symbols_pack(&c->coder, c->planes, count, out + 4, count - 4);
    if (!len)
        return 0;
    stored = (uint32_t)len;
    memcpy(out, &stored, 4);
    memcpy(out + 4 + len, c->planes + count, n - count);
    return 4 + len + n - count;
}

static size_t encode_zstd(struct chunk_coder *c, const uint8_t *in, size_t n, uint8_t *out)
{
    size_t len;

    (void)ZSTD_CCtx_reset(c->coder.zc, ZSTD_reset_session_and_parameters);
    (void)ZSTD_CCtx_setParameter(c->coder.zc, ZSTD_c_compressionLevel, 1);
    len = ZSTD_compress2(c->coder.zc, out, n, in, n);
    return ZSTD_isError(len) ? 0 : len;
}

void chunk_encode(struct chunk_coder *c, enum chunk_codec codec, size_t esize, int is_float, const void *in, size_t n,
                  void *out, struct chunk_form *ret)
{
    struct chunk_form form = {.codec = CHUNK_RAW, .len = (uint32_t)n};
    size_t len = 0;
    int filter = esize > 1 ? CHUNK_SHUFFLE : CHUNK_NO_FILTER;

    assert(n > 0 && n <= CHUNK_BYTES_MAX);
    assert(codec <= CHUNK_PLANE);
    if (codec == CHUNK_PLANE && (!is_float || esize < 2))
        codec = CHUNK_ZSTD; /* no exponents here */
    if (codec == CHUNK_PLANE) {
        filter = CHUNK_ROTATE;
        len = encode_plane(c, esize, in, n, out);
    } else if (codec != CHUNK_RAW) {
        if (filter)
            chunk_split(esize, 0, in, c->planes, n);
        if (codec == CHUNK_ZSTD)
            len = encode_zstd(c, filter ? c->planes : in, n, out);
        else
            len = (size_t)LZ4_compress_default((const char *)(filter ? c->planes : in), out, (int)n, (int)n);
    }
    if (len && len * 100 <= n * 97)
        form = (struct chunk_form){.codec = (uint8_t)codec, .filter = (uint8_t)filter, .len = (uint32_t)len};
    *ret = form;
}

/* --- decode ------------------------------------------------------------------------------------ */

static int decode_plane(struct chunk_coder *c, size_t esize, const uint8_t *in, size_t len, uint8_t *out, size_t n)
{
    size_t count = n / esize;
    uint32_t stored;

    if (len < 4)
        return -EBADMSG;
    memcpy(&stored, in, 4);
    if (stored > len - 4 || len - 4 - stored != n - count)
        return -EBADMSG;
    if (symbols_unpack(&c->coder, in + 4, stored, out, count) < 0)
        return -EBADMSG;
    memcpy(out + count, in + 4 + stored, n - count);
    return 0;
}

/* One of the moments, without those beyond n bytes. */
static int decode_moment(struct chunk_coder *c, const struct chunk_form *form, const void *in, void *out, size_t n)
{
    float *m = c->moments, *v = m + CHUNK_MOMENTS;

    if (form->filter || optq_decode(c->optq, in, form->len, m, v, CHUNK_MOMENTS, NULL))
        return -EBADMSG;
    memcpy(out, form->codec == CHUNK_MOMENT1 ? m : v, n);
    return 0;
}

int chunk_decode(struct chunk_coder *c, const struct chunk_form *form, size_t esize, const void *in, void *out,
                 size_t n)
{
    uint8_t *to = form->filter ? c->planes : out;

    if (n > CHUNK_BYTES_MAX || form->filter > CHUNK_ROTATE || (esize != 1 && esize != 2 && esize != 4 && esize != 8))
        return -EBADMSG;
    switch (form->codec) {
    case CHUNK_RAW:
        if (form->len != n || form->filter)
            return -EBADMSG;
        memcpy(to, in, n);
        break;
    case CHUNK_ZSTD:
        if (symbols_unpack(&c->coder, in, form->len, to, n) < 0)
            return -EBADMSG;
        break;
    case CHUNK_LZ4:
        if (LZ4_decompress_safe(in, (char *)to, (int)form->len, (int)n) != (int)n)
            return -EBADMSG;
        break;
    case CHUNK_PLANE:
        if (form->filter != CHUNK_ROTATE || decode_plane(c, esize, in, form->len, to, n))
            return -EBADMSG;
        break;
    case CHUNK_MOMENT1:
    case CHUNK_MOMENT2:
        if (decode_moment(c, form, in, to, n))
            return -EBADMSG;
        break;
    default:
        return -EBADMSG;
    }
    if (form->filter)
        chunk_join(esize, form->filter == CHUNK_ROTATE, c->planes, out, n);
    return 0;
}
