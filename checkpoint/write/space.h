/* space - which checkpoints go when a disk, or a quota on it, is too full for the next one
 *
 * The two newest whole checkpoints stay, and so do those whose step keep_every divides and those that somebody reads.
 * Of the others the oldest go, one after another. Any rank of a job may ask, at any time: they take turns by the lock
 * of DIR/.room. */
#ifndef MUSTER_CHECKPOINT_WRITE_SPACE_H
#define MUSTER_CHECKPOINT_WRITE_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/merr.h"

struct space {
    const char *dir;
    uint64_t generation; /* of whoever asks: nothing goes for a generation that is over */
    uint64_t keep_every; /* checkpoints of steps that it divides stay; 0: none */
    uint32_t removed;    /* out: checkpoints that went, added up */
};

/* Does a disk say so when it, or a quota, is full? */
bool space_is_short(int code);

/* Whether the file system of dir has so many bytes free. */
bool space_has(const char *dir, uint64_t bytes);

/* Free space for bytes more. Nothing goes where as much is free, unless in_vain: that was so before, and a write failed
 * nevertheless (a quota, others that were quicker), so that something has to; nor where all that may go would not be
 * enough. Returns 1 when it is worth another try, 0 when not; -ESTALE, -ETIMEDOUT, or why nothing can be removed. */
int space_make(struct space *m, uint64_t bytes, bool in_vain, struct merr *err);

#endif
