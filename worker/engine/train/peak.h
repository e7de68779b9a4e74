/* peak - how fast a run's ranks multiply matrices: what the use made of them is measured against */
#ifndef MUSTER_WORKER_TRAIN_PEAK_H
#define MUSTER_WORKER_TRAIN_PEAK_H

#include "worker/engine/train/rank.h"

/* Operations a second of matrix products, of this rank alone, as if no other were there. */
int peak_time(const struct rank *rank, double *ret_flops, struct merr *err);

/* Of all ranks together. All ranks. */
int peak_measure(const struct rank *rank, double *ret_flops, struct merr *err);

#endif
