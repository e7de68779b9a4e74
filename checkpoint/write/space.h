/* space - which checkpoints go when a disk, or a quota on it, is too full for the next one
 *
 * The oldest of those beyond the two newest whole ones go, one after another; those that keep_every divides stay, and
 * so does what is being read. Any rank of a job may ask, at any time: they take turns by the lock of DIR/.room. */
#ifndef MUSTER_CHECKPOINT_WRITE_SPACE_H
#define MUSTER_CHECKPOINT_WRITE_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/merr.h"

struct space {
    const char *dir;
    uint64_t generation; /* nothing goes for one that is over */
    uint64_t keep_every; /* 0: none stays for it */
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
