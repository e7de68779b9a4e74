/* archive - committed checkpoints written anew with a codec, in the background: smaller, and the same to whoever reads;
 * with "optq" but for AdamW's moments, which are then within bounds of what they were
 *
 * A step is written into DIR/.archive-00000200, verified there and then exchanged with its folder in one rename, so
 * that at each instant one of the two stands under its name; what was there before is removed. The newest checkpoint
 * stays as it is. One thread of the lowest priority does it.
 */
#ifndef MUSTER_CHECKPOINT_ARCHIVE_H
#define MUSTER_CHECKPOINT_ARCHIVE_H

#include <stdint.h>

#include "base/merr.h"

struct archiver;

/* Keep the checkpoints of dir archived with codec ("plane", "zstd", "lz4", "optq"), in the name of a generation. 0,
 * -EINVAL, -ENOMEM or what the thread cannot start for. */
int archiver_new(const char *dir, uint64_t generation, const char *codec, struct archiver **ret, struct merr *err);

/* Another checkpoint was committed. */
void archiver_wake(struct archiver *a);

/* 1 with the words of the last failure, if it was not taken before; else 0. */
int archiver_take_failure(struct archiver *a, struct merr *ret);

/* Stops after the chunk under way, or once what was written is verified; what is half done is removed. NULL is fine. */
void archiver_free(struct archiver *a);

#endif
