/* feed - the documents of each step laid out as micro-batches, one step ahead on a thread of its own
 *
 * Step s takes the documents numbered s·B .. s·B+B-1 since the run began, and the policy lays them out over the virtual
 * workers (scheduler/sequence/plan.h): what a leaf of the gradient's tree computes depends on the spec and the corpus,
 * never on the replicas, of which each has the leaves that are its. Leaves are numbered so that each half of them, and
 * each half of a half, has about the same work; every other step in the opposite order, so that over the steps no
 * replica has more. The step number is the whole cursor. Of a leaf's documents each rank of cp has those that are whole
 * on it and its pieces of those that all of them share.
 *
 * One thread takes; the feed's own makes what comes next.
 */
#ifndef MUSTER_WORKER_DATA_FEED_H
#define MUSTER_WORKER_DATA_FEED_H

#include "scheduler/sequence/plan.h"
#include "worker/engine/data/pack.h"

struct feed_cfg {
    const struct docset *docs; /* borrowed for the feed's life */
    enum data_order order;
    uint64_t seed;
    int sequences;          /* B, at most SEQ_BATCH_MAX */
    uint64_t first, end;    /* steps */
    struct seq_config plan; /* replicas: the virtual workers; ranks: those of cp */
    int multiple;           /* rows of a micro-batch are brought to a multiple of it */
    int dp, dp_index;       /* whose leaves are packed */
    int cp_index;           /* and for which of plan.ranks */
    const int *share;       /* [dp] leaves of each replica; borrowed for the feed's life; NULL: evenly */
};

struct feed_step {
    uint64_t step;
    struct pack pack;        /* the documents of the step, and the micro-batches of this replica's leaves, in order */
    int per_leaf;            /* micro-batches of each leaf */
    int64_t tokens, targets; /* of all documents of the step, targets above 0 */
    double mean_length;      /* of the document a token is in */
    int64_t rank_tokens_min, rank_tokens_max; /* of the ranks of all replicas */
    double imbalance;     /* of predicted times: the slowest replica's over the mean of what ranks are busy */
    double padding_share; /* of the rows computed by all */
    double sharded_share; /* of the tokens: in documents that all ranks of cp share */
};

struct feed;

/* Begin with step first. -ENOMEM, -EAGAIN and the like from the thread. */
int feed_open(const struct feed_cfg *cfg, struct feed **ret, struct merr *err);
void feed_close(struct feed *f);

/* The step, from first on one after the other; borrowed until the next call. Returns 0, or what reading and planning
 * say (docset_read(), seq_plan_make()); -EINVAL when all documents of the step are left out; -EIO after FEED_WAIT_S. */
#define FEED_WAIT_S 600
int feed_take(struct feed *f, uint64_t step, const struct feed_step **ret, struct merr *err);

/* The plan of one step, for seq_plan_clear(); leaves of the gradient's tree are its replicas, in another order. Returns
 * 0 or as feed_take(). */
int feed_plan(const struct feed_cfg *cfg, uint64_t step, struct seq_plan *ret, struct merr *err);

/* Deal items 0 .. n - 1 of these weights to n leaves: leaf[i] is the item of leaf i. Any half of the leaves in a row,
 * halved at n / 2 again and again, has about half of the weight. Returns 0 or -ENOMEM. */
int feed_deal(const double *weight, int n, int *leaf);

#endif
