/* attempt - the files of one attempt: opened, finished, renamed into place, discarded */
#ifndef MUSTER_CHECKPOINT_WRITE_ATTEMPT_H
#define MUSTER_CHECKPOINT_WRITE_ATTEMPT_H

#include "checkpoint/write/writer_priv.h"

/* Prepare the file of an attempt: folder, temporary file, super block. Sets a->skip when the step is committed.
 * On the encode thread. */
int attempt_open(struct mck_writer *w, struct attempt *a, struct merr *err);

/* The rest of the file once all chunks have their place. Sets a->tail: the super block, then *ret_len bytes for
 * offset a->append. */
int attempt_make_tail(struct mck_writer *w, struct attempt *a, uint32_t *ret_len, struct merr *err);

/* The disk has no space for bytes more of a: older checkpoints go for it (space.h). True: it is worth another try. Lock
 * not held. */
bool attempt_make_space(struct mck_writer *w, struct attempt *a, uint64_t bytes, bool in_vain);

/* Rename a durable file into place; on rank 0 wait for the others and commit. On the commit thread. */
int attempt_publish(struct mck_writer *w, struct attempt *a, struct merr *err);

/* Remove what a failed attempt left. */
void attempt_discard(struct mck_writer *w, struct attempt *a);

#endif
