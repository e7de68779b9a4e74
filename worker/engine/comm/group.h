/* group - groups of ranks, and what their calls have in common: being the same everywhere, and waves of messages
 *
 * A call is group_begin, waves of messages, group_end. Members number their calls; what comes for another call than
 * this rank makes is found out, and the failure names both. A function that returns a negative number has kept the
 * world's failure (wait.h), unless it takes err.
 */
#ifndef MUSTER_WORKER_COMM_GROUP_H
#define MUSTER_WORKER_COMM_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/engine/comm/comm.h"
#include "worker/engine/comm/message.h"
#include "worker/engine/comm/transport/transport.h"

#define GROUP_HISTORY 8 /* calls of a group remembered, to name them */

struct fabric;
struct gpu;

struct group_call { /* what all members must agree on */
    uint64_t seq, bytes;
    uint8_t op, type, extra;
};

/* Requests of one wave, waited for together. */
struct group_wave {
    struct comm_request **req;
    int n;
};

struct groups { /* of a world; all but the list and the scratch is borrowed */
    struct wait *wait;
    struct messages *messages;
    struct transports *ways;
    const int *node_of; /* of each rank */
    struct gpu *gpu;    /* what those above use for calls between GPUs */
    struct comm_group *first;
    char *scratch;
    size_t scratch_bytes;
};

struct comm_group {
    struct message_channel channel; /* its name, too */
    struct comm_group *next;
    struct groups *set;
    struct wait *wait;
    char travels[16]; /* what its values travel as, for people; "": as they are */
    uint64_t seq;
    int n, index;
    bool near;    /* all members can read each other's memory in place */
    bool ordered; /* ranks of the same role make its calls in the same order */
    bool busy;    /* inside history[seq % GROUP_HISTORY] */
    struct group_call history[GROUP_HISTORY];
    struct comm_request **req; /* 12·n, for the calls */
    const void **src;          /* n */
    struct fabric *fabric;     /* NULL until a call goes by it; of those above */
    int nodes;                 /* that members are of */
    int *grid;                 /* members by node, equally many of each, both in member order; NULL: not so */
    int rank[];
};

/* Whom messages ask about calls; self is a struct groups. */
extern const struct message_above groups_above;
void groups_clear(struct groups *s); /* frees all groups */

/* See comm_group_new. */
int group_new(struct groups *s, const char *name, const int *ranks, int n, struct comm_group **ret, struct merr *err);

/* begin and end stand around all of a call, whatever it comes to. */
int group_begin(struct comm_group *g, enum comm_call op, unsigned type, unsigned extra, uint64_t bytes);
int group_end(struct comm_group *g, int r, struct merr *err); /* r: what the call came to */

int group_send(struct comm_group *g, struct group_wave *v, int member, uint32_t step, const void *buf, size_t bytes);
int group_recv(struct comm_group *g, struct group_wave *v, int member, uint32_t step, void *buf, size_t bytes);
int group_wait(struct comm_group *g, struct group_wave *v); /* for all of a wave, empty then, also on failure */

/* Everyone's word of bytes at out[member·bytes]; the own one is there already. */
int group_exchange(struct comm_group *g, uint32_t step, char *out, size_t bytes);
int group_meet(struct comm_group *g, uint32_t step); /* returns when every member has come to this step */

void *group_scratch(struct comm_group *g, size_t bytes); /* the world's, kept till the next call; NULL: no memory */

/* The members, for waits. */
struct wait_members group_members(const struct comm_group *g);

#endif
