/* shm - the transport of node-mates: one segment of memory a rank, and an arena that mates read in place
 *
 * Mates open a rank's memory by way of /proc, so nothing has a name that could be left behind; a mate whose process is
 * gone is noticed (pidfd). Frames lie in the mate's segment once they are taken: it copies.
 */
#ifndef MUSTER_WORKER_COMM_TRANSPORT_SHM_H
#define MUSTER_WORKER_COMM_TRANSPORT_SHM_H

#include "worker/engine/comm/transport/transport.h"

extern const struct transport_ops shm_transport;

#endif
