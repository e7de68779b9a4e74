/* encode - hash, encode and checksum what was captured; lay out the data file */
#ifndef MUSTER_CHECKPOINT_WRITE_ENCODE_H
#define MUSTER_CHECKPOINT_WRITE_ENCODE_H

#include "checkpoint/write/writer_priv.h"

/* The encode thread. */
void *encode_run(void *writer);

#endif
