/* direct - messages from a GPU to a GPU, by the fabric (transport/fabric.h)
 *
 * Who receives says so over the CPU transports; then who sends starts its half, and answers which turn the message
 * has; then who receives starts the other half. So both start the same messages in the same order, whatever the order
 * of posting, and none waits on a GPU for one that nobody has asked for. Between two ranks each direction has a
 * communicator and a queue of its own: messages run beside kernels, calls and each other.
 */
#ifndef MUSTER_WORKER_COMM_DIRECT_H
#define MUSTER_WORKER_COMM_DIRECT_H

#include "worker/engine/comm/gpu.h"

/* Make ready for messages of a GPU that is usable: from now on they go on within the wait. Returns 0 or -ENOMEM. */
int direct_open(struct gpu *gpu, struct merr *err);
void direct_close(struct gpu *gpu); /* none open is fine */

/* Whether a message of so many bytes at buf goes this way, at both of its ends. */
bool direct_worth(const struct comm_group *g, const void *buf, size_t bytes);

/* As message_send and message_recv, of a group's member. */
struct comm_request *direct_send(struct comm_group *g, int member, const struct frame *head, const void *buf);
struct comm_request *direct_recv(struct comm_group *g, int member, const struct frame *head, void *buf);

#endif
