/* A frame of Huffman codes from outside. First two bytes: the length it should have, in units of 512. What is accepted
 * is what zstd reads. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "compress/huffman.h"
#include "compress/le.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n = size < 2 ? 0 : le_get(data, 2) % 512 * 512, len = size < 2 ? 0 : size - 2;
    uint8_t *in = malloc(len + 1), *out = malloc(n + 1), *again = malloc(n + 1);
    struct huffman *h = huffman_new();

    assert(h && in && out && again);
    if (len)
        memcpy(in, data + 2, len);
    if (huffman_unpack(h, in, len, out, n) == 0) {
        assert(ZSTD_decompress(again, n, in, len) == n);
        assert(memcmp(out, again, n) == 0);
    }
    huffman_free(h);
    free(again);
    free(out);
    free(in);
    return 0;
}
