/* packets - messages between the two processes of a session on a node, over a socket that keeps them whole
 *
 * A packet is a message of a session (api/protocol/frame.h). What the socket does not take waits here, up to
 * PACKETS_WAIT_MAX: the windows of a session keep it far below that. One owner.
 */
#ifndef MUSTER_WORKER_AGENT_PACKETS_H
#define MUSTER_WORKER_AGENT_PACKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "api/protocol/frame.h"
#include "base/buf.h"

#define PACKETS_WAIT_MAX (2 << 20)

struct packets {
    int fd; /* SOCK_SEQPACKET, that does not block; the caller's */
    struct buf wait;
};

void packets_init(struct packets *p, int fd);
void packets_clear(struct packets *p);

short packets_events(const struct packets *p); /* for poll() */

/* Returns 0, -EPIPE when the other end has gone, -EMSGSIZE, -ENOMEM. */
int packets_send(struct packets *p, enum session_message kind, const void *data, size_t len);
int packets_flush(struct packets *p); /* likewise */

/* Bytes of the next packet in text, its kind first; 0: there is none now; -EPIPE: there will be none. */
ssize_t packets_receive(struct packets *p, char text[1 + FRAME_MAX]);

#endif
