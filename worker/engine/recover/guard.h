/* guard - the snapshots of a job over several nodes, committed: whole on every node, and parity of them on others
 *
 * One rank of each node, its leader, has a guard: a thread that waits for the data files of its node's ranks, trades
 * them with the guards of its group (parity.h) over a world of their own, at most half of the time, and renames PARITY
 * into place once every node has all of its parity. Then snapshots older than the two newest go. Training never waits
 * for it.
 *
 * All leaders make the same calls of guard_begin in the same order. A guard is used by one thread at a time, which is
 * not its own. After a lost peer every snapshot fails, with words.
 */
#ifndef MUSTER_WORKER_RECOVER_GUARD_H
#define MUSTER_WORKER_RECOVER_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/merr.h"

#define GUARD_AT_ONCE 2 /* snapshots begun and not yet committed, at most */

struct guard_cfg {
    const char *dir;        /* this node's memory for the job */
    const char *rendezvous; /* folder; borrowed during guard_open */
    const int *node_of;     /* [size]: the lowest rank on the node of each */
    int rank, size;
    uint64_t generation;
    uint64_t step; /* training goes on from here: snapshots of later steps are of no use and go */
};

struct guard_done {
    uint64_t step, bytes, parity_bytes; /* of this node */
    double seconds;
    int code; /* 0: committed */
    struct merr err;
};

struct guard;

/* Meet the other leaders. For the lowest rank of each node of at least two. */
int guard_open(const struct guard_cfg *cfg, struct guard **ret, struct merr *err);

/* The ranks have begun a snapshot. -EBUSY when GUARD_AT_ONCE are under way. */
int guard_begin(struct guard *g, uint64_t step, struct merr *err);
int guard_under_way(struct guard *g);
/* 1 with the next one that ended, 0 when there is none. */
int guard_next_done(struct guard *g, struct guard_done *ret);
/* Go on without rests until nothing is under way. -ETIMEDOUT at the deadline. For tests. */
int guard_drain(struct guard *g, int64_t deadline_us, struct merr *err);
/* Gives up what is under way. */
void guard_free(struct guard *g);

/* How many nodes a world has, and the leader of each, in order of rank, into leader (room for all ranks, or NULL). */
int guard_leaders(const int *node_of, int size, int *leader);

#endif
