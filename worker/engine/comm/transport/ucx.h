/* ucx - the transport of ranks of different nodes: UCX's active messages over TCP or RDMA
 *
 * Each frame is one active message, its head the header. Messages are sent eagerly, so the receiver's handler gets
 * them whole and in order; the window of message.h bounds what may pile up. UCX's own shared memory is left out
 * (UCX_TLS decides otherwise): node-mates have ours, and its segments have names that a killed process leaves behind.
 */
#ifndef MUSTER_WORKER_COMM_TRANSPORT_UCX_H
#define MUSTER_WORKER_COMM_TRANSPORT_UCX_H

#include "worker/engine/comm/transport/transport.h"

extern const struct transport_ops ucx_transport;

#endif
