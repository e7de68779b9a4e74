/* load - buffers of any layout filled from what a checkpoint holds; mck_load of checkpoint.h asks for all of it */
#ifndef MUSTER_CHECKPOINT_READ_LOAD_H
#define MUSTER_CHECKPOINT_READ_LOAD_H

#include "checkpoint/read/read.h"

/* What there is of one buffer, in chunks that are whole: have, a byte for each of its elements, becomes 1 where its
 * element was filled. -ENOENT when the checkpoint has no such tensor; -EINVAL when it is of another shape or type. */
int load_some(struct mck *c, const struct mck_buffer *b, char *have, struct merr *err);

#endif
