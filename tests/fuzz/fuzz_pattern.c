/* Any bytes as a pattern and, behind the first line feed, a line: no more moves than its places for each byte. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/pattern.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *feed = size ? memchr(data, '\n', size) : NULL;
    size_t n = feed ? (size_t)(feed - data) : size;
    char *text = calloc(1, n + 1);
    struct pattern *p = NULL;
    uint64_t moves = 0;

    if (!text)
        return 0;
    if (n)
        memcpy(text, data, n);
    if (pattern_new(text, &p, NULL) == 0) {
        (void)pattern_finds(p, feed ? (const char *)feed + 1 : "", feed ? size - n - 1 : 0, &moves);
        if (moves > (uint64_t)(size + 1) * PATTERN_PLACES)
            abort();
    }
    pattern_free(p);
    free(text);
    return 0;
}
