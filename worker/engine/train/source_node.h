/* source_node - a source node's process: the job has left the node while its state is still in that node's memory */
#ifndef MUSTER_WORKER_TRAIN_SOURCE_NODE_H
#define MUSTER_WORKER_TRAIN_SOURCE_NODE_H

#include "worker/engine/train/run.h"
#include "worker/flight/flight.h"

/* Hand out what the node's memory has, without a part in training. Returns why it ended. */
enum exit_cause source_node_run(const struct run *run, struct flight *flight);

#endif
