/* capacity - how much memory a node, the control groups of a process in it, or a GPU has */
#ifndef MUSTER_WORKER_SNAPSHOT_CAPACITY_H
#define MUSTER_WORKER_SNAPSHOT_CAPACITY_H

#include <stdint.h>

struct capacity { /* bytes; 0: not known */
    uint64_t free, total;
};

/* What /proc/meminfo and the control groups (version 2) of this process say now: the tightest of them. */
void capacity_here(struct capacity *ret);

#endif
