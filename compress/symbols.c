#define ZSTD_STATIC_LINKING_ONLY
#include "compress/symbols.h"

#include <errno.h>
#include <zstd.h>

#include "compress/huffman.h"

#define LEVEL (-100) /* no match search to speak of: the entropy coder alone */

int symbols_init(struct symbols *s)
{
    s->zc = ZSTD_createCCtx();
    s->zd = ZSTD_createDCtx();
    s->huffman = huffman_new();
    return s->zc && s->zd && s->huffman ? 0 : -ENOMEM;
}

void symbols_clear(struct symbols *s)
{
    ZSTD_freeCCtx(s->zc);
    ZSTD_freeDCtx(s->zd);
    huffman_free(s->huffman);
    *s = (struct symbols){.zc = NULL};
}

size_t symbols_pack(struct symbols *s, const void *in, size_t n, void *out, size_t cap)
{
    size_t len = huffman_pack(s->huffman, in, n, out, cap);

    if (len)
        return len;
    (void)ZSTD_CCtx_reset(s->zc, ZSTD_reset_session_and_parameters);
    (void)ZSTD_CCtx_setParameter(s->zc, ZSTD_c_compressionLevel, LEVEL);
    (void)ZSTD_CCtx_setParameter(s->zc, ZSTD_c_literalCompressionMode, ZSTD_ps_enable);
    len = ZSTD_compress2(s->zc, out, cap, in, n);
    return ZSTD_isError(len) ? 0 : len;
}

int symbols_unpack(struct symbols *s, const void *in, size_t len, void *out, size_t n)
{
    if (huffman_unpack(s->huffman, in, len, out, n) == 0)
        return 0;
    return ZSTD_decompressDCtx(s->zd, out, n, in, len) == n ? 0 : -EBADMSG;
}
