/* device - calls of a group whose buffers lie in memory of GPUs; private to worker/comm
 *
 * NCCL moves the bytes and the GPU folds them in member order, so that sums have the bits they have on the processor.
 * It is used when every rank of the world has a GPU to itself and the same NCCL; else, and for small calls, managed
 * memory goes the way of any other memory.
 */
#ifndef MUSTER_WORKER_COMM_DEVICE_H
#define MUSTER_WORKER_COMM_DEVICE_H

#include "worker/engine/comm/world.h"

#define DEVICE_STAGE_BYTES (64u << 20)

struct device_card { /* what ranks tell each other when they meet */
    unsigned char id[DEVICE_ID_BYTES];
    int32_t version; /* of NCCL; 0: this rank cannot use it */
};

/* Make ready what this rank has; that there is nothing to be had is no error unless cfg says so. */
int device_open(struct comm_world *w, const struct comm_cfg *cfg, struct device_card *ret, struct merr *err);
/* Decide from all ranks' cards: the same everywhere. -ENODEV when cfg wants it and it cannot be. */
int device_agree(struct comm_world *w, const struct device_card *card, struct merr *err);
void device_close(struct comm_world *w); /* after device_group_free of all groups */
void device_group_free(struct comm_group *g);

/* Whether a call of so many bytes, which all members know alike, may go by NCCL. */
bool device_worth(const struct comm_group *g, size_t bytes);
bool device_holds(const struct comm_group *g, const void *p); /* memory that GPUs can reach */
/* 1 when this call goes by NCCL, for which the group is ready: the buffers of all members are held, and it is worth it
 * to one of them. Else 0. A round of small words, where calls that differ are found. */
int device_enter(struct comm_group *g, uint32_t step, bool held, bool worth);

/* Memory of the GPU of DEVICE_STAGE_BYTES for what comes in and waits to be added up: the running call's. */
int device_stage(struct comm_group *g, char **ret);

int device_sum(struct sum *s);
int device_gather(struct comm_group *g, const void *in, size_t bytes, void *out);
int device_gather_v(struct comm_group *g, const void *in, const size_t *bytes, const size_t *at, void *out);
int device_trade(struct comm_group *g, const void *const *send, const size_t *send_bytes, void *const *recv,
                 const size_t *recv_bytes);
int device_broadcast(struct comm_group *g, void *buf, size_t bytes, int root);

#endif
