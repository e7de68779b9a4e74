/* collect - what may go from a job's checkpoint folder: old checkpoints, given up attempts, interrupted deletions */
#ifndef MUSTER_CHECKPOINT_WRITE_COLLECT_H
#define MUSTER_CHECKPOINT_WRITE_COLLECT_H

#include <stdint.h>

#include "base/merr.h"

/* Remove a step's folder, whatever is in it, unless it is being read: first out of sight at once, then away bit by
 * bit, so that an interrupted deletion is never half a checkpoint. Returns 1, or 0 when it is being read or not
 * there. */
int collect_step(const char *dir, uint64_t step, struct merr *err);

/* Go on with interrupted deletions. */
int collect_trash(const char *dir, struct merr *err);

/* Remove what given up attempts and interrupted deletions left in dir, then committed checkpoints beyond the newest
 * keep (>= 2), less those of a step that keep_every (0: none) divides. Attempts newer than the newest commit stay: a
 * writer may be at work on them. */
int collect_folder(const char *dir, int keep, uint64_t keep_every, struct merr *err);

#endif
