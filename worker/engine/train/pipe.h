/* pipe - the small interpreter that runs a rank's list of pipeline actions
 *
 * One loop, one switch over the schedule's list. Micro-batch j stands in slot j modulo the slots of its stage; a
 * slot is entered when its last messages are done. Receives are posted where the list has them and waited for by the
 * action that needs them, sends are waited for when their slot is used again.
 */
#ifndef MUSTER_WORKER_TRAIN_PIPE_H
#define MUSTER_WORKER_TRAIN_PIPE_H

#include "base/merr.h"
#include "scheduler/plan/schedule.h"
#include "worker/engine/comm/comm.h"
#include "worker/engine/comm/mesh.h"
#include "worker/flight/flight.h"
#include "worker/engine/model/stage.h"
#include "worker/engine/optim/tree.h"

/* Put micro-batch number micro of this run into the slot: its layout when it is not a full one, sample numbers and, if
 * text, tokens and targets. Pieces of sequences go with schedule_new_pieces(), and no sequence is in two leaves. */
typedef int (*pipe_load)(void *arg, int micro, bool text, struct stage_slot *slot, struct merr *err);

/* Gradients are made in three places, and each goes through the leaves at its own pace: the backward of a chunk's input
 * (norms and embedding), that of its weights (the blocks' matrices and biases), the forward of the head. */
#define PIPE_TREE_INPUT(chunk) (2 * (chunk))
#define PIPE_TREE_WEIGHTS(chunk) (2 * (chunk) + 1)
#define PIPE_TREE_HEAD(chunks) (2 * (chunks))

/* The layer's matrices and biases have all gradients of this run; tree is the one they are in. */
typedef int (*pipe_layer_done)(void *arg, struct tree *tree, int layer, struct merr *err);

struct pipe_run {
    const struct schedule *schedule;
    pipe_load load;
    void *arg;
    float weight;         /* of a target in the loss that is differentiated */
    double *loss;         /* [micros], filled by the last stage */
    const int *rows;      /* [micros] tokens of each; NULL: all of them full */
    struct tree *tree;    /* [PIPE_TREE_HEAD(chunks) + 1], the last where the head is; NULL: forward only */
    int per_leaf;         /* micro-batches a leaf */
    pipe_layer_done done; /* from the last layer of each chunk down; NULL: nobody hears of it */
    uint64_t step;        /* for the flight page */
};

struct pipe;

struct pipe_cfg {         /* all borrowed for the pipe's life */
    struct stage **stage; /* [chunks] of this rank */
    const int *slots;     /* [chunks] */
    int chunks;
    size_t floats; /* of the message of a full micro-batch: its rows of the trunk */
    int rows;      /* of a full one */
    const struct mesh *mesh;
    struct wire *pp; /* NULL: one rank */
    const struct kern_ops *k;
    struct kern_stream *stream;
    struct flight *flight;
};

int pipe_new(const struct pipe_cfg *cfg, struct pipe **ret, struct merr *err);
/* Waits for messages that are still under way, which after a failure end at once when the rank is told to abort. */
void pipe_free(struct pipe *p);

int pipe_go(struct pipe *p, const struct pipe_run *run, struct merr *err);

#endif
