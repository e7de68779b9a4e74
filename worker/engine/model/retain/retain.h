/* retain - which activations of which block stay in memory until the backward, and which are made again
 *
 * One table of operations a policy, found by name. A policy only decides: it sees numbers of blocks, rows and bytes,
 * places nothing and computes nothing of the model. Whatever it decides, no bit of the result changes.
 *
 *   none       everything stays
 *   selective  outputs of norms and activations are made again, of all but the last cfg.kept blocks
 *   full, all  everything but a block's input, of the same blocks
 *   sqrt       of the blocks before the last run of cfg.run: only a run's input stays, and the run is made again as a
 *              whole (Chen et al. 2016)
 *   mimose     each micro-batch has a plan of its own, made from its rows by a model that learns (Mimose 2022,
 *              scheduler/sequence/mimose.h): its blocks keep at most cfg.keep_bytes; of the others first only what
 *              selective makes again is dropped, then, of as many as must be, everything
 *
 * A struct retain has one owner thread, that of its stage.
 */
#ifndef MUSTER_WORKER_MODEL_RETAIN_H
#define MUSTER_WORKER_MODEL_RETAIN_H

#include <stdbool.h>
#include <stddef.h>

#include "api/spec.h"
#include "base/merr.h"

struct retain_cfg {
    const char *policy; /* its name; NULL: none */
    int kept;           /* selective, full: blocks at the end that keep everything in spite of it */
    int run;            /* sqrt: blocks of a run, at least 1 */
    size_t keep_bytes;  /* mimose: of a micro-batch */
};

enum retain_again { AGAIN_NOTHING, AGAIN_CHEAP, AGAIN_WHOLE };

struct retain_stay {         /* of one block and micro-batch */
    enum retain_again again; /* what of it the backward makes again: cheap, outputs of norms and activations */
    int first, last;         /* AGAIN_WHOLE: it is made again with these blocks, of which the first keeps its input */
    bool lacked;             /* a plan kept it, but there was no room */
};

struct retain_bytes { /* of a block of one micro-batch, beside its input */
    size_t cheap, rest;
};

/* Whether there is a policy of this name. */
bool retain_known(const char *policy);
/* The name of the policy that parallel.recompute of a job asks for. */
const char *retain_recompute(enum recompute recompute);

/* The most that cfg makes again of any block, and of how many blocks at once: for these a stage has places. */
enum retain_again retain_most(const struct retain_cfg *cfg);
int retain_together(const struct retain_cfg *cfg);
/* Whether each micro-batch has a plan of its own, within cfg.keep_bytes. */
bool retain_plans(const struct retain_cfg *cfg);
/* Whether stages of either can work in the same places. */
bool retain_alike(const struct retain_cfg *a, const struct retain_cfg *b);

/* What stays of block i of so many; with plans, before any micro-batch has one. */
struct retain_stay retain_block(const struct retain_cfg *cfg, int blocks, int i);

struct retain;

/* 0, or -ENOMEM. */
int retain_new(const struct retain_cfg *cfg, int blocks, struct retain **ret, struct merr *err);
void retain_free(struct retain *r);

/* With plans, for each micro-batch: before its first block goes forward, each block in turn, after the last. Outside of
 * training everything is dropped. The others have nothing to do here. */
int retain_begin(struct retain *r, int rows, const struct retain_bytes *each, bool train, struct merr *err);
struct retain_stay retain_next(struct retain *r, int i);
int retain_end(struct retain *r, bool train, struct merr *err);

#endif
