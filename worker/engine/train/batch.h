/* batch - how documents become the micro-batches of steps, as a job's spec has it: for the trainer and for people */
#ifndef MUSTER_WORKER_TRAIN_BATCH_H
#define MUSTER_WORKER_TRAIN_BATCH_H

#include <stdio.h>

#include "api/spec.h"
#include "worker/engine/data/feed.h"
#include "worker/engine/model/model.h"

/* Rows that each rank has a place for of a document that cp ranks share. */
int batch_rows_of_shared(int length, int cp);

/* Fill in all of a feed's configuration but its steps, its rows' multiple and the replicas. -ENOENT: no such policy. */
int batch_feed_config(const struct job_spec *spec, const struct model_cfg *model, const struct docset *docs, bool gpu,
                      struct feed_cfg *ret, struct merr *err);

/* Print the plans of the first steps of a job on documents, a line of JSON each (seq_plan_print). Returns 0, -EINVAL
 * for a job on a stream, or as docset_open() and feed_plan(). */
int batch_print(const struct job_spec *spec, int steps, FILE *out, struct merr *err);

#endif
