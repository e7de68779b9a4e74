/* keep - weights and moments in files of the node's memory, where they outlive the ranks of a generation
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
#ifndef MUSTER_WORKER_TRAIN_KEEP_H
#define MUSTER_WORKER_TRAIN_KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "worker/engine/comm/mesh.h"

struct keep;

struct keep_cfg {
    const char *memory; /* the job's folder in the node's memory; borrowed during the call */
    struct mesh mesh;   /* all of it on this node */
    size_t weight_n;    /* floats of this rank's weights */
    size_t arena_bytes; /* the weights first; a multiple of pages */
};

/* Open this rank's files, made or brought to size. -ENOTSUP when the folder is not in memory, -ENOSPC when it has no
 * room (what was there before is then removed), or another errno. */
int keep_open(const struct keep_cfg *cfg, struct keep **ret, struct merr *err);
void keep_close(struct keep *k);

int keep_arena(const struct keep *k);     /* descriptor; borrowed */
bool keep_was_used(const struct keep *k); /* the files hold bytes of an earlier generation */
float *keep_m(struct keep *k);            /* weight_n floats each */
float *keep_v(struct keep *k);

/* Map these bytes of a file now, many pages at once: they will all be used, and a fault each would cost more. */
void keep_touch(void *at, size_t bytes);

struct keep_mark {
    uint64_t generation, step; /* that left it; steps done */
    uint64_t tokens;           /* seen in them */
    int64_t durable_us;        /* wall time of the newest state known to be on disk */
    uint64_t weight_n;         /* of rank 0 */
    int32_t tp, cp, pp, dp, chunks;
};

/* Leave a mark: once every rank has done its last step, by one of them. */
int keep_mark_put(const char *memory, const struct keep_mark *m, struct merr *err);
/* 1 with *ret, or 0: there is none, or one of another version. */
int keep_mark_get(const char *memory, struct keep_mark *ret);
int keep_mark_drop(const char *memory, struct merr *err);

/* Bytes of memory that the files of all ranks take. */
uint64_t keep_bytes(const char *memory);

/* Remove the files of replicas from dp on; 0: all files, and the mark first. */
void keep_trim(const char *memory, int dp);

#endif
