/* A block of a codec from outside. First byte: which codec; next two: how many values it should hold; then the block,
 * whose trailer is repaired if the first byte's top bit is set, so that what lies behind the checks is reached too.
 * Whatever is accepted decodes to finite values, alone, in sums and plain and fast alike. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress/codec.h"

#define COUNT_MAX 4500

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void repair(const struct codec *c, uint8_t *block, size_t len, size_t count)
{
    uint8_t *t = block + len - 16;

    t[0] &= CODEC_NONFINITE;
    memset(t + 1, 0, 3);
    t[4] = (uint8_t)codec_id(c);
    t[5] = 1;
    memset(t + 6, 0, 10);
    t[8] = (uint8_t)count;
    t[9] = (uint8_t)(count >> 8);
}

/* Decode exactly as much memory as there is: a byte beyond it is found by the sanitizer. */
static int decode(const struct codec *c, const uint8_t *block, size_t len, float *out, size_t count)
{
    uint32_t flags = 0;
    struct merr err;
    int r = codec_decode(c, block, len, CODEC_F32, out, count, &flags, &err);

    for (size_t i = 0; r == 0 && i < count; i++)
        assert(isfinite(out[i]));
    assert(r == 0 || err.text[0]);
    return r;
}

static void reduce(const struct codec *c, const uint8_t *block, size_t len, float *out, size_t count, int want)
{
    const struct codec_site site = {.seed = 1};
    const void *list[2] = {block, block};
    struct codec_parts parts = {.blocks = list, .n = 2, .len = len};
    uint8_t *again = malloc(codec_size(c, count));
    uint32_t flags = 0;

    assert(again);
    assert(codec_decode_reduce(c, &parts, CODEC_F32, out, count, &flags, NULL) == want);
    if (codec_decode_reduce_encode(c, &parts, c, &site, again, count, &flags, NULL) == 0)
        assert(decode(c, again, codec_size(c, count), out, count) == 0);
    else
        assert(want);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct codec *c;
    size_t count, n = 0, len;
    uint8_t *block;
    float *out, *twin;
    int r;

    if (size < 3)
        return 0;
    while (codec_at(n))
        n++;
    c = codec_at((data[0] & 0x7F) % n);
    count = (size_t)(data[1] | data[2] << 8) % COUNT_MAX;
    len = data[0] & 0x80 ? codec_size(c, count) : size - 3;
    block = calloc(1, len ? len : 1);
    out = malloc(count * sizeof(out[0]) + 1);
    twin = malloc(count * sizeof(out[0]) + 1);
    assert(block && out && twin);
    memcpy(block, data + 3, size - 3 < len ? size - 3 : len);
    if (data[0] & 0x80)
        repair(c, block, len, count);
    r = decode(c, block, len, out, count);
    for (size_t path = 1; codec_path_at(path); path++) {
        assert(codec_use(codec_path_at(path)) == 0);
        assert(decode(c, block, len, twin, count) == r);
        assert(r || memcmp(out, twin, count * sizeof(out[0])) == 0);
    }
    assert(codec_use(NULL) == 0);
    if (r == 0)
        reduce(c, block, len, out, count, 0);
    free(block);
    free(out);
    free(twin);
    return 0;
}
