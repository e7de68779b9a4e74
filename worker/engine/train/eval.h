/* eval - the loss on held-out samples: forward only, the same number whatever the layout */
#ifndef MUSTER_WORKER_TRAIN_EVAL_H
#define MUSTER_WORKER_TRAIN_EVAL_H

#include "worker/engine/train/shard.h"
#include "worker/engine/train/source.h"

struct eval {
    struct shard *shard;
    struct source *source;
    double *sums;   /* [micros losses, micros counts of targets], of source->heldout */
    double unigram; /* entropy of the training tokens, once it is known */
    bool unigram_known;
};

/* After source_plan(). */
int eval_init(struct eval *eval, struct shard *shard, struct source *source, struct merr *err);
void eval_clear(struct eval *eval);

/* All ranks, between two steps. Rank 0 writes the event. */
int eval_run(struct eval *eval, struct merr *err);

#endif
