/* share - what each user of each project is due beside the others, by the device time that they had lately
 *
 * A tree: projects below projects, users below their project. Siblings that have jobs divide what their parent gets by
 * weight; use is forgotten by half with each half-life. Pure: time is passed in. Not tied to a thread.
 */
#ifndef MUSTER_SCHEDULER_CLUSTER_SHARE_H
#define MUSTER_SCHEDULER_CLUSTER_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHARE_NONE UINT32_MAX
#define SHARE_DEPTH_MAX 10       /* of the tree: projects and, below them, users */
#define SHARE_MOST 64000         /* thousandths: nobody weighs more for what they lack, */
#define SHARE_LEAST 16           /* or less for what they had */
#define SHARE_LITTLE_US 60000000 /* device time beside which less is as good as nothing */

/* What use of so much counts after a span, with half-lives of half_us (0: nothing is ever forgotten). */
double share_decay(double use_us, int64_t span_us, int64_t half_us);

/* What a number of devices, held from one time to another, counts at the end of that. */
double share_of_run(int32_t devices, int64_t span_us, int64_t half_us);

struct share_node {
    uint32_t parent; /* index; SHARE_NONE: at the top */
    int64_t weight_milli;
    double use_us; /* its own, or of its users that are not in the tree; what is below it is added */
    bool wants;    /* it has jobs; so have all above it then */
};

/* Of each node, in thousandths, how much more its jobs shall weigh so that use comes to follow the shares: 1000 is
 * even, and steps are coarse, so that jobs that are about even do not trade places. Changes the nodes' use and wants
 * to those of all below. A node that is more than SHARE_DEPTH_MAX deep counts as if it were at the top. */
void share_all(struct share_node *nodes, size_t n, int64_t *ret_milli);

#endif
