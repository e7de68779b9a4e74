/* memory_quota - what the jobs of a node may hold of its memory between them
 *
 * Each job has a folder in the agent's root, in whose ".reserved" stands how much its snapshots here may come to. The
 * agent gives the limit of all of them; a job is let in when what it wants and what the others have, or have reserved,
 * stay within it. So a snapshot never fails for what another job wrote meanwhile, and what was let in is kept until its
 * folder goes. The state that ranks train on (handoff.h) is theirs, whether they live or not, and does not count.
 */
#ifndef MUSTER_WORKER_SNAPSHOT_MEMORY_QUOTA_H
#define MUSTER_WORKER_SNAPSHOT_MEMORY_QUOTA_H

#include <stdint.h>

#include "base/merr.h"

/* Reserve want bytes for the snapshots in dir, of which limit is that of all folders beside it; what dir holds of
 * earlier ones and one more of one bytes must fit, too. -ENOSPC with words when there is not so much left: what dir
 * holds then counts, and no more. */
int memory_quota_reserve(const char *dir, uint64_t want, uint64_t one, uint64_t limit, struct merr *err);

#endif
