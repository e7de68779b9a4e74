/* save - what training leaves behind: checkpoints, begun between two steps and written beside the next ones
 *
 * They go to disk for good, and as snapshots into the node's memory for the job's next generation. All calls but
 * save_gate() and save_stall_us() are made by all ranks.
 */
#ifndef MUSTER_WORKER_TRAIN_SAVE_H
#define MUSTER_WORKER_TRAIN_SAVE_H

#include "checkpoint/checkpoint.h"
#include "worker/engine/recover/guard.h"
#include "worker/engine/train/cadence.h"
#include "worker/engine/train/handover.h"
#include "worker/engine/train/shard.h"

enum { SAVE_DISK, SAVE_MEMORY, SAVE_PLACES }; /* where to */

/* What ranks agree on, by sums: whether to save after the step under way, and whether two are being written. */
enum { VOTE_WANTED, VOTE_BUSY = VOTE_WANTED + SAVE_PLACES, SAVE_VOTES = VOTE_BUSY + SAVE_PLACES };

/* How checkpoints of a place are begun and followed. */
struct saver {
    struct mck_writer *writer; /* NULL: nothing is saved there */
    int every;                 /* steps, SPEC_EVERY_AUTO, or 0: only at the end and when asked */
    struct cadence cadence;    /* of rank 0, which decides for all when every is SPEC_EVERY_AUTO */
    int under_way;
    unsigned dropped;    /* left out because two were under way */
    int64_t moved_us;    /* when one was begun or done last */
    bool stalled;        /* it was told that none has been done since then */
    unsigned removed;    /* went from a full disk before their time */
    uint64_t saved_step; /* of the last checkpoint begun; UINT64_MAX: none */
    int failed;          /* code of the last finished checkpoint (coordinator) */
};

struct save {
    const struct rank *rank;
    struct shard *shard;
    struct handover *handover;
    struct mck_buffer *list; /* what this rank writes; NULL until save_open() */
    size_t n;
    struct saver saver[SAVE_PLACES];
    int64_t gate_us;     /* that training has waited for what is being saved, in all time */
    struct guard *guard; /* of snapshots in memory: on each node's lowest rank, of several */
};

/* After an update, or once state was loaded: with an optimizer in files, they are the state of this step. */
int save_seal(struct save *save, struct merr *err);

/* Before anything is saved; once is enough. It takes time, which the first step need not wait for. */
int save_open(struct save *save, struct merr *err);
void save_close(struct save *save);

/* This rank's part of the agreement whether to save after the step under way. */
void save_vote(const struct save *save, double votes[SAVE_VOTES]);
/* Between two steps, the last of which took so long: report what was committed, begin what is due by the summed votes
 * of all ranks; must: save in any case, after waiting for what is under way. */
int save_due(struct save *save, const double votes[SAVE_VOTES], double seconds, bool must, struct merr *err);
/* While no step is taken: report what was committed, begin what was voted for. */
int save_asked(struct save *save, const double votes[SAVE_VOTES], struct merr *err);

/* Before a tensor (a place in params.by_place, -1: all) and its moments change: once what is saved of them is. */
int save_gate(struct save *save, int place, struct merr *err);
/* Coded dp: the weights become the masters' (optim_settle). */
int save_settle(struct save *save, struct merr *err);
/* How long training has waited for checkpoints since the last call. */
int64_t save_stall_us(struct save *save);

/* Between two steps, the last of this generation: leave a snapshot in the nodes' memories, from which the next one goes
 * on wherever it is. *ret_left is the same on all ranks; false: there is no such memory, or not enough. */
int save_leave(struct save *save, bool *ret_left, struct merr *err);
/* Wait until all are committed; the coordinator fails when the last one did. */
int save_finish(struct save *save, struct merr *err);

#endif
