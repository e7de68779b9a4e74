/* coded_priv - coded calls and the ways they go, as these know each other
 *
 *   coded.c           the calls: which values are coded when, and who gets them
 *   coded_host.c      codecs of the processor, blocks as messages
 *   coded_gpu.c       codecs of the GPU; blocks by the fabric, or as messages through pinned memory
 *   coded_message.c   messages of one member to another
 *
 * Blocks, and the messages that carry them, are the same bytes whichever way codes them: but for the fabric each member
 * chooses for itself.
 */
#ifndef MUSTER_WORKER_COMM_CODED_PRIV_H
#define MUSTER_WORKER_COMM_CODED_PRIV_H

#include "worker/engine/comm/coded.h"
#include "worker/engine/comm/gpu.h"
#include "worker/engine/comm/group.h"

#define CODED_DEPTH 3 /* slices under way */
#define CODED_HOPS (2 * CODED_DEPTH)
#define CODED_ROOM_MAX (64u << 20) /* bytes for slices: more members get smaller ones */

/* Messages of one slice that are waited for together. */
struct hop {
    struct group_wave wave;
    int number; /* of CODED_HOPS */
    int moves;  /* on a GPU: sends and receives so far */
};

struct coded_set { /* of one slice under way */
    struct hop first, second;
    char *put, *got;   /* of the first hop, by place in the node */
    char *pass, *back; /* of the second, by node (sums over two levels) or by member */
    void *own;         /* f32: this node's sum for this member */
};

struct coded_part {           /* a slice of a coded message */
    struct message_hook hook; /* on its request */
    struct comm_group *g;
    const struct codec *codec;
    enum codec_type type;
    void *values; /* where the block's values go; NULL: it is sent */
    size_t count;
    uint32_t *flags;
    char *lent; /* memory of the GPU, which codes it, for the block; NULL: the processor does */
    char block[];
};

struct coded_way;

struct coding {
    struct comm_group *g;
    const struct coded *how;
    const struct coded_way *way;
    const struct codec *codec, *far; /* of the hops */
    int nodes, local, node, place;   /* members as a grid, and where this one is in it */
    size_t size;                     /* bytes of a value */
    const size_t *cut;
    const void *in;
    void *out;
    const float *master; /* coded_gather_differences */
    size_t slice, slices;
    size_t room, far_room; /* of a peer's part of put and got, of pass and back */
    uint32_t flags;
    struct coded_set set[CODED_DEPTH];
};

struct coded_sum {            /* of n values */
    struct codec_parts parts; /* blocks of x->far by node, or of x->codec by place in the own node */
    bool by_node;
    size_t n;
};

/* Where values are coded, and how blocks travel. What is asked for may be done later, but in its order; end waits for
 * all of it. Calls that return int give 0 or the world's failure. */
struct coded_way {
    /* Memory for blocks, at a multiple of 16, until the next call; NULL: there is none, the world has failed. */
    char *(*room)(struct coding *x, size_t bytes);

    /* n is not 0. Flags go to x->flags, at the end at the latest. */
    int (*encode)(struct coding *x, const struct codec_site *site, const void *values, size_t n, char *block);
    int (*encode_difference)(struct coding *x, const struct codec_site *site, const float *master, const void *replica,
                             size_t n, char *block);
    int (*decode)(struct coding *x, int member, const char *block, void *values, size_t n); /* member: whose block */
    int (*decode_add)(struct coding *x, int member, const char *block, void *replica, size_t n);
    int (*reduce)(struct coding *x, const struct coded_sum *s, enum codec_type type, void *out);
    int (*reduce_encode)(struct coding *x, const struct coded_sum *s, const struct codec_site *site, char *block);
    int (*run)(struct coding *x); /* until all coding asked for so far is done */

    int (*send)(struct coding *x, struct hop *h, int member, uint32_t step, const char *block, size_t bytes);
    int (*recv)(struct coding *x, struct hop *h, int member, uint32_t step, char *block, size_t bytes);
    int (*go)(struct coding *x, struct hop *h);   /* that was all of it */
    int (*wait)(struct coding *x, struct hop *h); /* what is asked for next finds its blocks; it is empty again */

    int (*end)(struct coding *x, int r); /* r: what the call came to; nothing is read or written after */
};
extern const struct coded_way coded_by_host, coded_by_fabric, coded_by_messages;

/* Whether this rank's GPU can code what is at p. */
bool coded_held(const struct comm_group *g, const void *p);
/* Make ready for that, once. */
int coded_gpu_open(struct comm_group *g);
void coded_gpu_close(struct gpu *gpu); /* before gpu_close */

/* For messages. Memory of the GPU for a block, until it is given back. */
int coded_gpu_lend(struct comm_group *g, size_t bytes, char **ret);
/* As large, pinned, as long: copies from and to other memory of the host hold the caller up, without a deadline. */
int coded_gpu_image(struct comm_group *g, const char *block, char **ret);
void coded_gpu_return(struct comm_group *g, const char *block);
/* Queued in the order of calls: a copy from or to the GPU's memory, values into p's loan, its block of bytes to its
 * values. */
int coded_gpu_copy(struct comm_group *g, void *to, const void *from, size_t bytes);
int coded_gpu_encode(struct comm_group *g, const struct coded_part *p, const struct codec_site *site, const void *from);
int coded_gpu_decode(struct comm_group *g, const struct coded_part *p, size_t bytes);
/* Until all of it has run. -EBADMSG: a block was bad, why says what of it; the world has not failed. */
int coded_gpu_finish(struct comm_group *g, uint32_t *flags, struct merr *why);

/* For measuring: a block that nobody coded from each member to each, as blocks of values at like travel (NULL: the
 * processor's). All members give the same bytes, at most CODED_ROOM_MAX / members of them. */
int coded_hop(struct comm_group *g, const void *like, size_t bytes, struct merr *err);
/* Where values at like are coded: coded_by_host, or any of the GPU, which is made ready; NULL: the world has failed. */
const struct coded_way *coded_place(struct comm_group *g, const void *like);

int coded_member_at(const struct coding *x, int node, int place);
/* Fails the world for a block of member that codec c refuses for the reason in why. */
int coded_refuse(struct comm_group *g, const struct codec *c, int member, const char *why);

#endif
