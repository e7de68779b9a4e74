/* flush - the thread that owns the mio: writes, then one sync of each file */
#ifndef MUSTER_CHECKPOINT_WRITE_FLUSH_H
#define MUSTER_CHECKPOINT_WRITE_FLUSH_H

#include "checkpoint/write/writer_priv.h"

/* The I/O thread. */
void *flush_run(void *writer);

/* Hand writes to the I/O thread. Lock held. */
void flush_queue(struct mck_writer *w, struct write *req);

#endif
