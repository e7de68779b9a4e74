/* state - the training state of a rank as boxes of logical tensors: what is saved, and loading it into any layout */
#ifndef MUSTER_WORKER_TRAIN_STATE_H
#define MUSTER_WORKER_TRAIN_STATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "checkpoint/checkpoint.h"
#include "worker/engine/comm/mesh.h"
#include "worker/engine/model/param.h"
#include "worker/engine/optim/optim.h"

struct state_view {
    const struct params *params;
    const struct mesh *mesh;
    int zero;
    float *weights;
    float *master;                   /* the weights in range, placed as m and v; NULL: they stand in weights */
    const struct optim_range *range; /* [2]; NULL: weights only */
    float *m, *v;                    /* NULL: weights only */
    bool own; /* state_load fills only the weights in range: other ranks do the rest, and share (optim_share) */
    const struct device_ops *device; /* of the first GPU, on which all this lies; NULL: the host's memory */
};

/* What this rank writes, new in *ret (free it); names are borrowed from params. Tensors that another rank writes
 * are in it as replicas. */
int state_save_list(const struct state_view *s, struct mck_buffer **ret, size_t *ret_n, struct merr *err);

/* Fill weights and moments from a checkpoint; weights alone when s->range is NULL. -ENOENT names a missing tensor,
 * -EBADMSG a damaged file. */
int state_load(const struct state_view *s, struct mck *c, struct merr *err);

/* Which chunks state_load would read: as mck_needed. */
int state_needed(const struct state_view *s, struct mck *c, void (*take)(void *arg, uint32_t file, uint32_t chunk),
                 void *arg, struct merr *err);

/* A checkpoint folder, a folder of checkpoints (the newest is taken), "folder:step", a .safetensors file or a
 * folder with one. */
int state_open(const char *path, struct mck **ret, struct merr *err);

#endif
