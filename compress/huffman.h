/* huffman - zstd frames of Huffman codes alone: no matches, no sequences, one code for each block of 128 KiB
 *
 * What zstd makes of symbols that repeat no longer patterns, several times as fast, since nothing else is looked for.
 * Any zstd decoder reads it; huffman_unpack() reads such frames faster. Frame, blocks and codes are those of RFC 8878:
 *
 *   | magic u32 | 0xa0 | n u32 | block .. |      block: | last, kind, length: 3 bytes | ... |
 *   coded block: | kind, lengths: 5 bytes | weights of the code | lengths of streams 1 to 3: u16 | 4 streams | 0 |
 *
 * A stream holds a quarter of the block's symbols, the last one in its lowest bits, and a 1 above the first.
 */
#ifndef MUSTER_COMPRESS_HUFFMAN_H
#define MUSTER_COMPRESS_HUFFMAN_H

#include <stddef.h>
#include <stdint.h>

#define HUFFMAN_LEAST 1024 /* shorter runs are not worth a code of their own */

struct huffman; /* tables of one thread's encodings and decodings */

/* NULL when memory is short. */
struct huffman *huffman_new(void);
void huffman_free(struct huffman *h);

/* Code n bytes into at most cap. Returns the bytes written, or 0: not with this coder (too short, a byte above 128,
 * no room). */
size_t huffman_pack(struct huffman *h, const uint8_t *in, size_t n, uint8_t *out, size_t cap);

/* Decode a frame of len bytes from outside into exactly n. Returns 0, or -EBADMSG: not a whole frame of this kind and
 * length, though it may be one of another kind; out is then unspecified. */
int huffman_unpack(struct huffman *h, const uint8_t *in, size_t len, uint8_t *out, size_t n);

#endif
