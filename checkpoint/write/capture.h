/* capture - copy the buffers into the pool while training goes on */
#ifndef MUSTER_CHECKPOINT_WRITE_CAPTURE_H
#define MUSTER_CHECKPOINT_WRITE_CAPTURE_H

#include "checkpoint/write/writer_priv.h"

/* The capture thread. */
void *capture_run(void *writer);

/* Copy one more piece of a into the pool. False: none left, or no slot free. Lock held, dropped meanwhile. */
bool capture_one(struct mck_writer *w, struct attempt *a);

/* An extent in place is written, or never will be: its pieces may change. Lock held. */
void capture_release(struct mck_writer *w, struct attempt *a, uint32_t extent);

#endif
