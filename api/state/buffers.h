/* buffers - a caller's list of buffers as the checkpoint folder takes it */
#ifndef MUSTER_API_STATE_BUFFERS_H
#define MUSTER_API_STATE_BUFFERS_H

#include "api/state/muster_state.h"
#include "checkpoint/checkpoint.h"

struct buffers {
    struct mck_buffer *v;
    size_t n;
};

/* A copy with names of its own; *ret is to be cleared whatever this returns: 0, -EINVAL, -ENOMEM. */
int buffers_copy(const struct mstate_buffer *from, size_t n, struct buffers *ret, struct merr *err);
void buffers_clear(struct buffers *b);

#endif
