/* train_impl - the whole of a rank's state; train.c builds it, loop.c steps it, resume.c fills and saves it */
#ifndef MUSTER_WORKER_TRAIN_TRAIN_IMPL_H
#define MUSTER_WORKER_TRAIN_TRAIN_IMPL_H

#include "checkpoint/checkpoint.h"
#include "scheduler/plan/schedule.h"
#include "worker/engine/comm/comm.h"
#include "worker/engine/comm/wire.h"
#include "worker/engine/data/data.h"
#include "worker/engine/data/docset.h"
#include "worker/engine/data/feed.h"
#include "worker/flight/flight.h"
#include "worker/engine/kernels/kernels.h"
#include "worker/engine/model/model.h"
#include "worker/engine/model/param.h"
#include "worker/engine/model/stage.h"
#include "worker/engine/optim/keyed.h"
#include "worker/engine/optim/optim.h"
#include "worker/engine/optim/tree.h"
#include "worker/engine/recover/guard.h"
#include "worker/engine/train/cadence.h"
#include "worker/engine/train/hold.h"
#include "worker/snapshot/handoff.h"
#include "worker/engine/train/pipe.h"
#include "worker/engine/train/report.h"
#include "worker/engine/train/run.h"
#include "worker/engine/train/state.h"

enum { BYTES_TP, BYTES_PP, BYTES_DP, BYTES };

/* Where state is saved: on disk for good, in the node's memory for the job's next generation. */
enum { TIER_DISK, TIER_MEMORY, TIERS };
/* And where the generation before may have left it: in the files that training computes in (handoff.h). */
enum { TIER_KEPT = TIERS, SOURCES };
enum { SAVE_WANTED, SAVE_BUSY = SAVE_WANTED + TIERS, SAVE_VOTES = SAVE_BUSY + TIERS };

/* The step's one sum over the world: squares by tensor and tp index, then losses by leaf, then these. */
enum {
    SUM_DRAIN,
    SUM_FIRM,
    SUM_MOVE,
    SUM_BROKEN,
    SUM_CONTEXT,
    SUM_BYTES,
    SUM_TUNE = SUM_BYTES + BYTES,
    SUM_SAVES = SUM_TUNE + BYTES,
    SUM_HOLD = SUM_SAVES + SAVE_VOTES,
    SUM_EXTRAS
};

/* How checkpoints of a tier are begun and followed. */
struct saver {
    struct mck_writer *writer; /* NULL: nothing is saved there */
    int every;                 /* steps, SPEC_EVERY_AUTO, or 0: only at the end and when asked */
    struct cadence cadence;    /* of rank 0, which decides for all when every is SPEC_EVERY_AUTO */
    int under_way;
    unsigned dropped;    /* left out because two were under way */
    unsigned removed;    /* went from a full disk before their time */
    uint64_t saved_step; /* of the last checkpoint begun; UINT64_MAX: none */
    int failed;          /* code of the last finished checkpoint (coordinator) */
};

struct train {
    struct run run;
    struct hold hold;
    const struct job_spec *spec;
    const struct mesh *mesh;
    struct flight *flight;
    struct report *report;
    struct data *data;     /* NULL: documents */
    struct docset *docs;   /* NULL: a stream */
    struct data_info info; /* of documents, length is what a rank's micro-batch holds */
    struct model_cfg model;
    struct params params;
    int chunks;              /* stages of this rank */
    struct plan_split split; /* of layers over all stages */

    /* one step */
    int micro, per_leaf;              /* sequences a micro-batch, micro-batches a leaf */
    int length;                       /* tokens of a sequence that are this rank's; of documents, of a micro-batch */
    int32_t *samples;                 /* with cp: a stream's micro-batch of all its ranks, tokens, then targets */
    int leaf_begin, leaf_end, micros; /* of this replica */
    int *slots;                       /* [chunks] */
    int cut;                          /* sequence.policy chunk: tokens of a part of a document; else 0 */
    int bodies;                       /* with cut: activations of parts at once */
    int run_blocks;                   /* memory.policy sqrt: blocks of a run that is made again at once; else 0 */
    size_t *keep_bytes;               /* [chunks] memory.policy mimose: what blocks of a slot may keep; else NULL */
    struct schedule *schedule;
    double *loss;                  /* [micros] */
    struct feed *feed;             /* of documents */
    const struct feed_step *fed;   /* this step's */
    uint64_t targets, step_tokens; /* of all replicas */
    double *sums;                  /* [squares + leaves + SUM_EXTRAS + dp]; at last a leaf's time by replica */
    double leaf_ms;                /* of this replica in the last step */
    size_t squares;
    /* one evaluation */
    int eval_sequences, eval_micros, eval_begin, eval_end; /* of all, of this replica */
    struct pack heldout;                                   /* of documents */
    struct schedule *eval_schedule;                        /* NULL: nothing to evaluate here */
    double *eval_sums;                                     /* [eval_micros losses, eval_micros counts of targets] */
    double unigram;                                        /* entropy of the training tokens, once it is known */
    bool unigram_known;

    const struct kern_ops *k;
    struct kern_stream *stream;
    bool refusal_told; /* that calls cannot be recorded */
    struct comm_world *world;
    struct comm_group *all, *tp, *kv, *cp, *dp, *pp, *pair; /* NULL where this rank is alone */
    struct wire *wire[BYTES];                               /* how tp, pp and dp travel */
    struct keyed *keyed; /* parallel.exact strict with compress.dp: what dp's raw wire then carries */
    uint64_t bytes_before[BYTES], context_before; /* the last of cp */

    float *weights, *reduce;
    void *matrices; /* the weights in bf16, NULL in f32 */
    float **pool;   /* gradient buffers of the tree */
    int buffers;
    bool weights_owned, pool_owned; /* from mem_alloc, not from the shared arena */
    struct handoff *keep;           /* the shared arena and the moments lie there; NULL: not */
    bool keeps, keep_cleared;       /* all ranks have one; its bytes of before are gone */
    int64_t durable_us;             /* wall time of the newest state that is on disk, as far as is known */
    int64_t copy_us;                /* wall time when what was taken over is to go to disk; 0: nothing is */
    struct stage **stage;           /* [chunks] */
    struct tree *tree;              /* [trees] of the chunks, then of the head where it is */
    int trees;
    struct optim *optim;
    struct pipe *pipe;
    double peak_flops; /* matrix products a second, all ranks together */

    struct mck_buffer *save_list;
    size_t save_n;
    struct saver saver[TIERS];
    struct guard *guard; /* of snapshots in memory: on each node's lowest rank, of several */

    uint64_t step;   /* steps done */
    uint64_t tokens; /* trained on in them */
    int skipped;     /* in a row, for want of finite gradients */
    int fault_rank;  /* a fault found together: the rank it is laid to, -1 */
};

/* train.c: let auto decide how the groups of one kind travel; between steps. */
int train_tune(struct train *t, int kind, struct merr *err);

/* world.c: meet the other ranks, as groups with codecs; shared_bytes: what node-mates read in place. All ranks. */
int train_world_open(struct train *t, size_t shared_bytes, struct merr *err);

/* links.c: let nodes measure how fast they reach each other, if one was asked to, and tell the server. All ranks. */
int train_measure_links(struct train *t, struct merr *err);

/* batch.c: open the corpus; plan sizes of steps and evaluations; begin to read documents from t->step on. */
int train_batch_open(struct train *t, struct merr *err);
int train_batch_plan(struct train *t, struct merr *err);
int train_batch_start(struct train *t, struct merr *err);
void train_batch_close(struct train *t);
int train_batch_docs(const struct train *t); /* most documents of a micro-batch; 0: of a stream */
/* What t->step computes: sets micro-batches, their schedule, tokens and targets. */
int train_batch_next(struct train *t, struct merr *err);
/* Of the step: rows of its micro-batches (NULL: all full), and how long what a token is in is, on the average. */
const int *train_batch_rows(const struct train *t);
double train_batch_length(const struct train *t);
/* How its documents were laid out. */
void train_batch_report(const struct train *t, struct report_step *s);
/* A pipe_load of the step, arg a struct train; and of a micro-batch of a pack. */
int train_load(void *arg, int micro, bool text, struct stage_slot *slot, struct merr *err);
void train_load_pack(struct train *t, const struct pack *p, size_t micro, bool text, struct stage_slot *slot);
/* Number the slot's samples of a stream. */
void train_number_samples(const struct train *t, struct stage_slot *slot, uint64_t first);
/* Where a micro-batch of a stream is read to; once it is there the slot gets the rows that are this rank's. */
void train_sample_room(struct train *t, struct stage_slot *slot, int32_t **ret_tokens, int32_t **ret_targets);
void train_take_samples(struct train *t, struct stage_slot *slot);

/* train.c: ranks on this node. */
int train_ranks_here(const struct train *t);
/* train.c: the weights have new values; products read them from now on. */
int train_weights_changed(struct train *t, struct merr *err);

/* resume.c: the config of the model in the job's own checkpoints, else of init.from; new, NULL when fresh weights are
 * made or the weights say nothing of it. */
int train_source(const struct train *t, json_t **ret, struct merr *err);
/* resume.c: weights and moments from the newest good checkpoint, from init.from, or fresh; sets step. */
int train_restore(struct train *t, struct merr *err);
/* What is saved and loaded. */
struct state_view train_view(struct train *t, bool moments);

/* handover.c: files in the node's memory for this rank, where it may have some; arena_bytes is what it shares. */
void train_keep_open(struct train *t, size_t arena_bytes);
/* Once ranks have met: whether all of them have such files. */
int train_keep_agree(struct train *t, struct merr *err);
/* Once all is allocated: have it mapped. */
void train_keep_touch(struct train *t);
/* Zeros for weights and moments, as they are when a run begins. */
void train_state_clear(struct train *t);
/* All bytes that earlier generations left there are zero from now on. */
void train_keep_clear(struct train *t);
/* Steps done by the state that the generation before has left. False: there is none. */
bool train_kept(const struct train *t, uint64_t *ret_step);
/* Whether this rank can go on from it: 0, or -EPROTO. */
int train_adopt_check(struct train *t, struct merr *err);
/* Go on from it, all ranks together. */
int train_adopt(struct train *t, struct merr *err);
/* Between two steps, the last of this generation: leave the state to the next one. */
int train_hand_over(struct train *t, struct merr *err);
/* The job ends here, or goes on from the disk: give the memory back. */
void train_keep_drop(struct train *t);
/* What was loaded from a snapshot in memory is on disk since durable_us of its cursor, or not known to be: then by now.
 * A copy will be due if the disk has nothing as new. */
void train_follow_memory(struct train *t, const json_t *kv);
/* This rank's word on whether a drain must end on disk, and whether a copy on disk is due. */
bool train_must_be_durable(const struct train *t);
bool train_copy_due(const struct train *t);

/* save.c */
/* All ranks, before anything is saved; once is enough. It takes time, which the first step need not wait for. */
int train_savers_open(struct train *t, struct merr *err);
void train_savers_close(struct train *t);
/* This rank's part of the agreement whether to save after the step under way. */
void train_save_votes(const struct train *t, double votes[SAVE_VOTES]);
/* Between two steps, the last of which took so long: report what was committed, begin what is due by the summed votes
 * of all ranks; must: save in any case, after waiting for what is under way. */
int train_saves(struct train *t, const double votes[SAVE_VOTES], double seconds, bool must, struct merr *err);
/* The same while a run is held before its next step, but that only what votes ask for is begun. */
int train_saves_asked(struct train *t, const double votes[SAVE_VOTES], struct merr *err);
/* Before a tensor (a place in params.by_place, -1: all) and its moments change: once what is saved of them is. */
int train_saves_gate(struct train *t, int place, struct merr *err);
/* Coded dp: the weights become the masters' (optim_settle). */
int train_settle(struct train *t, struct merr *err);
/* How long training has waited for checkpoints since the last call. */
int64_t train_saves_stall_us(struct train *t);
/* Between two steps, the last of this generation: leave a snapshot in the nodes' memories, from which the next one goes
 * on wherever it is. *ret_left is the same on all ranks; false: there is no such memory, or not enough. */
int train_saves_leave(struct train *t, bool *ret_left, struct merr *err);
/* Wait until all are committed; the coordinator fails when the last one did. */
int train_saves_finish(struct train *t, struct merr *err);

/* source_node.c: a process without a part in training hands out what its node's memory has. Returns an exit code. */
enum exit_cause train_source_node(const struct run *run, struct flight *flight);

/* eval.c */
int train_evaluate(struct train *t, struct merr *err);

/* loop.c: returns 0 at the end of training, 1 when drained. */
int train_loop(struct train *t, struct merr *err);

#endif
