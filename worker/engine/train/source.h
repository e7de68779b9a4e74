/* source - what training reads: the corpus, how a step's micro-batches are made of it, and the schedule that runs them
 *
 * A stream's samples are all of one length; documents of any are packed, ahead of the step that they are for (feed.h).
 * Which samples a step has follows from its number alone, so a run that goes on reads what it would have read.
 */
#ifndef MUSTER_WORKER_TRAIN_SOURCE_H
#define MUSTER_WORKER_TRAIN_SOURCE_H

#include "scheduler/plan/schedule.h"
#include "worker/engine/data/data.h"
#include "worker/engine/data/docset.h"
#include "worker/engine/data/feed.h"
#include "worker/engine/model/stage.h"
#include "worker/engine/train/rank.h"

struct source {
    const struct rank *rank;
    struct data *data;     /* NULL: documents */
    struct docset *docs;   /* NULL: a stream */
    struct data_info info; /* of documents, length is what a rank's micro-batch holds */
    struct stage *stage;   /* the first, whose slots are filled; NULL until source_begin() */
    struct feed *feed;     /* of documents */
    int32_t *samples;      /* with cp: a stream's micro-batch of all its ranks, tokens, then targets */

    int micro;                /* sequences a micro-batch */
    int length;               /* tokens of a sequence that are this rank's; of documents, of a micro-batch */
    int leaf_begin, leaf_end; /* of this replica */
    int *slots;               /* [chunks] */
    int cut;                  /* sequence.policy chunk: tokens of a part of a document; else 0 */
    int bodies;               /* with cut: activations of parts at once */

    /* one step */
    uint64_t step;
    int per_leaf, micros; /* micro-batches a leaf, and of this replica */
    struct schedule *schedule;
    const struct feed_step *fed;
    uint64_t targets, tokens; /* of all replicas */

    struct {
        int sequences, micros;     /* of all replicas */
        int begin, end;            /* micro-batches of this one */
        struct pack pack;          /* of documents */
        struct schedule *schedule; /* NULL: nothing to evaluate here */
    } heldout;
};

/* Open the corpus; then plan the sizes of steps and evaluations. */
int source_open(struct source *source, const struct rank *rank, struct merr *err);
int source_plan(struct source *source, struct merr *err);
/* Most documents of a micro-batch; 0: of a stream. */
int source_docs(const struct source *source);

/* Begin to read for the steps from this one on, into slots of the first stage. */
int source_begin(struct source *source, uint64_t step, struct stage *stage, struct merr *err);
void source_close(struct source *source);

/* What the step computes: sets micro-batches, their schedule, tokens and targets. */
int source_next(struct source *source, uint64_t step, struct merr *err);
/* Of the step: rows of its micro-batches (NULL: all full), and how long what a token is in is, on the average. */
const int *source_rows(const struct source *source);
double source_length(const struct source *source);
/* What this rank has to do in the step: tokens, those that attend to many counted for what that costs. */
double source_work(const struct source *source);
/* How its documents were laid out. */
void source_report(const struct source *source, struct report_step *s);

/* As a pipe_load (pipe.h): of the step's micro-batches, and of held-out ones, which count over all replicas. */
int source_load(struct source *source, int micro, bool text, struct stage_slot *slot, struct merr *err);
int source_load_heldout(struct source *source, int micro, bool text, struct stage_slot *slot, struct merr *err);

#endif
