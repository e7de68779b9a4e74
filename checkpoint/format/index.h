/* index - the tables of a checkpoint in memory: encode, decode with every field checked, merge
 *
 * One shape serves MANIFEST (all files of a step) and the part index at the tail of a data file (that file
 * alone). A decoded index can be used without further checks: numbers of tensors, files and chunks are in
 * range, sums do not overflow, extents lie in their files, names are clean.
 */
#ifndef MUSTER_CHECKPOINT_FORMAT_INDEX_H
#define MUSTER_CHECKPOINT_FORMAT_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "checkpoint/format/box.h"
#include "checkpoint/format/format.h"

struct mck_index {
    uint8_t uuid[16];
    uint64_t step, created_ns;
    uint32_t writers; /* files an attempt has */
    uint32_t rank;    /* of a part index */
    char *strings;
    size_t strings_len;
    struct mck_file *file;
    struct mck_tensor *tensor;
    struct mck_shard *shard; /* file_id is the file's number in file[], tensor that in tensor[] */
    struct mck_chunk *chunk;
    size_t files, tensors, shards, chunks;
    char *kv; /* JSON text of an object, NUL after it */
    size_t kv_len;
};

enum mck_index_kind { MCK_INDEX_MANIFEST, MCK_INDEX_PART };

/* Append the bytes of ix to out. In a part index the one file keeps its own file_id. Returns 0 or -EMSGSIZE,
 * -ENOMEM with words. */
int index_encode(const struct mck_index *ix, enum mck_index_kind kind, struct buf *out, struct merr *err);

/* Read bytes from disk (borrowed, 8-byte aligned) into a new *ret. -EBADMSG says what is wrong; -ENOMEM. */
int index_decode(const void *data, size_t len, enum mck_index_kind kind, struct mck_index *ret, struct merr *err);

/* Union of n part indexes, part[i] being that of rank i, all of one attempt. Refuses (-EINVAL, the tensor named)
 * what disagrees, overlaps or leaves a gap. kv is that of rank 0. */
int index_merge(const struct mck_index *part, size_t n, struct mck_index *ret, struct merr *err);

/* Check that the shards of each tensor cover it exactly once. -EINVAL names the tensor. */
int index_check_cover(const struct mck_index *ix, struct merr *err);

void index_clear(struct mck_index *ix);

/* Is tensor t's name/role before (<0), at (0) or after (>0) the key? */
int index_compare(const struct mck_index *ix, const struct mck_tensor *t, const char *name, size_t len, int role);

/* The tensor of that key, or NULL. */
const struct mck_tensor *index_find(const struct mck_index *ix, const char *name, int role);

static inline const char *index_name(const struct mck_index *ix, const struct mck_tensor *t)
{
    return ix->strings + t->name_off; /* not NUL terminated: t->name_len bytes */
}

/* Does the shard have bytes in [lo, hi) of the stream of a file? */
static inline bool index_shard_meets(const struct mck_shard *s, uint32_t file, uint64_t lo, uint64_t hi)
{
    return s->file_id == file && s->stream_off < hi && s->stream_off + s->bytes > lo;
}

/* Whole box of a shard, and the dense boxes its range is cut into. */
void index_shard_box(const struct mck_tensor *t, const struct mck_shard *s, struct box *ret);
int index_shard_cut(const struct mck_tensor *t, const struct mck_shard *s, struct box_piece out[BOX_PIECES_MAX]);

#endif
