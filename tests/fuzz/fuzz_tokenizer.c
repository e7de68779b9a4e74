/* Tokenizer files, and text through the ones that are sound. The first byte says where the text begins: that many
 * sixteenths of what follows; the last byte chooses the form. */
#include <stddef.h>
#include <stdint.h>

#include "worker/engine/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *p = (const char *)data + 1;
    struct tokenizer *t;
    struct buf out;
    size_t cut, len;
    int r;

    if (size < 3)
        return 0;
    len = size - 2;
    cut = len * (data[0] % 17) / 16;
    if (data[size - 1] % 2)
        r = tokenizer_parse(p, cut, p + cut, len - cut, &t, NULL);
    else
        r = tokenizer_parse(p, cut, NULL, 0, &t, NULL);
    if (r != 0)
        return 0;
    buf_init(&out, 1 << 20);
    (void)tokenizer_encode(t, p + cut, len - cut, &out, NULL);
    buf_clear(&out);
    tokenizer_free(t);
    return 0;
}
