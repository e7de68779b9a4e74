/* The header of a safetensors file: whatever is accepted lies whole inside the file.
 * First 8 bytes: its data's length. */
#include <assert.h>
#include <string.h>

#include "checkpoint/format/dtype.h"
#include "checkpoint/format/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors s;
    uint64_t len, at = 0;

    if (size < 8)
        return 0;
    memcpy(&len, data, 8);
    if (safetensors_parse((const char *)data + 8, size - 8, len, &s, NULL))
        return 0;
    for (size_t i = 0; i < s.n; i++) {
        assert(s.v[i].begin == at && s.v[i].end >= at && s.v[i].end <= len);
        at = s.v[i].end;
    }
    assert(at == len);
    safetensors_clear(&s);
    return 0;
}
