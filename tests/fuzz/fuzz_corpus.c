/* The first byte chooses format and separator, the rest is the file. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/train/corpus.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct documents docs;
    struct merr err;
    size_t begin = 0;

    if (size == 0)
        return 0;
    if (documents_split("fuzz", data[0] & 4 ? DATA_JSONL : DATA_TEXT, (enum data_separator)(data[0] % 3),
                        (const char *)data + 1, size - 1, &docs, &err) < 0)
        return 0;
    for (size_t i = 0; i < docs.n; begin = docs.end[i++])
        assert(docs.end[i] > begin);
    assert(begin == docs.text_len && docs.text_len < size);
    documents_clear(&docs);
    return 0;
}
