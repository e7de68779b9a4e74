/* offsets - how far the events that a node ships of a run have been taken in, so that none is taken in twice
 *
 * Kept in the store with the job, and with its entry while it has not ended.
 */
#ifndef MUSTER_SERVER_OFFSETS_H
#define MUSTER_SERVER_OFFSETS_H

#include <stdint.h>

#include "server/control/entry.h"

struct core;

/* Up to which byte; -1: the job, or that run of it, is not known any more. e: the job's entry, NULL: it has ended. */
int64_t offsets_read(struct core *c, const struct entry *e, uint64_t job, const char *node, uint32_t generation);

/* Up to this byte, from this turn on. */
void offsets_put(struct core *c, struct entry *e, uint64_t job, const char *node, uint32_t generation, int64_t offset);

/* Those of a run that is long over, and of all before it. */
void offsets_drop(struct core *c, struct entry *e, uint32_t generation);

#endif
