/* step - the steps of a training run, and what all ranks agree on between them */
#ifndef MUSTER_WORKER_TRAIN_STEP_H
#define MUSTER_WORKER_TRAIN_STEP_H

#include "api/protocol/cause.h"
#include "scheduler/diagnose/jump.h"
#include "worker/engine/train/device_test.h"
#include "worker/engine/train/eval.h"
#include "worker/engine/train/handover.h"
#include "worker/engine/train/hold.h"
#include "worker/engine/train/progress.h"
#include "worker/engine/train/save.h"
#include "worker/engine/train/shard.h"
#include "worker/engine/train/source.h"
#include "worker/engine/train/summary.h"

struct step {
    const struct rank *rank;
    struct shard *shard;
    struct source *source;
    struct save *save;
    struct handover *handover;
    struct eval eval;
    struct hold hold;
    struct summary summary;
    double peak_flops; /* matrix products a second, all ranks together */

    double *loss; /* [losses] of micro-batches */
    int losses;
    double *sums; /* [squares + leaves + SUM_EXTRAS + dp]; at last a leaf's time by replica */
    size_t squares;
    double leaf_ms;                               /* of this replica in the last step */
    uint64_t bytes_before[BYTES], context_before; /* sent before this step; the last of cp */
    uint32_t tested;                              /* the last test of its device */
    int skipped;                                  /* steps in a row, for want of finite gradients */
    bool refusal_told;                            /* that calls cannot be recorded */
    struct jump jump[2];                          /* of rank 0: of the loss, of the gradient norm */
    struct progress progress;                     /* of rank 0, for people */
    int fault_rank;                               /* a fault found together: the rank that is at fault, -1 */
    enum exit_cause fault_cause;                  /* of that rank's end */
};

/* Before ranks meet; the pointers are the caller's to set. */
int step_init(struct step *step, struct merr *err);
void step_clear(struct step *step);

/* All replicas have been given the same weights: else it ends as a step does that finds that they differ. */
int step_check_start(struct step *step, struct merr *err);

/* Train. Returns 0 at the end of training, 1 when drained. */
int step_loop(struct step *step, struct merr *err);

#endif
