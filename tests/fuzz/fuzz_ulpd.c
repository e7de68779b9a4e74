/* A difference of weights from outside. First byte: how many weights of a made-up base; its top bit: repair the header,
 * so that the chunks behind it are reached. What is accepted is what its hash says. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "compress/ulpd.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ulpd *u = ulpd_new();
    size_t count = size ? 5 * (data[0] & 0x7F) : 0, len = size ? size - 1 : 0;
    uint16_t *base = malloc(2 * count + 1), *out = malloc(2 * count + 1);
    uint8_t *in = malloc(len + 1);
    uint64_t hash;

    assert(u && base && out && in);
    for (size_t i = 0; i < count; i++)
        base[i] = (uint16_t)(i * 40503u);
    if (len)
        memcpy(in, data + 1, len);
    if (size && (data[0] & 0x80) && len >= 32) {
        const uint64_t n = count, version = 1;

        hash = hash_xxh3(base, 2 * count);
        memcpy(in, "ULPD", 4);
        memcpy(in + 4, &version, 4);
        memcpy(in + 8, &n, 8);
        memcpy(in + 16, &hash, 8);
    }
    if (ulpd_decode(u, base, in, len, out, count, NULL) == 0) {
        memcpy(&hash, in + 24, 8);
        assert(hash == hash_xxh3(out, 2 * count));
    }
    free(in);
    free(out);
    free(base);
    ulpd_free(u);
    return 0;
}
