/* gpu - the GPU of a rank, and calls of a group whose buffers lie in memory of GPUs
 *
 * A fabric (transport/fabric.h) moves the bytes and the GPU folds them in member order, so that sums have the bits they
 * have on the processor. It is used when every rank of the world has a GPU to itself and the same library for it; else,
 * and for small calls, managed memory goes the way of any other memory.
 */
#ifndef MUSTER_WORKER_COMM_GPU_H
#define MUSTER_WORKER_COMM_GPU_H

#include "compress/device.h"
#include "worker/engine/comm/comm.h"
#include "worker/engine/comm/group.h"
#include "worker/engine/comm/sum.h"
#include "worker/engine/comm/transport/fabric.h"

#define GPU_STAGE_BYTES (64u << 20)

struct coded_gpu;
struct direct_all;

/* The rank's GPU, and whether all ranks use theirs. */
struct gpu {
    struct wait *wait;            /* the world's */
    const struct device_ops *ops; /* NULL: none */
    int ordinal;
    struct device_queue *queue; /* of calls */
    void *stage;                /* memory of the GPU, NULL until it is needed */
    bool usable, needed;
    char said[256];
    struct coded_gpu *coded;   /* of coded_gpu.h, NULL until a coded call comes */
    struct direct_all *direct; /* of direct.h; NULL: no messages between GPUs */
};

struct gpu_card { /* what ranks tell each other when they meet */
    struct device_id id;
    int64_t version; /* of the fabric's library; 0: this rank cannot use it */
};

/* Make ready what this rank has; that there is nothing to be had is no error unless cfg says so: -ENODEV, -ENOENT. */
int gpu_open(struct gpu *gpu, struct wait *wait, const struct comm_cfg *cfg, struct gpu_card *ret, struct merr *err);
/* Decide from all ranks' cards: the same everywhere. -ENODEV when cfg wants it and it cannot be. */
int gpu_agree(struct gpu *gpu, const struct gpu_card *card, struct merr *err);
void gpu_close(struct gpu *gpu); /* after gpu_group_free of all groups, and what those above hold */
void gpu_group_free(struct comm_group *g);

/* Whether a call of so many bytes, which all members know alike, may go by the fabric. */
bool gpu_worth(const struct comm_group *g, size_t bytes);
bool gpu_holds(const struct comm_group *g, const void *p); /* memory that GPUs can reach */
/* 1 when this call goes by the fabric, for which the group is ready: the buffers of all members are held, and it is
 * worth it to one of them. Else 0. A round of small words, where calls that differ are found. */
int gpu_enter(struct comm_group *g, uint32_t step, bool held, bool worth);

/* Memory of the GPU of GPU_STAGE_BYTES for what comes in and waits to be added up: the running call's. */
int gpu_stage(struct comm_group *g, char **ret);

int gpu_sum(struct sum *s);
int gpu_gather(struct comm_group *g, const void *in, size_t bytes, void *out);
int gpu_gather_v(struct comm_group *g, const void *in, const size_t *bytes, const size_t *at, void *out);
int gpu_trade(struct comm_group *g, const void *const *send, const size_t *send_bytes, void *const *recv,
              const size_t *recv_bytes);
int gpu_broadcast(struct comm_group *g, void *buf, size_t bytes, int root);

#endif
