/* train - one rank of a training job, from its assignment to its exit code
 *
 * Everything that all ranks must decide alike (the step resumed from, a checkpoint, the end, a skipped step)
 * is decided from numbers that went through a collective, so no rank can differ.
 */
#ifndef MUSTER_WORKER_TRAIN_TRAIN_H
#define MUSTER_WORKER_TRAIN_TRAIN_H

/* Run to the end. Returns the status of a cause (api/protocol/cause.h), which is left in the flight page; what went
 * wrong has been logged and, unless a peer or an order was the cause, written as a "fault" event. */
int train_main(const char *folder, int rank);

#endif
