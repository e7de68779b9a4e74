/* Error-bounded values from outside. First two bytes: how many there should be; the top bit repairs magic, version and
 * count, so that what lies behind them is reached. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "compress/eb.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct eb *e;
    struct merr err;
    size_t count, len;
    uint8_t *in;
    float *out;

    if (size < 2)
        return 0;
    e = eb_new();
    count = (size_t)(data[0] | (data[1] & 0x7F) << 8);
    len = size - 2;
    in = malloc(len + 1);
    out = malloc(count * sizeof(out[0]) + 1);
    assert(e && in && out);
    memcpy(in, data + 2, len);
    if ((data[1] & 0x80) && len >= 24) {
        const uint64_t n = count, version = 1;

        memcpy(in, "EBND", 4);
        memcpy(in + 4, &version, 4);
        memcpy(in + 8, &n, 8);
    }
    assert(eb_decode(e, in, len, out, count, &err) == 0 || err.text[0]);
    free(in);
    free(out);
    eb_free(e);
    return 0;
}
