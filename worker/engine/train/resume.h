/* resume - where training starts from: state left in memory, a snapshot, a checkpoint, init.from, or fresh weights */
#ifndef MUSTER_WORKER_TRAIN_RESUME_H
#define MUSTER_WORKER_TRAIN_RESUME_H

#include "worker/engine/train/handover.h"
#include "worker/engine/train/shard.h"

/* How long a rank may take to load so many bytes of state: a minute, and what a slow disk that many share needs. */
int64_t resume_allowed_us(uint64_t bytes);

/* Weights and moments from the newest good state that there is, all ranks together; sets steps and tokens. */
int resume_state(const struct rank *rank, struct shard *shard, struct handover *handover, struct merr *err);

#endif
