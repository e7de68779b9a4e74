/* links - links between the nodes of a run, measured where the server asks for it (docs/protocol.md) */
#ifndef MUSTER_WORKER_TRAIN_LINKS_H
#define MUSTER_WORKER_TRAIN_LINKS_H

#include "worker/engine/train/rank.h"

/* Let nodes measure how fast they reach each other, if one was asked to, and tell the server. All ranks. */
int links_measure(const struct rank *rank, struct merr *err);

#endif
