/* nccl - NVIDIA's library for traffic between GPUs, loaded at run time; private to worker/comm
 *
 * libnccl.so.2 of version 2.14 or newer. Communicators do not block: whatever is started is waited for here, so that
 * comm.h's promises of what ends a wait hold for GPUs too. After a failure the communicator is aborted, which ends what
 * runs on the GPU, and answers every later call with the world's failure. An abort that does not end is left to itself
 * after ten seconds: the failure's words say so, and the GPU is lost to the process (device.h).
 *
 * Calls that return int give 0, or a negative errno that world_fail() has kept, unless they take err.
 */
#ifndef MUSTER_WORKER_COMM_NCCL_H
#define MUSTER_WORKER_COMM_NCCL_H

#include "compress/device.h"
#include "worker/engine/comm/world.h"

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

/* A communicator of n of g's members, all of which call it with the same id and the number that each has in it. Its
 * work runs on q, which is borrowed. Only once nccl_look() gives 1, or after nccl_settle(), more may be asked of it. */
struct nccl_place {
    int n, index;
    char id[NCCL_ID_BYTES];
};
int nccl_new(struct comm_group *g, const struct nccl_place *at, struct device_queue *q, struct nccl **ret);
/* Begin to part, before nccl_free of several communicators that others may free in another order. */
void nccl_leave(struct nccl *c);
void nccl_free(struct nccl *c);

/* Whether what was asked for is under way: 1, or 0: not yet. */
int nccl_look(struct nccl *c);
/* Until it is. what: for the words when it does not come to that. */
int nccl_settle(struct nccl *c, const char *what);

/* Work between begin and end is started together at the end, where all members' sends and receives must match up. It
 * runs after what is queued on q already, and before what is queued there next. */
int nccl_begin(struct nccl *c);
int nccl_send(struct nccl *c, int member, const void *buf, size_t bytes);
int nccl_recv(struct nccl *c, int member, void *buf, size_t bytes);
int nccl_all_gather(struct nccl *c, const void *in, size_t bytes, void *out); /* in: its place in out, or elsewhere */
int nccl_broadcast(struct nccl *c, void *buf, size_t bytes, int root);
int nccl_end(struct nccl *c);   /* settled when it returns */
int nccl_start(struct nccl *c); /* as nccl_end, but for that */

/* Wait until all that is queued on q has run. */
int nccl_finish(struct nccl *c);

#endif
