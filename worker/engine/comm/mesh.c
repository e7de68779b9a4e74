#include "worker/engine/comm/mesh.h"

#include <assert.h>

void mesh_init(struct mesh *m, int tp, int cp, int dp, int pp, int rank)
{
    assert(tp >= 1 && cp >= 1 && dp >= 1 && pp >= 1);
    assert(rank >= 0 && rank < tp * cp * dp * pp);
    *m = (struct mesh){
        .tp = tp,
        .cp = cp,
        .dp = dp,
        .pp = pp,
        .rank = rank,
        .tp_index = rank % tp,
        .cp_index = rank / tp % cp,
        .dp_index = rank / (tp * cp) % dp,
        .pp_index = rank / (tp * cp * dp),
    };
    m->first = m->pp_index == 0;
    m->last = m->pp_index == pp - 1;
}

int mesh_rank(const struct mesh *m, int tp_index, int cp_index, int dp_index, int pp_index)
{
    return tp_index + m->tp * (cp_index + m->cp * (dp_index + m->dp * pp_index));
}

int mesh_tp_ranks(const struct mesh *m, int *ret)
{
    for (int i = 0; i < m->tp; i++)
        ret[i] = mesh_rank(m, i, m->cp_index, m->dp_index, m->pp_index);
    return m->tp;
}

int mesh_cp_ranks(const struct mesh *m, int *ret)
{
    for (int i = 0; i < m->cp; i++)
        ret[i] = mesh_rank(m, m->tp_index, i, m->dp_index, m->pp_index);
    return m->cp;
}

int mesh_dp_ranks(const struct mesh *m, int *ret)
{
    for (int i = 0; i < m->dp; i++)
        ret[i] = mesh_rank(m, m->tp_index, m->cp_index, i, m->pp_index);
    return m->dp;
}

int mesh_pp_ranks(const struct mesh *m, int *ret)
{
    for (int i = 0; i < m->pp; i++)
        ret[i] = mesh_rank(m, m->tp_index, m->cp_index, m->dp_index, i);
    return m->pp;
}

int mesh_pair_ranks(const struct mesh *m, int ret[2])
{
    if (m->pp == 1 || !(m->first || m->last))
        return 0;
    ret[0] = mesh_rank(m, m->tp_index, m->cp_index, m->dp_index, 0);
    ret[1] = mesh_rank(m, m->tp_index, m->cp_index, m->dp_index, m->pp - 1);
    return 2;
}

int mesh_kv_ranks(const struct mesh *m, int copies, int *ret)
{
    int first = m->tp_index / copies * copies;

    for (int i = 0; i < copies; i++)
        ret[i] = mesh_rank(m, first + i, m->cp_index, m->dp_index, m->pp_index);
    return copies;
}
