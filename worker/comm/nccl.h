/* nccl - NVIDIA's library for traffic between GPUs, loaded at run time; private to worker/comm
 *
 * libnccl.so.2 of version 2.14 or newer. Communicators do not block: whatever is started is waited for here, so that
 * comm.h's promises of what ends a wait hold for GPUs too. After a failure the communicator is aborted, which ends what
 * runs on the GPU, and answers every later call with the world's failure.
 *
 * Calls that return int give 0, or a negative errno that world_fail() has kept, unless they take err.
 */
#ifndef MUSTER_WORKER_COMM_NCCL_H
#define MUSTER_WORKER_COMM_NCCL_H

#include "compress/device.h"
#include "worker/comm/world.h"

#define NCCL_ID_BYTES 128

struct nccl; /* a communicator */

/* Load the library, once a process. *ret_version: 21903 for 2.19.3.
 *
 *   -ENOENT  it is not installed; err says what to install
 *   -EIO     it lacks a function that is needed, or is too old
 */
int nccl_load(int *ret_version, struct merr *err);

/* Where the members of a new communicator meet; made by one of them. */
int nccl_id(struct comm_world *w, char ret[NCCL_ID_BYTES]);

/* The communicator of g's members, all of which call it with the same id. Its work runs on q, which is borrowed. */
int nccl_new(struct comm_group *g, const char id[NCCL_ID_BYTES], struct device_queue *q, struct nccl **ret);
void nccl_free(struct nccl *c);

/* Work between begin and end is started together at the end, where all members' sends and receives must match up. It
 * runs after what is queued on q already, and before what is queued there next. */
int nccl_begin(struct nccl *c);
int nccl_send(struct nccl *c, int member, const void *buf, size_t bytes);
int nccl_recv(struct nccl *c, int member, void *buf, size_t bytes);
int nccl_all_gather(struct nccl *c, const void *in, size_t bytes, void *out); /* in: its place in out, or elsewhere */
int nccl_broadcast(struct nccl *c, void *buf, size_t bytes, int root);
int nccl_end(struct nccl *c);

/* Wait until all that is queued on q has run. */
int nccl_finish(struct nccl *c);

#endif
