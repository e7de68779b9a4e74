#include "checkpoint/format/coding.h"

#include <errno.h>
#include <string.h>

static const char *const names[CHUNK_CODECS] = {
    [CHUNK_RAW] = "none",    [CHUNK_ZSTD] = "zstd",      [CHUNK_LZ4] = "lz4",
    [CHUNK_PLANE] = "plane", [CHUNK_MOMENT1] = "optq-m", [CHUNK_MOMENT2] = "optq-v",
};

int coding_parse(const char *name)
{
    for (int i = CHUNK_RAW; i <= CHUNK_PLANE; i++)
        if (!strcmp(name, names[i]))
            return i;
    return -EINVAL;
}

const char *coding_name(int codec)
{
    return codec >= 0 && codec < CHUNK_CODECS ? names[codec] : "?";
}
