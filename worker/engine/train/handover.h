/* handover - from one generation to the next through the node's memory: what is left there, and taken over
 *
 * The files are handoff.h's; here is when a rank uses them, and how long state may be nowhere but in memory.
 */
#ifndef MUSTER_WORKER_TRAIN_HANDOVER_H
#define MUSTER_WORKER_TRAIN_HANDOVER_H

#include <jansson.h>

#include "worker/engine/train/shard.h"
#include "worker/snapshot/handoff.h"

struct handover {
    const struct rank *rank;
    struct shard *shard;
    struct handoff *files; /* the shared arena and the moments lie there; NULL: not */
    bool agreed;           /* all ranks have them */
    bool cleared;          /* bytes of before are gone */
    int64_t durable_us;    /* wall time of the newest state that is on disk, as far as is known */
    int64_t copy_us;       /* wall time when what was taken over is to go to disk; 0: nothing is */
};

/* Files in the node's memory for this rank, where it may have some; arena_bytes is what it shares. */
void handover_open(struct handover *h, const struct rank *rank, struct shard *shard, size_t arena_bytes);
void handover_close(struct handover *h);
/* Once ranks have met: whether all of them have such files. */
int handover_agree(struct handover *h, struct merr *err);

/* All bytes that earlier generations left there are zero from now on. */
void handover_clear(struct handover *h);
/* Steps done by the state that the generation before has left. False: there is none. */
bool handover_left(const struct handover *h, uint64_t *ret_step);
/* Whether this rank can go on from it: 0, or -EPROTO. */
int handover_check(const struct handover *h, struct merr *err);
/* Go on from it, all ranks together. */
int handover_take(struct handover *h, struct merr *err);
/* Between two steps, the last of this generation: leave the state to the next one. */
int handover_leave(struct handover *h, struct merr *err);
/* The job ends here, or goes on from the disk: give the memory back. */
void handover_drop(struct handover *h);

/* What was loaded from a snapshot in memory is on disk since durable_us of its cursor, or not known to be: then by now.
 * A copy will be due if the disk has nothing as new. */
void handover_follow_snapshot(struct handover *h, const json_t *kv);
/* A checkpoint is on disk; one has begun. */
void handover_note_durable(struct handover *h);
void handover_note_copy(struct handover *h);
/* This rank's word on whether a drain must end on disk, and whether a copy on disk is due. */
bool handover_must_be_durable(const struct handover *h);
bool handover_copy_due(const struct handover *h);

#endif
