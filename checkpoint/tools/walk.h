/* walk - the elements of tensors one after another, in pieces of bounded memory; small tensors are read many at once */
#ifndef MUSTER_CHECKPOINT_TOOLS_WALK_H
#define MUSTER_CHECKPOINT_TOOLS_WALK_H

#include "checkpoint/read/read.h"

#define WALK_AS_STORED (-1)
#define WALK_ALL_ROLES (-1)

struct walk {
    size_t begin, end; /* tensors of the index */
    int role;          /* only those of it */
    int dtype;         /* what floats become */
    /* A tensor's first bytes, or those that follow the ones before; a tensor without elements comes with none. Not 0
     * ends the walk. */
    int (*take)(void *arg, const struct mck_tensor *t, bool first, const void *data, size_t bytes, struct merr *err);
    void *arg;
};

/* The type in which a walk gives a tensor where floats become dtype. */
int walk_dtype(int dtype, const struct mck_tensor *t);

/* Tells c's watcher. 0, what take returned, or as mck_load. */
int walk_tensors(struct mck *c, const struct walk *w, struct merr *err);

#endif
