/* optim_priv - what optim.c, from gradients to sums, and update.c, from there to new weights, share. */
#ifndef MUSTER_WORKER_OPTIM_OPTIM_PRIV_H
#define MUSTER_WORKER_OPTIM_OPTIM_PRIV_H

#include "worker/engine/optim/exchange.h"
#include "worker/engine/optim/optim.h"

enum { REST, TIED, HEAD, REGIONS = EXCHANGE_REGIONS };
#define PART_WEIGHTS REGIONS /* vectors that travel: gradients by region, then weights by region */

struct region { /* of the gradient arena, cut over dp */
    size_t at, n;
    float *sum; /* our piece of the finished tree; lies in one of the leaves' buffers */
};

struct optim {
    struct optim_cfg cfg;
    struct region region[REGIONS];
    struct optim_range range[2], load[2];
    size_t state_n;
    float *m, *v;
    float *master;  /* coded dp, or narrow: the weights of our pieces, placed as m and v */
    char *units;    /* keyed: of all weights' differences */
    bool apart;     /* the weights are not the masters */
    size_t *cut;    /* [dp + 1] */
    double *blocks; /* sums of squares of the arena's blocks */
    float *parts;   /* of gradients to be added over tp, side by side */
    float *whole;   /* zero 0: the reduced gradient, gathered */
    struct exchange *exchange;
    size_t *bytes, *at;         /* [dp], [cp] */
    struct kern_adamw_step now; /* of the update under way */
};

/* The i-th replica's piece of a region, from the region's beginning on. */
void optim_piece(const struct optim *o, const struct region *g, int i, size_t *ret_begin, size_t *ret_n);

/* Where the pieces of a region begin, and its end: [dp + 1], until the next call. */
const size_t *optim_cuts(struct optim *o, const struct region *g);

/* Share pieces of a region's array of unit bytes for every PARAM_BLOCK elements, in place. */
int optim_gather(struct optim *o, const struct region *g, void *array, size_t unit, struct merr *err);

/* The part of tensor q in the range, from its beginning on. False: none. */
bool optim_in_range(const struct optim_range *r, const struct param *q, size_t *ret_at, size_t *ret_n);

/* AdamW on a range of the arena, of which g are the gradients. */
int optim_update_range(struct optim *o, const struct optim_range *r, const float *g, struct merr *err);

/* Narrow: what others hold of a range, from its masters. */
int optim_round_range(struct optim *o, const struct optim_range *r, struct merr *err);

/* optim_update() before anything is shared, with a store. */
int optim_store_update(struct optim *o, struct merr *err);

/* What brings leaves to their owners, by the wire as it is now. */
int optim_open_exchange(struct optim *o, struct merr *err);

#endif
