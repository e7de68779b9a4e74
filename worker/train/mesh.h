/* mesh - where a rank stands in the grid of tensor, data and pipeline parallelism
 *
 * Rank order: tp fastest, then dp, then pp slowest, so that a tp group are neighbours on one node. Values
 * only: no traffic, no memory.
 */
#ifndef MUSTER_WORKER_TRAIN_MESH_H
#define MUSTER_WORKER_TRAIN_MESH_H

#include <stdbool.h>
#include <stdint.h>

struct mesh {
    int tp, dp, pp; /* sizes */
    int rank, tp_index, dp_index, pp_index;
    bool first, last; /* stage of the pipeline */
};

/* tp, dp, pp >= 1, 0 <= rank < tp·dp·pp. */
void mesh_init(struct mesh *m, int tp, int dp, int pp, int rank);

int mesh_rank(const struct mesh *m, int tp_index, int dp_index, int pp_index);

/* Members of the groups this rank is in, in index order. ret holds tp, dp, pp or 2 entries; the count is
 * returned. The pair is {first stage, last stage} of this rank's tp and dp index: 0 members on other stages
 * and without a pipeline. */
int mesh_tp_ranks(const struct mesh *m, int *ret);
int mesh_dp_ranks(const struct mesh *m, int *ret);
int mesh_pp_ranks(const struct mesh *m, int *ret);
int mesh_pair_ranks(const struct mesh *m, int ret[2]);
/* The copies neighbours in tp, this rank among them, that share a head of keys and values; copies divides tp. */
int mesh_kv_ranks(const struct mesh *m, int copies, int *ret);

/* How a model's layers are cut into stages; stage s is on rank s modulo pp of the pipeline. */
struct mesh_split {
    int layers, stages;    /* 1 <= stages <= layers */
    const uint16_t *given; /* layers of each stage, borrowed; NULL: shared evenly, and */
    double head_cost;      /* the head on the last stage counts as that many layers */
};

/* Layers [*ret_begin, *ret_end) of stage s: every stage gets at least one. */
void mesh_split_layers(const struct mesh_split *m, int s, int *ret_begin, int *ret_end);

#endif
