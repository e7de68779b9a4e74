/* report - what a rank tells the world in files: a line of metrics a step, events as they happen
 *
 * metrics.jsonl and events.jsonl of the run's folder, and the job folder's metrics.jsonl over all generations
 * (design of the lines: docs/protocol.md, docs/spec.md). Whole lines are appended with one write each.
 */
#ifndef MUSTER_WORKER_TRAIN_REPORT_H
#define MUSTER_WORKER_TRAIN_REPORT_H

#include <jansson.h>
#include <stdint.h>

#include "base/merr.h"

struct report;

#define REPORT_WIRES 3 /* tp, pp, dp */

struct report_step {
    uint64_t step, tokens; /* tokens: seen since the run began, this step included */
    double loss, grad_norm, lr, tokens_per_s, step_ms, mfu, stall_ms;
    uint64_t bytes_tp, bytes_pp, bytes_dp;
    uint64_t bytes_cp; /* 0: there is no cp, and nothing said of it */
    uint64_t generation;
    int ranks, replicas;
    const double *leaf_ms; /* [replicas]: how long each took for one of its virtual workers; left out of many */
    /* of documents */
    int documents;     /* of the step, those left out not counted; 0: samples of a stream, which have no more to say */
    int micro_batches; /* of each virtual worker */
    uint64_t targets;  /* that the loss is the mean of */
    uint64_t rank_tokens_min, rank_tokens_max;
    double imbalance, padding_share, sharded_share; /* as in worker/engine/data/feed.h; the last with bytes_cp */
    double activation_mib, recomputed; /* of rank 0: the most in use at once; share of blocks made again whole */
    /* of rank 0, where compress is auto: milliseconds in calls of tp, in waiting for messages of pp, in calls of dp,
     * and what was predicted; 0: not said */
    double wire_ms[REPORT_WIRES], wire_predicted_ms[REPORT_WIRES];
};

/* folder: of the run, dir: of the job. Rank 0 opens the metrics too and cuts the job folder's lines back to steps
 * below start: those are trained again. */
int report_open(const char *folder, const char *dir, int rank, struct report **ret, struct merr *err);
int report_cut(struct report *r, uint64_t start, struct merr *err);
void report_free(struct report *r);

int report_metrics(struct report *r, const struct report_step *s, struct merr *err);

/* event, new and taken over, gets "rank" when it has none. NULL is -ENOMEM. */
int report_event_take(struct report *r, json_t *event, struct merr *err);

/* An event of type "note": words for people on what happened at a step. */
int report_note(struct report *r, uint64_t step, const char *message, struct merr *err);

#endif
