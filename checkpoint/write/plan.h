/* plan - where each byte of a rank's buffers goes in its stream, and in which order they are copied
 *
 * The stream groups shards by type and role, each group beginning at a chunk, so that a chunk has one type. Pieces
 * are shards cut at the borders of extents (4 MiB of stream); they are copied in the order of buckets. Within a
 * group that order is the stream's, so at most one extent a group border or end is partly filled at any time: that
 * bounds the staging memory needed.
 */
#ifndef MUSTER_CHECKPOINT_WRITE_PLAN_H
#define MUSTER_CHECKPOINT_WRITE_PLAN_H

#include "checkpoint/format/index.h"

struct piece {
    const char *src;
    uint32_t bucket;
    uint32_t extent, at; /* where in its extent */
    uint32_t len, pad;   /* bytes to copy, zeros after them */
    bool seen;           /* those zeros may be looked for behind src, too */
};

struct plan {
    struct piece *piece; /* by bucket, then stream */
    size_t pieces;
    uint32_t *extent_pieces; /* pieces of each extent */
    uint32_t *extent_first;  /* [extents + 1]: where those of an extent begin in by_extent */
    uint32_t *by_extent;     /* numbers of pieces */
    const char **extent_src; /* where an extent lies in memory as in the stream, at a page; NULL: it must be copied */
    uint64_t in_place_bytes; /* of those that do */
    uint32_t extents;
    uint32_t *bucket_pieces;
    uint32_t buckets;
    uint64_t stream_len;
    uint8_t *chunk_dtype;
    uint32_t chunks;
    uint32_t groups;
    struct mck_index index; /* tensors, shards and strings of the part; no files or chunks */
};

/* Check the buffers (-EINVAL names the one at fault) and lay out the stream of rank. data pointers are borrowed. */
int plan_make(const struct mck_buffer *bufs, size_t n, uint32_t rank, struct plan *ret, struct merr *err);
void plan_clear(struct plan *p);

/* The tables alone, of a stream that has the buffers where their data lie behind base. Buffers lie at multiples of
 * MCK_SHARD_ALIGN there (-EINVAL names the one that does not) and within len bytes. New in *ret. */
int plan_index_at(const struct mck_buffer *bufs, size_t n, uint32_t rank, const void *base, uint64_t len,
                  struct mck_index *ret, struct merr *err);

#endif
