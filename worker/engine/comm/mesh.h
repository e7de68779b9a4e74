/* mesh - where a rank stands in the grid of tensor, context, data and pipeline parallelism
 *
 * Rank order: tp fastest, then cp, then dp, then pp slowest, so that a tp group are neighbours on one node, and the
 * tp·cp ranks of a replica's stage beside them. Values only: no traffic, no memory.
 */
#ifndef MUSTER_WORKER_COMM_MESH_H
#define MUSTER_WORKER_COMM_MESH_H

#include <stdbool.h>

struct mesh {
    int tp, cp, dp, pp; /* sizes */
    int rank, tp_index, cp_index, dp_index, pp_index;
    bool first, last; /* stage of the pipeline */
};

/* tp, cp, dp, pp >= 1, 0 <= rank < tp·cp·dp·pp. */
void mesh_init(struct mesh *m, int tp, int cp, int dp, int pp, int rank);

int mesh_rank(const struct mesh *m, int tp_index, int cp_index, int dp_index, int pp_index);

/* Members of the groups this rank is in, in index order. ret holds tp, cp, dp, pp or 2 entries; the count
 * is returned. The pair is {first stage, last stage} of this rank's tp, cp and dp index: 0 members on other stages
 * and without a pipeline. */
int mesh_tp_ranks(const struct mesh *m, int *ret);
int mesh_cp_ranks(const struct mesh *m, int *ret);
int mesh_dp_ranks(const struct mesh *m, int *ret);
int mesh_pp_ranks(const struct mesh *m, int *ret);
int mesh_pair_ranks(const struct mesh *m, int ret[2]);
/* The copies neighbours in tp, this rank among them, that share a head of keys and values; copies divides tp. */
int mesh_kv_ranks(const struct mesh *m, int copies, int *ret);

#endif
