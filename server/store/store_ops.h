/* store_ops - what keeps the store's data: a Redis, or this process's memory
 *
 * A backend carries out the commands of store_priv.h. store.c holds the batch, tries again after a lost connection and
 * decides what a failure means; a backend only does what it is told, once. One thread, apart from up().
 */
#ifndef MUSTER_SERVER_STORE_OPS_H
#define MUSTER_SERVER_STORE_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/merr.h"

struct redisReply;

struct store_batch {
    uint64_t epoch;   /* of the one who sends it */
    uint64_t number;  /* from 1 for each epoch */
    const char *args; /* for each command the number of its arguments, then those: all RESP bulk strings */
    size_t len;
    size_t n_args;
};

struct store_claim {
    const char *who;
    bool force;
    int lease_ms;
    uint64_t above; /* the new epoch is above that, too */
};

struct store_ops {
    /* Take the lead. Returns 0 with the new epoch; 0 with epoch 0 and what is left of another's lease, unless it is
     * forced; -ENOTCONN: the connection broke; -EIO with words: it answers something else. */
    int (*lead)(void *self, const struct store_claim *claim, uint64_t *ret_epoch, int64_t *ret_left_ms,
                struct merr *err);

    /* Give the lease back, if it is who's. Needs no answer. */
    void (*resign)(void *self, const char *who);

    /* Apply a batch, whole or not at all, durably: all that could fail is looked at before the first write. Returns 0,
     * also for one that was applied before; 1 if something that was there could not be what it should be, and was set
     * aside (aside.h);
     *   -ESTALE    another leads, the batch before this one is not there, a guarded job has another version, or an
     *              event is not newer than the newest; words
     *   -EAGAIN    it answers, but cannot write (a full disk): words; it may be tried again
     *   -ENOTCONN  the connection broke: it may be applied or not */
    int (*commit)(void *self, const struct store_batch *batch, struct merr *err);

    /* Queue a command that reads, as RESP. 0; -ENOMEM: connect() again, or replies get mixed up; -ENOTCONN. */
    int (*ask)(void *self, const char *command, size_t len);

    /* Wait for the reply to the oldest command that was queued: freeReplyObject(). 0, -ENOTCONN. */
    int (*answer)(void *self, struct redisReply **ret);

    /* Whether there is a connection, as far as is known. */
    bool (*connected)(const void *self);

    /* Drop what there is of a connection, with all that is queued on it, and make a new one, waiting up to wait_us.
     * 0; -ETIMEDOUT with words. */
    int (*connect)(void *self, int64_t wait_us, struct merr *err);

    /* Let so much time pass. */
    void (*wait)(void *self, int ms);

    /* Any thread: whether the last call worked. */
    bool (*up)(const void *self);
};

struct store_backend {
    const struct store_ops *ops;
    void *self;                /* borrowed by the store, for as long as that is open */
    const struct clock *clock; /* that wait() follows */
};

#endif
