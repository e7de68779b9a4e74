/* direct - messages from a GPU to a GPU, by NCCL; private to worker/comm
 *
 * Who receives says so over the CPU transports; then who sends starts its half, and answers which turn the message
 * has; then who receives starts the other half. So both start the same messages in the same order, whatever the order
 * of posting, and none waits on a GPU for one that nobody has asked for. Between two ranks each direction has a
 * communicator and a queue of its own: messages run beside kernels, calls and each other.
 */
#ifndef MUSTER_WORKER_COMM_DIRECT_H
#define MUSTER_WORKER_COMM_DIRECT_H

#include "worker/engine/comm/world.h"

/* Whether a message of so many bytes at buf goes this way, at both of its ends. */
bool direct_worth(const struct comm_group *g, const void *buf, size_t bytes);

/* As message_send and message_recv. */
struct comm_request *direct_send(struct comm_group *g, int member, const struct frame *head, const void *buf);
struct comm_request *direct_recv(struct comm_group *g, int member, const struct frame *head, void *buf);

bool direct_progress(struct comm_world *w);   /* whether anything went on */
bool direct_runs(const struct comm_world *w); /* GPUs work, which tell nobody when they are done */

void direct_free(struct comm_request *req); /* what belongs to a request of this kind, done or of a failed world */
void direct_abandon(struct comm_world *w);  /* of a failed world: no buffer is read or written after */
void direct_close(struct comm_world *w);

#endif
