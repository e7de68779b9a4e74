/* handoff - weights and moments in files of the node's memory, where they outlive the ranks of a generation
 *
 * Where a job has a folder in its node's memory (docs/protocol.md), its ranks compute in files there: a file a replica
 * is the arena that it shares with its node-mates, with the weights first and room for gradients after; and one file
 * holds the moments of all replicas of a place in tp, cp and pp, of which each uses its pieces. A run that is told to
 * hand over ends between two steps and leaves a mark; the next generation finds all where it computes and goes on. Only
 * replicas that there were none of before copy the weights, from the first.
 *
 * The mark is taken away before anything changes. Without one the files' bytes mean nothing: they are memory that does
 * not have to be found and cleared again.
 */
#ifndef MUSTER_WORKER_SNAPSHOT_HANDOFF_H
#define MUSTER_WORKER_SNAPSHOT_HANDOFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

struct handoff;

struct handoff_cfg {
    const char *memory;                         /* the job's folder in the node's memory; borrowed during the call */
    int tp_index, cp_index, pp_index, dp_index; /* of this rank; all ranks are on this node */
    size_t weight_n;                            /* floats of this rank's weights */
    bool masters;                               /* the moments' file holds masters, too */
    size_t arena_bytes;                         /* the weights first; a multiple of pages */
};

/* Open this rank's files, made or brought to size. -ENOTSUP when the folder is not in memory, -ENOSPC when it has no
 * room (what was there before is then removed), or another errno. */
int handoff_open(const struct handoff_cfg *cfg, struct handoff **ret, struct merr *err);
void handoff_close(struct handoff *k);

int handoff_arena(const struct handoff *k);     /* descriptor; borrowed */
bool handoff_was_used(const struct handoff *k); /* the files hold bytes of an earlier generation */
float *handoff_m(struct handoff *k);            /* weight_n floats each */
float *handoff_v(struct handoff *k);
float *handoff_master(struct handoff *k); /* the same; NULL: it holds none */

struct handoff_mark {
    uint64_t generation, step; /* that left it; steps done */
    uint64_t tokens;           /* seen in them */
    int64_t durable_us;        /* wall time of the newest state known to be on disk */
    uint64_t weight_n;         /* of rank 0 */
    int32_t tp, cp, pp, dp, chunks;
};

/* Leave a mark: once every rank has done its last step, by one of them. */
int handoff_mark_put(const char *memory, const struct handoff_mark *m, struct merr *err);
/* 1 with *ret, or 0: there is none, or one of another version. */
int handoff_mark_get(const char *memory, struct handoff_mark *ret);
int handoff_mark_drop(const char *memory, struct merr *err);

/* Bytes of memory that the files of all ranks take. */
uint64_t handoff_bytes(const char *memory);

/* Remove the files of replicas from dp on; 0: all files, and the mark first. */
void handoff_trim(const char *memory, int dp);

#endif
