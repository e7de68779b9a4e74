/* load - fill buffers of any layout from the chunks that hold their elements; mck_load of checkpoint.h wants them all
 *
 * Each pair of a stored box and a wanted box that share elements is an operation; an operation reads the chunks
 * its stream range touches, each once for all operations, and scatters the runs that lie in them.
 */
#ifndef MUSTER_CHECKPOINT_READ_LOAD_H
#define MUSTER_CHECKPOINT_READ_LOAD_H

#include "checkpoint/read/read.h"

/* What there is of one buffer, in chunks that are whole: have, a byte for each of its elements, becomes 1 where its
 * element was filled. -ENOENT when the checkpoint has no such tensor; -EINVAL when it is of another shape or type. */
int load_some(struct mck *c, const struct mck_buffer *b, char *have, struct merr *err);

/* As mck_needed of parts.h. */
int load_needed(struct mck *c, const struct mck_buffer *bufs, size_t n,
                void (*take)(void *arg, uint32_t file, uint32_t chunk), void *arg, struct merr *err);

#endif
