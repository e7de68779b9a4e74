/* store - what the server keeps in Redis, and the one way it writes there
 *
 * Changes are collected into a batch: plain Redis commands, each with its arguments, behind guards. store_commit()
 * applies the whole batch at once or not at all, by one script that first checks that this server still leads (its
 * epoch is the store's) and that each guarded job has the version it was read with. A batch carries a number that the
 * script keeps: after a lost connection the batch is sent again, and one that was already applied is not applied twice.
 * When store_commit() returns 0 the batch is on disk. Owned by one thread.
 *
 *   muster:meta            hash: format, epoch, batch, next_job, next_event, ended_succeeded, ended_failed,
 *                          ended_cancelled
 *   muster:lease           who leads, with a time to live
 *   muster:job:<n>         hash: spec, rec (job_record), v (version), notes (how many there have been),
 *                          evoff:<node>:<generation> (bytes of a run's events taken in)
 *   muster:job:<n>:events  list: its first state events; the very first is "submitted", its data is the spec
 *   muster:job:<n>:recent  list: its newest state events after those (history.h)
 *   muster:job:<n>:notes   list: its newest other events
 *   muster:jobs:active     set of numbers; muster:jobs:ended: sorted set, score = number
 *   muster:events          stream of all events, id <n>-0, the newest 100000
 *   muster:idem:<user>:<key>  "<n> <hash of the body>" of a submit, for a day
 *   muster:nodes, muster:projects   hashes of JSON by name
 *   muster:removed         sorted set: "<node> <incarnation>" of agents whose nodes were removed, score = when, in
 *                          seconds; the newest 1024 of the last 30 days
 *   muster:tokens          hash: JSON by the SHA-256 of a token that an admin made
 */
#ifndef MUSTER_SERVER_STORE_H
#define MUSTER_SERVER_STORE_H

#include <hiredis/hiredis.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "server/store/redis.h"

#define STORE_EVENTS_MAX 100000
#define STORE_BATCH_BYTES (64 << 20)

struct store;

#define STORE_LEASE_S 10 /* unless asked otherwise */
#define STORE_LEASE_MIN_S 2
#define STORE_LEASE_MAX_S 600

/* Take the lead on the store, with a lease of so many seconds that is to be renewed. force: nobody else can lead (the
 * private server). Otherwise waits for another leader's lease to end. Returns 0; -EBUSY when another musterd leads and
 * renews its lease; others, with words. r is borrowed. */
int store_open(struct redis *r, bool force, int lease_s, struct store **ret, struct merr *err);
void store_close(struct store *s); /* gives the lease back */

uint64_t store_epoch(const struct store *s);

/* Add a command to the batch. Arguments are copied. store_add: C strings ended by NULL. Failure is kept until
 * store_commit. */
void store_addv(struct store *s, int argc, const char *const *argv, const size_t *lens);
void store_add(struct store *s, const char *arg, ...) __attribute__((sentinel));

/* Before its first change in a batch: the batch only goes through if the job has this version. */
void store_guard_job(struct store *s, uint64_t job, uint64_t version);

bool store_batch_empty(const struct store *s);
size_t store_batch_bytes(const struct store *s);

/* Make the batch durable and empty it. Waits as long as the store is away; *stop ends the waiting.
 * Returns 0, or
 *   -ESTALE   another musterd leads, or a job is not as this one thinks: this process must end
 *   -ECANCELED  *stop was set while the store was away; the batch may or may not be applied
 *   -EMSGSIZE, -ENOMEM the batch could not be built */
int store_commit(struct store *s, const _Atomic int *stop, struct merr *err);

/* A read, answered even if it takes a reconnect, up to 30 s. NULL with words; else freeReplyObject(). */
redisReply *store_read(struct store *s, struct merr *err, const char *fmt, ...);

/* Take the i-th reply, which is only borrowed. Returns 0, or an error that store_read_each gives on. */
typedef int store_each_fn(void *arg, size_t i, const redisReply *reply, struct merr *err);

/* Read the same of many in one go: fmt has one %llu, for each of the numbers. fn is given their replies in their order,
 * up to the first that it fails on. Returns 0, fn's error, -EIO (the store is away) or -ENOMEM; whatever it is, no
 * reply is left for the next read to take for its own. */
int store_read_each(struct store *s, const char *fmt, const uint64_t *numbers, size_t n, store_each_fn *fn, void *arg,
                    struct merr *err);

/* Renew the lease, which is to be done that often. Rides in the batch. */
void store_renew(struct store *s);
int64_t store_renew_every_us(const struct store *s);

#endif
