/* train_impl - the whole of a rank's state; train.c builds it, loop.c steps it, resume.c fills and saves it */
#ifndef MUSTER_WORKER_TRAIN_TRAIN_IMPL_H
#define MUSTER_WORKER_TRAIN_TRAIN_IMPL_H

#include "checkpoint/checkpoint.h"
#include "worker/comm/comm.h"
#include "worker/diagnose/flight.h"
#include "worker/kernels/kernels.h"
#include "worker/train/data.h"
#include "worker/train/model.h"
#include "worker/train/optim.h"
#include "worker/train/param.h"
#include "worker/train/pipe.h"
#include "worker/train/report.h"
#include "worker/train/run.h"
#include "worker/train/schedule.h"
#include "worker/train/stage.h"
#include "worker/train/state.h"
#include "worker/train/tree.h"

enum { BYTES_TP, BYTES_PP, BYTES_DP, BYTES };

/* The step's one sum over the world: squares by tensor and tp index, then losses by leaf, then these. */
enum { SUM_SAVE, SUM_DRAIN, SUM_BUSY, SUM_BYTES, SUM_EXTRAS = SUM_BYTES + BYTES };

struct train {
    struct run run;
    const struct job_spec *spec;
    const struct mesh *mesh;
    struct flight *flight;
    struct report *report;
    struct data *data;
    struct data_info info;
    struct model_cfg model;
    struct params params;
    int chunks;                         /* stages of this rank */
    struct mesh_split split;            /* of layers over all stages */

    /* one step */
    int micro, per_leaf;                /* sequences a micro-batch, micro-batches a leaf */
    int leaf_begin, leaf_end, micros;   /* of this replica */
    int *slots;                         /* [chunks] */
    struct schedule *schedule;
    double *loss;                       /* [micros] */
    double *sums;                       /* [squares + leaves + SUM_EXTRAS] */
    size_t squares;
    /* one evaluation */
    int eval_sequences, eval_micros, eval_begin, eval_end; /* of all, of this replica */
    struct schedule *eval_schedule;     /* NULL: nothing to evaluate here */
    double *eval_sums;                  /* [eval_micros losses, eval_micros counts of targets] */
    double unigram;

    const struct kern_ops *k;
    struct kern_stream *stream;
    struct comm_world *world;
    struct comm_group *all, *tp, *dp, *pp, *pair; /* NULL where this rank is alone */
    uint64_t bytes_before[BYTES];

    float *weights, *reduce;
    float **pool;                       /* gradient buffers of the tree */
    int buffers;
    bool weights_owned, pool_owned;     /* from mem_alloc, not from the shared arena */
    struct stage **stage;               /* [chunks] */
    struct tree *tree;                  /* [trees] of the chunks, then of the head where it is */
    int trees;
    struct optim *optim;
    struct pipe *pipe;
    double peak_flops;                  /* matrix products a second, all ranks together */

    struct mck_buffer *save_list;
    size_t save_n;
    struct mck_writer *writer;
    int saves_under_way;
    uint64_t saved_step;                /* of the last checkpoint begun; UINT64_MAX: none */
    int save_failed;                    /* code of the last finished checkpoint (coordinator) */

    uint64_t step;                      /* steps done */
    int skipped;                        /* in a row, for want of finite gradients */
    int fault_rank;                     /* a fault found together: the rank it is laid to, -1 */
};

/* resume.c: the config of the model in the job's own checkpoints, else of init.from; new, NULL when fresh weights are
 * made or the weights say nothing of it. */
int train_source(const struct train *t, json_t **ret, struct merr *err);
/* resume.c: weights and moments from the newest good checkpoint, from init.from, or fresh; sets step. */
int train_restore(struct train *t, struct merr *err);
int train_writer(struct train *t, struct merr *err);
/* Begin a checkpoint of step; must: wait for those under way instead of leaving this one out. */
int train_save(struct train *t, bool must, struct merr *err);
/* Take finished checkpoints and report them. */
int train_saves_poll(struct train *t, struct merr *err);
/* Wait until all are committed; the coordinator fails when the last one did. */
int train_saves_finish(struct train *t, struct merr *err);

/* eval.c */
int train_evaluate(struct train *t, struct merr *err);

/* loop.c: returns 0 at the end of training, 1 when drained. */
int train_loop(struct train *t, struct merr *err);

#endif
