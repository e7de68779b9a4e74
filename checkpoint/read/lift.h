/* lift - copies between a GPU and pinned memory, on a queue of their own, several under way at once
 *
 * They end in the order in which they began. For one thread at a time. After a copy that did not end well (-ETIMEDOUT:
 * the GPU hangs, and may yet read and write) none begins any more.
 */
#ifndef MUSTER_CHECKPOINT_READ_LIFT_H
#define MUSTER_CHECKPOINT_READ_LIFT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/merr.h"
#include "compress/device.h"

#define LIFT_DEPTH 8

struct lift;

/* memory: of the host, at pages, pinned while the lift is. Borrowed. */
int lift_new(const struct device_ops *ops, int ordinal, void *memory, size_t bytes, struct lift **ret,
             struct merr *err);
void lift_free(struct lift *l); /* waits for what is under way; NULL is fine */

bool lift_holds(const struct lift *l, const void *p); /* whether p lies on GPUs */

size_t lift_under_way(const struct lift *l); /* at most LIFT_DEPTH may be */

/* Copy to or from that memory. */
int lift_begin(struct lift *l, void *to, const void *from, size_t bytes, struct merr *err);
/* Wait for the oldest: its code. */
int lift_end(struct lift *l, struct merr *err);

#endif
