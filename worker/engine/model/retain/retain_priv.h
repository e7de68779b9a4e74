/* retain_priv - the table of operations that each policy fills in */
#ifndef MUSTER_WORKER_MODEL_RETAIN_PRIV_H
#define MUSTER_WORKER_MODEL_RETAIN_PRIV_H

#include "scheduler/sequence/mimose.h"
#include "worker/engine/model/retain/retain.h"

struct retain_ops {
    const char *name;
    enum retain_again most; /* that is made again of any block */

    /* Each as the function of the same name in retain.h. */
    int (*together)(const struct retain_cfg *cfg); /* NULL: one */
    struct retain_stay (*block)(const struct retain_cfg *cfg, int blocks, int i);

    /* With plans, else NULL; self is what open() made. */
    int (*open)(const struct retain_cfg *cfg, int blocks, void **ret, struct merr *err);
    void (*close)(void *self);
    int (*begin)(void *self, int rows, const struct retain_bytes *each, bool train, struct merr *err);
    struct retain_stay (*next)(void *self, int i);
    int (*end)(void *self, bool train, struct merr *err);
};

extern const struct retain_ops retain_none, retain_selective, retain_full, retain_sqrt, retain_mimose;

struct retain {
    const struct retain_ops *ops;
    void *self;
};

/* The model that a policy mimose learns: borrowed. */
struct mimose *retain_mimose_model(struct retain *r);

/* Block i is made again by itself, but for its input. */
static inline struct retain_stay retain_whole(int i)
{
    return (struct retain_stay){.again = AGAIN_WHOLE, .first = i, .last = i};
}

#endif
