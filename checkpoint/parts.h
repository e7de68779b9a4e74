/* parts - checkpoints below the whole: data files, their tables and ranges, and the folder in which they meet
 *
 * For those who carry data files from node to node, keep them in memory and put them together again. Who writes and
 * reads whole checkpoints needs checkpoint.h alone.
 */
#ifndef MUSTER_CHECKPOINT_PARTS_H
#define MUSTER_CHECKPOINT_PARTS_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/format/folder.h" /* names, attempts and fences */
#include "checkpoint/format/input.h"  /* reading files that come from outside */
#include "checkpoint/format/part.h"   /* one data file; with it the tables (index.h) and structs on disk (format.h) */
#include "checkpoint/write/collect.h" /* steps removed */
#include "checkpoint/write/coordinate.h" /* data files waited for, merged and committed */
#include "checkpoint/write/tiles.h"      /* state that is kept in data files, and read from there each step */

/* Files and chunks of an open checkpoint. Borrowed. */
const struct mck_index *mck_tables(const struct mck *c);

/* The chunks that mck_load would read for these buffers, each at least once: chunk of file number file. */
int mck_needed(struct mck *c, const struct mck_buffer *bufs, size_t n,
               void (*take)(void *arg, uint32_t file, uint32_t chunk), void *arg, struct merr *err);

/* Check every chunk of one data file; damaged is called for each that is not whole. 0, whatever was damaged; -EBADMSG
 * when the file has no index, -ENOENT, -ENOMEM. */
int mck_check_part(const char *path, void (*damaged)(void *arg, const struct mck_chunk *chunk), void *arg,
                   struct merr *err);

/* Remove a step's checkpoint from dir. 0, -ENOENT: there is none,
 * -EBUSY: somebody reads it, or another negative errno. */
int mck_remove(const char *dir, uint64_t step, struct merr *err);

#endif
