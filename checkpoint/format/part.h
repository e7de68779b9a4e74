/* part - one data file: its super block, footer and part index */
#ifndef MUSTER_CHECKPOINT_FORMAT_PART_H
#define MUSTER_CHECKPOINT_FORMAT_PART_H

#include "checkpoint/format/index.h"
#include "compress/chunk.h"

/* Read the part index of a data file into a new *ret. -EBADMSG when it is no whole data file; -ENOENT. */
int part_read(const char *path, struct mck_index *ret, struct merr *err);

/* Does the file have this length (0: any), this attempt's id and an intact footer and super block? 0 or -EBADMSG. */
int part_check(const char *path, const uint8_t uuid[16], uint32_t file_id, uint64_t file_len, struct merr *err);

/* Encode n bytes of a dtype for offset off of a file into to (MCK_CHUNK), zeros up to a multiple of MCK_ALIGN behind
 * them, and fill in their entry. Returns the bytes with those zeros. */
uint32_t part_encode(struct chunk_coder *coder, enum chunk_codec codec, int dtype, const void *data, uint32_t n,
                     uint64_t off, void *to, struct mck_chunk *ret);

/* What ends a file whose chunks end at end: sets ix->file[0].file_len, and *ret, new and aligned: the super block, then
 * *ret_len bytes for offset end. -ENOMEM, -EMSGSIZE. */
int part_tail(struct mck_index *ix, uint64_t end, void **ret, uint32_t *ret_len, struct merr *err);

#endif
