/* device_uses - how many devices of each class are free, unusable or in whose project's hands
 *
 * Filled node by node, so that one turn counts few of them. A cluster with more classes times projects than there are
 * rows has the rest counted under a class and project of no name.
 */
#ifndef MUSTER_SERVER_DEVICE_USES_H
#define MUSTER_SERVER_DEVICE_USES_H

#include <stddef.h>

#include "base/buf.h"
#include "server/cluster/node.h"
#include "server/control/table.h"

#define DEVICE_USES_MAX 512

enum device_use { DEVICE_FREE, DEVICE_BUSY, DEVICE_UNUSABLE, DEVICE_USES };

struct device_uses { /* zeroed: nothing was counted */
    struct device_uses_row {
        char class_[SPEC_NAME_MAX], project[SPEC_NAME_MAX]; /* project: of busy ones, else "" */
        size_t n[DEVICE_USES];
    } row[DEVICE_USES_MAX + 1];
    size_t n;
};

void device_uses_add(struct device_uses *u, const struct classes *k, const struct table *jobs, const struct node *n);

size_t device_uses_sum(const struct device_uses *u, enum device_use use);

/* In the text format of Prometheus: muster_slots in all, and muster_devices by class, state and project. */
void device_uses_print(const struct device_uses *u, struct buf *out);

#endif
