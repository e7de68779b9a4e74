/* coded - calls of a group whose values travel as blocks of a codec (compress/codec.h)
 *
 * Sources: SDP4Bit (arXiv 2410.15526) for sums over two levels, TACO (arXiv 2604.24088) and Flash Communication (arXiv
 * 2412.04964) for all-reduce in two shots. Vectors are cut into shares, one a member, and shares into slices: while one
 * slice travels, the next is coded. Each peer gets one message a slice, with scales and flags inside the block.
 *
 * Values are coded once a hop and never added in coded form: sums are taken in f32 in member order, and a member adds
 * its own values uncoded. Wherever several members hold a result, they hold the same bits: also the member that
 * sends a share uses what decoding its block gives. So the same call of the same layout gives the same bits again.
 *
 * Everything said in comm.h holds here too. Members that differ in codec, type, count or slice get -EPROTO. A block
 * that its codec refuses is -EIO and ends the world, with group, rank and codec named: a link or memory is broken.
 * Values that are not finite are coded as zeros and raise CODEC_NONFINITE: *flags is ORed with the flags of all blocks
 * that this member wrote or read, on success.
 */
#ifndef MUSTER_WORKER_COMM_CODED_H
#define MUSTER_WORKER_COMM_CODED_H

#include "compress/codec.h"
#include "worker/engine/comm/comm.h"

#define CODED_ALIGN 2048u                   /* slices are multiples of it: all codecs' groups divide it */
#define CODED_SLICE (128u * CODED_ALIGN)    /* values: 1 MiB of f32 */
#define CODED_TENSORS (2u * COMM_RANKS_MAX) /* numbers of tensors that a call uses */

struct coded {
    const struct codec *codec;
    const struct codec *far; /* coded_reduce_scatter: of sums that go to other nodes; NULL: one level, codec alone */
    enum codec_type type;    /* of the values in memory */
    struct codec_site site;  /* of the vector's first value. tensor: a multiple of CODED_TENSORS, for rounding differs
                                by rank; a multiple of 2048 as offset */
    size_t slice;            /* of a share, in values, a multiple of CODED_ALIGN; 0: CODED_SLICE */
};

/* buf[count] becomes the sum over the members, the same everywhere: two codings. */
int coded_all_reduce(struct comm_group *g, const struct coded *how, void *buf, size_t count, uint32_t *flags,
                     struct merr *err);

/* Member i owns values [cut[i], cut[i + 1]) of vectors of cut[n] values; cuts lie at multiples of CODED_ALIGN / 2, but
 * for the last. out becomes the own share of the sum of all members' in; it may lie in in, at that share. With
 * how->far, members of a node first add up what each other node needs, and send that alone (where all nodes hold as
 * many members; else it is one level with codec): swizzled, so that a message to a node-mate holds what
 * that mate will pass on. */
int coded_reduce_scatter(struct comm_group *g, const struct coded *how, const void *in, const size_t *cut, void *out,
                         uint32_t *flags, struct merr *err);

/* Everyone's share of buf to everyone, in place; the own one too becomes what the others decode. */
int coded_all_gather(struct comm_group *g, const struct coded *how, void *buf, const size_t *cut, uint32_t *flags,
                     struct merr *err);

/* The closed loop of qWD (SDP4Bit): replica, equal on all members, moves towards the masters of its shares by coded
 * differences. master: of the own share. */
int coded_gather_differences(struct comm_group *g, const struct coded *how, const float *master, void *replica,
                             const size_t *cut, uint32_t *flags, struct merr *err);

/* A message, as comm_isend and comm_irecv, both ends coded; comm_wait() decodes. buf of a send is the caller's again at
 * once. flags is written within comm_wait, when it succeeds. */
int coded_isend(struct comm_group *g, const struct coded *how, int peer, uint32_t tag, const void *buf, size_t count,
                struct comm_request **ret, uint32_t *flags, struct merr *err);
int coded_irecv(struct comm_group *g, const struct coded *how, int peer, uint32_t tag, void *buf, size_t count,
                struct comm_request **ret, uint32_t *flags, struct merr *err);

#endif
