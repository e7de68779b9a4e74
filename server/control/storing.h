/* storing - reports whose logs and metrics are on their way to the disk
 *
 * That a node lives, and how its ranks ended, must not wait for a disk that is slow or full. So a report waits for its
 * pieces STORING_WAIT_US at most; then it is taken without them, and its answer acknowledges none: the agent sends them
 * again. A node has the pieces of one report at a time on their way, all nodes together STORING_BYTES_MAX of them;
 * and one that floods the disk is held to STORING_BYTES_S.
 * Owned by the core's thread; the pieces are stored on the files' thread.
 */
#ifndef MUSTER_SERVER_STORING_H
#define MUSTER_SERVER_STORING_H

#include <stdint.h>

#define STORING_WAIT_US 500000
#define STORING_BYTES_MAX (256 << 20)  /* of bodies */
#define STORING_BYTES_S (4 << 20)      /* of those, from one node in a second, */
#define STORING_BYTES_BURST (16 << 20) /* after so many at once */

struct call;
struct core;
struct node;
struct storing;

/* finish: the report is to be taken and answered, with call->acks and ->fresh if its pieces are stored. late: they are
 * stored after all, call->fresh is what was new in them; there is nobody to answer. */
struct storing_ops {
    void (*finish)(struct core *c, struct call *call);
    void (*late)(struct core *c, struct call *call);
};

struct storing *storing_new(const struct storing_ops *ops); /* NULL: no memory */
void storing_free(struct storing *s);                       /* stopped before; NULL is fine */

/* Store the pieces of a report of this node, then finish it: at once where it has none, or others are on their way. */
void storing_take(struct core *c, struct call *call, struct node *n);

void storing_tick(struct core *c); /* finish those that have waited long enough */
void storing_stop(struct core *c); /* those that wait are refused */

#endif
