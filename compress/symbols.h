/* symbols - entropy coding of runs of bytes that repeat no longer patterns: a zstd frame made without match search, by
 * huffman.h where that can
 *
 * What the chunks of checkpoints and optq have in common. One thread at a time.
 */
#ifndef MUSTER_COMPRESS_SYMBOLS_H
#define MUSTER_COMPRESS_SYMBOLS_H

#include <stddef.h>

struct symbols { /* zstd's contexts; whoever wants another kind of frame may use them between two calls */
    struct ZSTD_CCtx_s *zc;
    struct ZSTD_DCtx_s *zd;
    struct huffman *huffman;
};

/* 0, or -ENOMEM: s is good for symbols_clear() only. */
int symbols_init(struct symbols *s);
void symbols_clear(struct symbols *s);

/* Code n bytes into at most cap. Returns the bytes written, or 0: they do not fit. */
size_t symbols_pack(struct symbols *s, const void *in, size_t n, void *out, size_t cap);

/* Decode a frame of len bytes from outside, of any kind, into exactly n. Returns 0, or -EBADMSG: it is none of n
 * bytes; out is then unspecified. */
int symbols_unpack(struct symbols *s, const void *in, size_t len, void *out, size_t n);

#endif
