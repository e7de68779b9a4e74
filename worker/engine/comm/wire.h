/* wire - how the floats of a group travel: raw, or as blocks of the codec that the job's spec names
 *
 * compress.tp, compress.pp and compress.dp each make one wire (docs/compression.md says what the names stand for). With
 * NULL as wire, or a wire without a group, this rank is alone: sums are what they were, and nothing moves.
 *
 * A coded wire gives the same bits again for the same layout and the same job; another layout rounds differently.
 */
#ifndef MUSTER_WORKER_COMM_WIRE_H
#define MUSTER_WORKER_COMM_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "compress/codec.h"
#include "worker/engine/comm/comm.h"

/* What a word of the spec stands for. */
struct wire_codecs {
    const struct codec *codec, *far, *weights; /* NULL: raw. far: of sums that go to other nodes */
};

/* -EINVAL, -ENOTSUP: no such codec. */
int wire_find_codecs(const char *word, struct wire_codecs *ret, struct merr *err);

struct wire_cfg {
    struct comm_group *group; /* NULL: alone */
    const char *codec;        /* as in the spec: none, r8, sdp4bit, … */
    uint64_t seed;            /* of the job */
    uint32_t place;           /* below COMM_RANKS_MAX: sets the rounding of groups that hold different tensors apart;
                                 the same for all tp ranks, or what they hold in common would part */
};

struct wire;

/* -EINVAL, -ENOTSUP: no such codec. */
int wire_new(const struct wire_cfg *cfg, struct wire **ret, struct merr *err);
void wire_free(struct wire *w);

bool wire_coded(const struct wire *w);

enum wire_use {
    WIRE_SUMS,   /* to all: tp */
    WIRE_SHARES, /* to owners, and weights back: dp */
    WIRE_PIPE,   /* messages: pp */
};

/* Decide for auto, before the first use and whenever its times depart: measure link and codecs, predict both ways, take
 * the shorter. x: n floats as they will travel, in their place; their values are lost. For WIRE_PIPE, where n is of a
 * message: WIRE_PIPE_FLOATS where messages will lie on a GPU, or NULL. All of the group call it while nothing is under
 * way. Does nothing for other words. */
#define WIRE_PIPE_FLOATS (1u << 19)
int wire_tune(struct wire *w, enum wire_use use, float *x, size_t n, struct merr *err);
/* Travel as a word says from now on, not auto; alone nothing changes. All of the group call it while nothing is under
 * way. As wire_new. */
int wire_use(struct wire *w, const char *word, struct merr *err);
/* What was decided, with both predictions, for people; "" if nothing ever was. */
const char *wire_said(const struct wire *w);
/* Whether calls have long taken another time than usual since it was decided (cost.h, cost_watch), as the first member
 * sees it, which alone says so: time to decide again. */
bool wire_departs(const struct wire *w);

struct wire_times {
    double spent_ms;     /* of this rank, in calls and in waiting for messages to come, since the last look */
    double predicted_ms; /* for as many; 0: never tuned */
};
/* Once a step: wire_departs() judges by what is taken. */
void wire_times_take(struct wire *w, struct wire_times *ret);
/* n of wire_tune's values went another way since began_us, to owners or back. */
void wire_spent(struct wire *w, int64_t began_us, size_t n);

/* x[n] becomes the sum over the group. */
int wire_all_reduce(struct wire *w, float *x, size_t n, struct merr *err);

/* As comm_reduce_scatter and comm_all_gather, of n values a member; size: bytes of one, 4 for f32 or 2 for bf16. */
int wire_reduce_scatter(struct wire *w, const float *in, float *out, size_t n, struct merr *err);
int wire_all_gather(struct wire *w, const void *in, size_t n, size_t size, void *out, struct merr *err);

/* As comm_isend and comm_irecv, of n floats. */
int wire_isend(struct wire *w, int peer, uint32_t tag, const float *x, size_t n, struct comm_request **ret,
               struct merr *err);
int wire_irecv(struct wire *w, int peer, uint32_t tag, float *x, size_t n, struct comm_request **ret, struct merr *err);

/* As comm_wait; received: of a message that comes. */
int wire_wait(struct wire *w, struct comm_request *req, bool received, struct merr *err);

/* Only for a coded wire; member i has the shares [cut[i], cut[i + 1]) of a vector. part numbers the vectors of a step.
 *
 * The sum of everyone's x to the owners of its shares: x + cut[own index] holds the own one. */
int wire_sum_shares(struct wire *w, unsigned part, uint64_t step, float *x, const size_t *cut, struct merr *err);
/* Move everyone's replica, which is the same everywhere, towards the masters of its shares. */
int wire_move_replicas(struct wire *w, unsigned part, uint64_t step, const float *master, float *replica,
                       const size_t *cut, struct merr *err);

/* Whether coded values were not finite since the last call: they went as zeros. */
bool wire_broken_take(struct wire *w);

#endif
