/* rank - who a rank is: what it was told, its kernels and peers, and which part of the model is its own
 *
 * Filled by rank_plan() and rank_meet() before the first step; from then on the other modules only read it.
 */
#ifndef MUSTER_WORKER_TRAIN_RANK_H
#define MUSTER_WORKER_TRAIN_RANK_H

#include "scheduler/plan/layout.h"
#include "worker/engine/comm/comm.h"
#include "worker/engine/comm/wire.h"
#include "worker/engine/kernels/kernels.h"
#include "worker/engine/model/model.h"
#include "worker/engine/model/param.h"
#include "worker/engine/optim/keyed.h"
#include "worker/engine/train/report.h"
#include "worker/engine/train/run.h"
#include "worker/flight/flight.h"

enum { BYTES_TP, BYTES_PP, BYTES_DP, BYTES }; /* kinds of groups whose traffic is counted and may be coded */

struct rank {
    struct run run;
    const struct job_spec *spec; /* of run */
    const struct mesh *mesh;     /* of run */
    struct flight *flight;
    struct report *report;
    const struct kern_ops *k;
    struct kern_stream *stream;

    struct model_cfg model;
    struct params params;
    int chunks;              /* stages of this rank */
    struct plan_split split; /* of layers over all stages */

    struct comm_world *world;
    struct comm_group *all, *tp, *kv, *cp, *dp, *pp, *pair; /* NULL where this rank is alone */
    struct wire *wire[BYTES];                               /* how tp, pp and dp travel */
    struct keyed *keyed; /* parallel.exact strict with compress.dp: what dp's raw wire then carries */
};

/* The model and this rank's part of it, from the spec and the weights that training starts from. */
int rank_plan(struct rank *rank, struct merr *err);

/* Meet the other ranks, as groups. shared_bytes: what node-mates read in place; shared_fd: a file for it, 0: none. All
 * ranks. */
int rank_meet(struct rank *rank, size_t shared_bytes, int shared_fd, struct merr *err);

/* Then the codecs between them. All ranks. */
int rank_open_wires(struct rank *rank, struct merr *err);

int rank_nodes(const struct rank *rank);           /* of the run */
bool rank_leads_node(const struct rank *rank);     /* the lowest of its node */
int rank_ranks_here(const struct rank *rank);      /* on this node */
enum kern_type rank_type(const struct rank *rank); /* of matrix products */

/* Whether a codec of the spec is one. */
bool rank_coded(const char *codec);

/* All but the flight page, which the handler of signals may still write to. */
void rank_clear(struct rank *rank);

#endif
