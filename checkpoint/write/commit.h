/* commit - the end of each attempt: published or discarded, and reported, in the order they began */
#ifndef MUSTER_CHECKPOINT_WRITE_COMMIT_H
#define MUSTER_CHECKPOINT_WRITE_COMMIT_H

#include "checkpoint/write/writer_priv.h"

/* The commit thread. */
void *commit_run(void *writer);

#endif
