/* Coded moments from outside. The first two bytes say how many elements there should be; behind them lie the bounds and
 * the chunks, under a header that fits. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "compress/optq.h"

#define HEADER_BYTES 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct optq *o; /* its powers take a millisecond to make */
    const uint64_t count = size < 2 ? 0 : (uint64_t)(data[0] | data[1] << 8);
    const uint32_t version = 1;
    struct merr err;
    uint8_t *in;
    float *m, *v;

    if (size < 2)
        return 0;
    o = o ? o : optq_new();
    in = malloc(HEADER_BYTES + size - 2);
    m = malloc(count * sizeof(m[0]) + 1);
    v = malloc(count * sizeof(v[0]) + 1);
    assert(o && in && m && v);
    memcpy(in, "OPTQ", 4);
    memcpy(in + 4, &version, 4);
    memcpy(in + 8, &count, 8);
    memcpy(in + HEADER_BYTES, data + 2, size - 2);
    assert(optq_decode(o, in, HEADER_BYTES + size - 2, m, v, count, &err) == 0 || err.text[0]);
    free(in);
    free(m);
    free(v);
    return 0;
}
