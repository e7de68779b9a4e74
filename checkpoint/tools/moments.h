/* moments - which chunks of a data file hold AdamW's two moments of the same elements
 *
 * A rank's first moments lie in its stream as its second ones do, some chunks on; this finds out by how many.
 */
#ifndef MUSTER_CHECKPOINT_TOOLS_MOMENTS_H
#define MUSTER_CHECKPOINT_TOOLS_MOMENTS_H

#include "checkpoint/format/index.h"

#define MOMENTS_NONE UINT32_MAX

/* For each chunk of the one file of a part index: if it holds first moments in f32 and nothing else, the chunk that
 * holds the second moments of the same elements at the same places, and nothing else; or MOMENTS_NONE. New, for free();
 * NULL when memory is short. */
uint32_t *moments_pair(const struct mck_index *ix);

#endif
