/* buffer - what a caller says of its memory, checked: for writing and for loading */
#ifndef MUSTER_CHECKPOINT_FORMAT_BUFFER_H
#define MUSTER_CHECKPOINT_FORMAT_BUFFER_H

#include <stdint.h>

#include "base/merr.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/format/box.h"

/* Check a buffer's description. -EINVAL names it. */
int buffer_check(const struct mck_buffer *b, struct merr *err);

/* Whole box of a buffer and its range in elements. */
void buffer_range(const struct mck_buffer *b, struct box *ret_box, uint64_t *ret_begin, uint64_t *ret_end);

#endif
