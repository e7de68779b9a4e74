/* layout - how many devices of which kind of parallelism a job runs on
 *
 * Pure: facts of the job and a number of devices in, a layout out, or every reason why there is none as
 * data. world = tp·pp·cp·dp; replicas (dp) share the virtual workers, evenly or not.
 */
#ifndef MUSTER_SCHEDULER_PLAN_LAYOUT_H
#define MUSTER_SCHEDULER_PLAN_LAYOUT_H

#include <stddef.h>

#include "base/merr.h"

#define PLAN_AUTO 0 /* tp, pp, micro: chosen here */
#define PLAN_REASONS_MAX 8
#define PLAN_RANKS_MAX 1024 /* largest world */

struct layout {
    int tp, pp, cp, dp;
    int world; /* tp·pp·cp·dp: the ranks that run; may be fewer than the devices offered */
};

/* What the choice depends on. */
struct plan_facts {
    int tp, pp;          /* as the job asks, or PLAN_AUTO (1 in this version) */
    int cp;              /* 0 counts as 1 */
    int virtual_workers; /* V: replicas beyond it have nothing to do */
    int sequences;       /* B, a step */
    int micro;           /* sequences a micro-batch, or PLAN_AUTO */
    int layers, heads;   /* 0: not known, not checked */
};

struct plan_reason {
    char code[32]; /* "too-few-devices", "heads-not-divisible", … : stable, for programs */
    char text[256];
};

struct plan_reasons {
    struct plan_reason v[PLAN_REASONS_MAX];
    size_t n;
};

/* The layout with the most replicas that fits devices: dp is the largest number with tp·pp·cp·dp <= devices
 * and dp <= V. Returns 0 with *ret, or
 *   -EINVAL  the job can never run like this, however many devices
 *   -ENOSPC  too few devices for one replica
 * with every reason in why and the first in err (either may be NULL); *ret is unchanged then. */
int plan_layout(const struct plan_facts *f, int devices, struct layout *ret, struct plan_reasons *why,
                struct merr *err);

/* Devices of one replica, autos resolved; 0 when tp, pp or cp is negative or the product is too large. */
int plan_replica_devices(const struct plan_facts *f);

/* Leaves [*ret_begin, *ret_end) of V virtual workers that replica r of dp hosts. */
void plan_leaves(int virtual_workers, int dp, int r, int *ret_begin, int *ret_end);

/* The same where replicas have share[dp] leaves each, which make up all V; NULL: plan_leaves(). */
void plan_leaves_shared(const int *share, int virtual_workers, int dp, int r, int *ret_begin, int *ret_end);

#endif
