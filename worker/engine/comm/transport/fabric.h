/* fabric - traffic from GPU to GPU that does not pass through the host, for groups of ranks: one table for its makers
 *
 * A fabric is a communicator of some ranks. Its work runs on a queue of the GPU. Communicators do not block: what is
 * started is waited for here, so that comm.h's promises of what ends a wait hold for GPUs too. After a failure the
 * communicator is aborted, which ends what runs on the GPU, and answers every later call with the world's failure. An
 * abort that does not end is left to itself after ten seconds: the failure's words say so, and the GPU is lost to the
 * process (compress/device.h).
 *
 * Calls that return int give 0, or a negative errno that is kept as the world's failure, unless they take err.
 */
#ifndef MUSTER_WORKER_COMM_TRANSPORT_FABRIC_H
#define MUSTER_WORKER_COMM_TRANSPORT_FABRIC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/merr.h"
#include "compress/device.h"
#include "worker/engine/comm/wait.h"

#define FABRIC_ID_BYTES 128

/* Where a rank stands in a new communicator; all of it but id, queue and index is borrowed for its life. */
struct fabric_cfg {
    struct wait *wait;
    const struct device_ops *device;
    struct device_queue *queue; /* its work runs here */
    struct wait_members of;     /* the group that it works for, for words, and to notice who leaves */
    int n, index;               /* members of the communicator, and which of them this rank is */
    char id[FABRIC_ID_BYTES];   /* the same for all of them */
};

struct fabric { /* how each begins */
    const struct fabric_ops *ops;
};

/* What a maker of fabrics offers; see the functions below. */
struct fabric_ops {
    const char *name;
    int (*load)(int *ret_version, struct merr *err);
    int (*id)(struct failure *f, char ret[FABRIC_ID_BYTES]);
    int (*open)(const struct fabric_cfg *cfg, struct fabric **ret);
    void (*leave)(struct fabric *c);
    void (*free)(struct fabric *c);
    int (*look)(struct fabric *c);
    int (*settle)(struct fabric *c, const char *what);
    int (*begin)(struct fabric *c);
    int (*send)(struct fabric *c, int member, const void *buf, size_t bytes);
    int (*recv)(struct fabric *c, int member, void *buf, size_t bytes);
    int (*all_gather)(struct fabric *c, const void *in, size_t bytes, void *out);
    int (*broadcast)(struct fabric *c, void *buf, size_t bytes, int root);
    int (*start)(struct fabric *c);
    int (*finish)(struct fabric *c);
};

const char *fabric_name(void); /* of the library, for people */

/* Load the library, once a process. *ret_version: 21903 for 2.19.3.
 *
 *   -ENOENT  it is not installed; err says what to install
 *   -EIO     it lacks a function that is needed, or is too old
 */
int fabric_load(int *ret_version, struct merr *err);

/* Where the members of a new communicator meet; made by one of them. */
int fabric_id(struct failure *f, char ret[FABRIC_ID_BYTES]);

/* Only once fabric_look() gives 1, or after fabric_settle(), more may be asked of it. */
int fabric_open(const struct fabric_cfg *cfg, struct fabric **ret);
/* Begin to part, before fabric_free of several communicators that others may free in another order. */
void fabric_leave(struct fabric *c);
void fabric_free(struct fabric *c); /* NULL is fine */

/* Whether what was asked for is under way: 1, or 0: not yet. */
int fabric_look(struct fabric *c);
/* Until it is. what: for the words when it does not come to that. */
int fabric_settle(struct fabric *c, const char *what);

/* Work between begin and end is started together at the end, where all members' sends and receives must match up. It
 * runs after what is queued on the queue already, and before what is queued there next. */
int fabric_begin(struct fabric *c);
int fabric_send(struct fabric *c, int member, const void *buf, size_t bytes);
int fabric_recv(struct fabric *c, int member, void *buf, size_t bytes);
int fabric_all_gather(struct fabric *c, const void *in, size_t bytes, void *out); /* in: its place in out, or another */
int fabric_broadcast(struct fabric *c, void *buf, size_t bytes, int root);
int fabric_end(struct fabric *c);   /* settled when it returns */
int fabric_start(struct fabric *c); /* as fabric_end, but for that */

/* Wait until all that is queued has run. */
int fabric_finish(struct fabric *c);

#endif
