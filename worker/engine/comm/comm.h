/* comm - ranks of one generation talking to each other: a world, groups in it, collectives, messages
 *
 * Source: papers/training-engine.md section 14. Ranks of one node speak through shared memory, ranks of
 * different nodes through UCX; the collectives above are the same code. They find each other through the
 * rendezvous folder of the run (docs/protocol.md): small files, which the agents carry between nodes.
 *
 * Sums are taken in rank order in the given type, so every member gets the same bits, run after run.
 * Members of a group make the same calls in the same order; a call that differs (operation, size, type) is
 * -EPROTO on both sides with both calls named. Every wait ends: by the abort order of the rank's flight
 * page (-ECANCELED, within 100 ms), a lost peer (-ECONNRESET, with its rank), or the deadline
 * (-ETIMEDOUT, with the rank waited for). What arrives from another node not as it was sent is -EIO, with group, rank
 * and codec: it carries checksums (frame.h). After an error the world is good for comm_world_close() only.
 *
 * Buffers may lie in managed memory of a GPU once its streams have been waited for. Where every rank has a GPU to
 * itself, large calls of a group and large messages stay on GPUs, by NCCL, with the same bits; all else goes through
 * the host, coded calls (coded.h) as blocks that the GPU codes. Of a message both buffers are a GPU's, or neither is.
 *
 * A world is used by one thread at a time. A group and its world outlive their requests.
 */
#ifndef MUSTER_WORKER_COMM_COMM_H
#define MUSTER_WORKER_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "compress/device.h"
#include "worker/flight/flight.h"

#define COMM_RANKS_MAX 1024

enum comm_type { COMM_U8, COMM_I64, COMM_F32, COMM_F64 };
enum comm_op { COMM_SUM, COMM_MAX };

/* What the flight ring says of an operation. */
enum comm_call {
    COMM_CALL_NONE, /* flight_read_op_name() has their names */
    COMM_CALL_ALL_REDUCE,
    COMM_CALL_REDUCE_SCATTER,
    COMM_CALL_ALL_GATHER,
    COMM_CALL_ALL_TO_ALL,
    COMM_CALL_BROADCAST,
    COMM_CALL_BARRIER,
    COMM_CALL_SEND, /* waiting for one */
    COMM_CALL_RECV,
};

struct comm_world;
struct comm_group;
struct comm_request;

#define COMM_SHARED_ALIGN 4096u /* so that files can be written from there past the page cache */

struct comm_cfg {
    int rank, size;
    uint64_t generation;    /* ranks of another generation are not let in */
    const char *rendezvous; /* folder; borrowed during the call */
    const int *node_of;     /* size entries: ranks with equal numbers share memory */
    size_t shared_bytes;    /* of this rank's shared arena, comm_shared_alloc; 0: none */
    int shared_fd;         /* a file in memory of at least as many bytes, rounded up to pages, to be the arena; borrowed
                              during the call. What it holds stays. 0: a new arena, zeroed */
    int64_t timeout_us;    /* of each wait; 0: 120 s */
    int threads;           /* of each rank of the node: where they all have a core, a wait looks on for longer before it
                              sleeps; 0: it never does */
    struct flight *flight; /* borrowed for the world's life; never NULL */
    const char *transport; /* NULL: as described; "ucx": UCX even inside a node (tests) */
    const struct device_ops *device; /* of the GPU that this rank computes on, or NULL; lives for ever */
    int device_ordinal;
    bool device_apart;  /* no NCCL, even if there is one */
    bool device_needed; /* without NCCL on all ranks the world does not open: -ENODEV, -ENOENT */
    const char *name;   /* at most 15 bytes: keeps several worlds that meet in one folder apart; NULL: "" */
};

/* Meet the other ranks. Returns when all of them are connected as far as needed to start. */
int comm_world_open(const struct comm_cfg *cfg, struct comm_world **ret, struct merr *err);
void comm_world_close(struct comm_world *w);

/* From now on waits end after so long: what follows a rendezvous may take longer than it, or must not. */
void comm_world_timeout(struct comm_world *w, int64_t timeout_us);

int comm_rank(const struct comm_world *w);
int comm_size(const struct comm_world *w);

/* Whether calls of groups whose buffers all lie in memory of GPUs go by NCCL, and with which version or why not, for
 * people; "" for a world without GPUs. */
bool comm_device_used(const struct comm_world *w);
const char *comm_device_said(const struct comm_world *w);

/* Memory of this rank that node-mates can read in place; at a multiple of COMM_SHARED_ALIGN, zeroed unless shared_fd
 * was given, never given back before the world closes. NULL when the arena is used up. Buffers from here make
 * collectives cheaper. */
void *comm_shared_alloc(struct comm_world *w, size_t bytes);

/* The group of n distinct ranks, in this order, which must hold this one. All members call it, in the same
 * order relative to their other groups. name ("tp", "dp", …, at most 15 bytes) stands in messages and the
 * flight ring. Costs no traffic. Freed with the world. */
int comm_group_new(struct comm_world *w, const char *name, const int *ranks, int n, struct comm_group **ret,
                   struct merr *err);
/* Ranks of the same role make its calls in the same order, and wait for its messages so: who does not is found. */
void comm_group_order(struct comm_group *g, bool messages);
int comm_group_size(const struct comm_group *g);
int comm_group_index(const struct comm_group *g);
int comm_group_nodes(const struct comm_group *g); /* that members are of */
/* Say what the group's values travel as ("": as they are), for the words about what arrives damaged. */
void comm_group_name_codec(struct comm_group *g, const char *name);

/* buf[count] becomes the sum (or maximum) over the members, added in member order. */
int comm_all_reduce(struct comm_group *g, void *buf, size_t count, enum comm_type type, enum comm_op op,
                    struct merr *err);

/* out[count] = this member's piece of the sum of everyone's in[n·count]; in is unchanged, out may lie in it
 * at this member's piece. */
int comm_reduce_scatter(struct comm_group *g, const void *in, void *out, size_t count, enum comm_type type,
                        struct merr *err);

/* out[n·bytes] = everyone's in[bytes] in member order; in may lie in out at this member's piece. */
int comm_all_gather(struct comm_group *g, const void *in, size_t bytes, void *out, struct merr *err);

/* As comm_all_gather with a size and a place of its own for each member; at[i] is the offset in out. */
int comm_all_gather_v(struct comm_group *g, const void *in, const size_t *bytes, const size_t *at, void *out,
                      struct merr *err);

/* Member i gets send[i][send_bytes[i]] from here and puts what it sends into our recv[i][recv_bytes[i]];
 * sizes are known on both sides and may be 0. send and recv must not overlap. */
int comm_all_to_all_v(struct comm_group *g, const void *const *send, const size_t *send_bytes, void *const *recv,
                      const size_t *recv_bytes, struct merr *err);

int comm_broadcast(struct comm_group *g, void *buf, size_t bytes, int root, struct merr *err);
int comm_barrier(struct comm_group *g, struct merr *err);

/* Messages between two members, matched by (peer, tag) in the order of posting. A send may complete before
 * its message is received; the buffer is the caller's again once comm_wait returns. */
int comm_isend(struct comm_group *g, int peer, uint32_t tag, const void *buf, size_t bytes, struct comm_request **ret,
               struct merr *err);
int comm_irecv(struct comm_group *g, int peer, uint32_t tag, void *buf, size_t bytes, struct comm_request **ret,
               struct merr *err);

/* Wait for a request and free it, also on failure. NULL is done already. */
int comm_wait(struct comm_request *req, struct merr *err);

/* Whether comm_wait() would return at once. */
bool comm_done(const struct comm_request *req);

/* Wait until one of n requests is done, none of them NULL; frees none. */
int comm_wait_any(struct comm_request *const *req, size_t n, struct merr *err);

/* Let what is under way move on, without waiting for it. */
void comm_poll(struct comm_world *w);

/* Bytes this rank has sent in the group since it was made (headers not counted). */
uint64_t comm_bytes_sent(const struct comm_group *g);

#endif
