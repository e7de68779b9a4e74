#include "compress/ulpd.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "compress/le.h"
#include "compress/symbols.h"

#define CHUNK 131072u /* values */
#define HEADER_BYTES 32
#define CHUNK_HEADER_BYTES 16
#define VERSION 1
#define ESCAPE 127
#define MINUS_ZERO 0x8000
#define SPARSE_PERCENT 60 /* fewer changes than this are worth a map of their own */

enum { MODE_SAME, MODE_DENSE, MODE_SPARSE, MODE_RAW };

struct ulpd {
    struct symbols coder;
    uint8_t symbols[CHUNK], bitmap[CHUNK / 8];
    uint16_t escapes[CHUNK];
};

struct ulpd *ulpd_new(void)
{
    struct ulpd *u = calloc(1, sizeof(*u));

    if (!u)
        return NULL;
    if (symbols_init(&u->coder) < 0) {
        ulpd_free(u);
        return NULL;
    }
    return u;
}

void ulpd_free(struct ulpd *u)
{
    if (!u)
        return;
    symbols_clear(&u->coder);
    free(u);
}

size_t ulpd_bound(size_t count)
{
    assert(count <= ULPD_COUNT_MAX);
    return HEADER_BYTES + 2 * count + (count + CHUNK - 1) / CHUNK * CHUNK_HEADER_BYTES;
}

/* Place among all numbers: neighbours differ by one. Both zeros have place 0, so -0 is never coded by its place. */
static int32_t place(uint16_t bits)
{
    int32_t m = bits & 0x7FFF;

    return bits & 0x8000 ? -m : m;
}

static uint16_t at_place(int32_t k)
{
    return (uint16_t)(k < 0 ? 0x8000 | -k : k);
}

/* --- encode ------------------------------------------------------------------------------------------------------ */

static int symbol(uint16_t base, uint16_t value)
{
    int32_t e = place(value) - place(base);

    if (base == value)
        return 0;
    return e < -126 || e > 126 || base == MINUS_ZERO || value == MINUS_ZERO ? ESCAPE : e;
}

static size_t put_chunk(uint8_t *out, int mode, size_t map_bytes, size_t symbol_bytes, size_t escapes)
{
    le_put(out, (uint64_t)mode, 4);
    le_put(out + 4, map_bytes, 4);
    le_put(out + 8, symbol_bytes, 4);
    le_put(out + 12, escapes, 4);
    return CHUNK_HEADER_BYTES;
}

/* Symbols of all n values, or of those that changed, and what escapes. Returns the number of symbols. */
static size_t gather(struct ulpd *u, const uint16_t *base, const uint16_t *values, size_t n, int sparse,
                     size_t *ret_escapes)
{
    size_t count = 0, escapes = 0;

    memset(u->bitmap, 0, sizeof(u->bitmap));
    for (size_t i = 0; i < n; i++) {
        int s = symbol(base[i], values[i]);

        if (sparse && base[i] == values[i])
            continue;
        u->bitmap[i / 8] |= (uint8_t)(1u << (i % 8));
        u->symbols[count++] = (uint8_t)s;
        if (s == ESCAPE)
            u->escapes[escapes++] = values[i];
    }
    *ret_escapes = escapes;
    return count;
}

/* Map, symbols and escapes in less than cap bytes. Returns bytes with the header, or 0: they do not fit. */
static size_t encode_symbols(struct ulpd *u, const uint16_t *base, const uint16_t *values, size_t n, int sparse,
                             uint8_t *out, size_t cap)
{
    size_t escapes, count = gather(u, base, values, n, sparse, &escapes), map = 0, len;
    uint8_t *at = out + CHUNK_HEADER_BYTES;

    if (2 * escapes >= cap)
        return 0;
    cap -= 2 * escapes;
    if (sparse) {
        map = symbols_pack(&u->coder, u->bitmap, (n + 7) / 8, at, cap);
        if (map == 0)
            return 0;
    }
    len = symbols_pack(&u->coder, u->symbols, count, at + map, cap - map);
    if (len == 0)
        return 0;
    memcpy(at + map + len, u->escapes, 2 * escapes);
    return put_chunk(out, sparse ? MODE_SPARSE : MODE_DENSE, map, len, escapes) + map + len + 2 * escapes;
}

static size_t encode_chunk(struct ulpd *u, const uint16_t *base, const uint16_t *values, size_t n, uint8_t *out)
{
    size_t changed = 0, len;

    for (size_t i = 0; i < n; i++)
        changed += base[i] != values[i];
    if (changed == 0)
        return put_chunk(out, MODE_SAME, 0, 0, 0);
    len = encode_symbols(u, base, values, n, changed * 100 < n * SPARSE_PERCENT, out, 2 * n);
    if (len > 0)
        return len;
    memcpy(out + CHUNK_HEADER_BYTES, values, 2 * n);
    return put_chunk(out, MODE_RAW, 0, 0, 0) + 2 * n;
}

size_t ulpd_encode(struct ulpd *u, const uint16_t *base, const uint16_t *values, size_t count, void *out)
{
    uint8_t *at = out;

    assert(count <= ULPD_COUNT_MAX);
    memcpy(at, "ULPD", 4);
    le_put(at + 4, VERSION, 4);
    le_put(at + 8, count, 8);
    le_put(at + 16, hash_xxh3(base, 2 * count), 8);
    le_put(at + 24, hash_xxh3(values, 2 * count), 8);
    at += HEADER_BYTES;
    for (size_t i = 0; i < count; i += CHUNK)
        at += encode_chunk(u, base + i, values + i, count - i < CHUNK ? count - i : CHUNK, at);
    return (size_t)(at - (uint8_t *)out);
}

/* --- decode ------------------------------------------------------------------------------------------------------ */

static size_t bits_set(const uint8_t *bitmap, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += bitmap[i / 8] >> (i % 8) & 1;
    return count;
}

/* Values of n symbols' places. Returns 0, or -1: escapes do not fit, or a sum is no number's place. */
static int place_values(const struct ulpd *u, const uint16_t *base, const uint8_t *bitmap, const uint8_t *raw,
                        size_t escapes, uint16_t *out, size_t n)
{
    size_t next = 0, escaped = 0;

    for (size_t i = 0; i < n; i++) {
        int8_t s;
        int32_t k;

        out[i] = base[i];
        if (bitmap && !(bitmap[i / 8] >> (i % 8) & 1))
            continue;
        s = (int8_t)u->symbols[next++];
        if (s == ESCAPE) {
            if (escaped == escapes)
                return -1;
            memcpy(&out[i], raw + 2 * escaped++, 2);
        } else if (s != 0) {
            k = place(base[i]) + s;
            if (k < -0x7FFF || k > 0x7FFF)
                return -1;
            out[i] = at_place(k);
        }
    }
    return escaped == escapes ? 0 : -1;
}

/* Decode a chunk of map, symbols and escapes, which lie within the memory of in. */
static int decode_symbols(struct ulpd *u, const uint16_t *base, const uint8_t *in, size_t map, size_t symbols,
                          size_t escapes, uint16_t *out, size_t n)
{
    size_t count = n;

    if (map > 0) {
        if (symbols_unpack(&u->coder, in, map, u->bitmap, (n + 7) / 8) < 0)
            return -1;
        count = bits_set(u->bitmap, n);
    }
    if (symbols_unpack(&u->coder, in + map, symbols, u->symbols, count) < 0)
        return -1;
    return place_values(u, base, map ? u->bitmap : NULL, in + map + symbols, escapes, out, n);
}

/* Decode the chunk at in into n values. Returns its bytes, or 0: it is none. */
static size_t decode_chunk(struct ulpd *u, const uint16_t *base, const uint8_t *in, size_t len, uint16_t *out, size_t n)
{
    size_t map, symbols, escapes, whole;
    uint64_t mode;

    if (len < CHUNK_HEADER_BYTES)
        return 0;
    mode = le_get(in, 4);
    map = le_get(in + 4, 4);
    symbols = le_get(in + 8, 4);
    escapes = le_get(in + 12, 4);
    in += CHUNK_HEADER_BYTES;
    if (mode > MODE_RAW || escapes > n || (map > 0) != (mode == MODE_SPARSE))
        return 0;
    if ((mode == MODE_SAME || mode == MODE_RAW) && (symbols || escapes))
        return 0;
    whole = mode == MODE_RAW ? 2 * n : map + symbols + 2 * escapes;
    if (whole > len - CHUNK_HEADER_BYTES)
        return 0;
    if (mode == MODE_SAME || mode == MODE_RAW)
        memcpy(out, mode == MODE_SAME ? (const uint8_t *)base : in, 2 * n);
    else if (decode_symbols(u, base, in, map, symbols, escapes, out, n))
        return 0;
    return CHUNK_HEADER_BYTES + whole;
}

int ulpd_decode(struct ulpd *u, const uint16_t *base, const void *in, size_t len, uint16_t *out, size_t count,
                struct merr *err)
{
    const uint8_t *at = in;

    if (len < HEADER_BYTES || memcmp(at, "ULPD", 4) != 0 || le_get(at + 4, 4) != VERSION)
        return merr_set(err, -EBADMSG, "%zu bytes are no difference of weights that this Muster reads", len);
    if (le_get(at + 8, 8) != count)
        return merr_set(err, -EBADMSG, "a difference is of %llu weights, not of %zu",
                        (unsigned long long)le_get(at + 8, 8), count);
    if (le_get(at + 16, 8) != hash_xxh3(base, 2 * count))
        return merr_set(err, -ESTALE,
                        "a difference of weights belongs to another version than the one held here; ask "
                        "for whole weights");
    len -= HEADER_BYTES;
    at += HEADER_BYTES;
    for (size_t i = 0; i < count; i += CHUNK) {
        size_t used = decode_chunk(u, base + i, at, len, out + i, count - i < CHUNK ? count - i : CHUNK);

        if (used == 0)
            return merr_set(err, -EBADMSG, "a difference of weights is damaged in chunk %zu", i / CHUNK);
        at += used;
        len -= used;
    }
    if (len > 0)
        return merr_set(err, -EBADMSG, "%zu bytes follow a difference of weights", len);
    if (le_get((const uint8_t *)in + 24, 8) != hash_xxh3(out, 2 * count))
        return merr_set(err, -EBADMSG, "weights rebuilt from a difference are not the ones it was made of");
    return 0;
}
