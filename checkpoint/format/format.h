/* format - the bytes of a checkpoint on disk: fixed structs, little endian, each size asserted
 *
 *   rank-00003.mck                                  MANIFEST
 *   +---------------------+ 0                       +---------------------------+ 0
 *   | mck_super           |                         | mck_head, section table   |
 *   +---------------------+ 4096                    +---------------------------+ 4096
 *   | chunks of the stream|  1 MiB each, or less    | STRINGS FILES TENSORS     |
 *   | each 4096 aligned   |  once compressed        | SHARDS CHUNKS KV          |
 *   +---------------------+                         +---------------------------+
 *   | part index: a MANIFEST of this file alone     | mck_end (length, XXH3)    |
 *   +---------------------+                         +---------------------------+
 *   | mck_footer          |
 *   +---------------------+ file_len
 *
 * The tables of MANIFEST are the union of those of the part indexes, so a lost one can be rebuilt. What is
 * read from disk is outside data: index.c checks every field before use.
 */
#ifndef MUSTER_CHECKPOINT_FORMAT_FORMAT_H
#define MUSTER_CHECKPOINT_FORMAT_FORMAT_H

#include <stdint.h>

#include "checkpoint/checkpoint.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the structs of a checkpoint are written as they lie in memory: a little-endian machine is needed"
#endif

#define MCK_VERSION 1u
#define MCK_ALIGN 4096u
#define MCK_CHUNK_LOG2 20u
#define MCK_CHUNK (1u << MCK_CHUNK_LOG2)
#define MCK_SLOT (4u << 20) /* unit of staging and writing: four chunks */
#define MCK_SHARD_ALIGN 64u
#define MCK_RANKS_MAX 65536u
#define MCK_NAME_MAX 1024u                /* bytes of a tensor's name */
#define MCK_INDEX_MAX (UINT64_C(1) << 32) /* bytes of a MANIFEST or part index */
#define MCK_KV_MAX (16u << 20)            /* bytes of the cursor */
#define MCK_BYTES_MAX (UINT64_C(1) << 60) /* bytes of a tensor or stream */

#define MCK_MAGIC_SUPER "MUSTRCK1"
#define MCK_MAGIC_MANIFEST "MUSTRMF1"
#define MCK_MAGIC_PART "MUSTRPI1"
#define MCK_MAGIC_FOOTER "MUSTRFT1"
#define MCK_MAGIC_END "MUSTREND"

struct mck_super {    /* offset 0 of each data file */
    uint8_t magic[8]; /* MCK_MAGIC_SUPER */
    uint32_t version, hdr_len;
    uint8_t uuid[16]; /* the attempt */
    uint64_t step;
    uint32_t file_id, writer_rank;
    uint32_t chunk_log2, align;
    uint64_t flags;      /* bits 0..31: number of writers of the attempt */
    uint64_t created_ns; /* since 1970 */
    uint8_t zero[4020];
    uint32_t crc32c; /* of bytes 0..4091 */
};
_Static_assert(sizeof(struct mck_super) == 4096, "super block");

struct mck_chunk { /* index in the table = offset in the stream / 1 MiB */
    uint64_t file_off;
    uint32_t stored_len; /* before padding to 4096 */
    uint8_t codec, filter;
    uint16_t flags;
    uint32_t crc32c;      /* of the stored bytes */
    uint32_t logical_len; /* 1 MiB except in a file's last chunk */
    uint64_t xxh3;        /* XXH3-64 of the logical bytes */
};
_Static_assert(sizeof(struct mck_chunk) == 32, "chunk");

struct mck_tensor { /* sorted by name, then role */
    uint64_t name_off;
    uint32_t name_len;
    uint8_t dtype, role, ndim, flags;
    uint32_t shard_first, shard_count;
    uint64_t shape[MCK_DIMS_MAX]; /* unused ones are 1 */
    uint64_t hash[2];             /* reserved: 0 */
};
_Static_assert(sizeof(struct mck_tensor) == 88, "tensor");

struct mck_shard { /* sorted by tensor, then position */
    uint32_t tensor, file_id;
    uint64_t stream_off, bytes, sub_begin, sub_end; /* sub range of the box in elements; always explicit */
    uint64_t off[MCK_DIMS_MAX], len[MCK_DIMS_MAX];  /* unused ones are 0 and 1 */
    uint32_t writer_rank, replicas;
};
_Static_assert(sizeof(struct mck_shard) == 144, "shard");

#define MCK_FILE_ARCHIVED 1u /* of flags: written anew from a committed one */

struct mck_file {
    uint32_t file_id, name_off, name_len, flags;
    uint64_t stream_len, file_len, chunk_first;
    uint32_t chunk_count, chunk_table_crc32c;
    uint8_t host_id[16];
};
_Static_assert(sizeof(struct mck_file) == 64, "file");

enum mck_section_kind {
    MCK_STRINGS = 1,
    MCK_FILES,
    MCK_TENSORS,
    MCK_SHARDS,
    MCK_CHUNKS,
    MCK_KV,
    MCK_SECTION_KINDS, /* one above the last */
};

struct mck_section {
    uint32_t kind, crc32c;
    uint64_t off, len;
};
_Static_assert(sizeof(struct mck_section) == 24, "section");

#define MCK_SECTIONS_MAX 16

struct mck_head { /* the first 72 bytes as in mck_super; file_id and writer_rank are 0 in MANIFEST */
    uint8_t magic[8];
    uint32_t version, hdr_len;
    uint8_t uuid[16];
    uint64_t step;
    uint32_t file_id, writer_rank;
    uint32_t chunk_log2, align;
    uint64_t flags, created_ns;
    uint32_t section_count, pad;
    struct mck_section section[MCK_SECTIONS_MAX];
    uint8_t zero[4096 - 80 - 24 * MCK_SECTIONS_MAX - 4];
    uint32_t crc32c; /* of bytes 0..4091 */
};
_Static_assert(sizeof(struct mck_head) == 4096, "head");

struct mck_end { /* the last bytes of MANIFEST and of a part index */
    uint8_t magic[8];
    uint64_t total_len; /* with these 24 bytes */
    uint64_t xxh3;      /* of all bytes before these */
};
_Static_assert(sizeof(struct mck_end) == 24, "end");

struct mck_footer { /* the last 4096 bytes of a data file */
    uint8_t magic[8];
    uint32_t version, file_id;
    uint8_t uuid[16];
    uint64_t step;
    uint64_t index_off, index_len; /* the part index */
    uint64_t file_len, index_xxh3;
    uint8_t zero[4020];
    uint32_t crc32c; /* of bytes 0..4091 */
};
_Static_assert(sizeof(struct mck_footer) == 4096, "footer");

static inline uint64_t mck_round(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

#endif
