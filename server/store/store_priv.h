/* store_priv - how the store's data is laid out in Redis, and the commands that write and read it
 *
 * For the files of this folder. A batch is plain Redis commands, each with its arguments, behind guards; one script
 * applies it (store.c).
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
 *   muster:jobs:catalog    hash by number, of those that have ended: ["state", "user", "project", bytes]
 *   muster:audit           stream of the audit log (audit_log.h), id <wall time in us>-0; meta: audit_bytes,
 *                          audit_newest
 *   muster:events          stream of all events, id <n>-0, the newest 100000
 *   muster:idem:<user>:<key>  "<n> <hash of the body>" of a submit, for a day
 *   muster:nodes, muster:projects, muster:tokens, muster:links, muster:speeds,
 *   muster:joins, muster:keys, muster:file_tokens, muster:secrets, muster:estimates,
 *   muster:predictions, muster:bookings, muster:webhooks,
 *   muster:deliveries, muster:schedules   hashes by name
 *   muster:device_us       hash: device time of ended jobs by project
 *   muster:aside, muster:aside:texts  hashes: what could not be read (aside.h), notes and texts by name
 *   muster:removed         sorted set: "<node> <incarnation>" of agents whose nodes were removed, score = when, in
 *                          seconds; the newest 1024 of the last 30 days
 */
#ifndef MUSTER_SERVER_STORE_PRIV_H
#define MUSTER_SERVER_STORE_PRIV_H

#include <hiredis/hiredis.h>

#include "server/store/store.h"

#define STORE_KEY_MAX 64

/* Add a command to the batch. Arguments are copied. store_add: C strings ended by NULL. Failure is kept until
 * store_commit. */
void store_addv(struct store *s, int argc, const char *const *argv, const size_t *lens);
void store_add(struct store *s, const char *arg, ...) __attribute__((sentinel));

/* Put a number of muster:meta into the batch; the name is borrowed until it is sent. */
void store_put_meta(struct store *s, const char *name, uint64_t number);

/* Before its first change in a batch: the batch only goes through if the job has this version. */
void store_guard_job(struct store *s, uint64_t job, uint64_t version);

/* "muster:job:<n>" */
void store_job_key(uint64_t job, char ret[STORE_KEY_MAX]);

/* A read, answered even if it takes a reconnect, up to 30 s. NULL with words; else freeReplyObject(). */
redisReply *store_read(struct store *s, struct merr *err, const char *fmt, ...);

/* Take the i-th reply, which is only borrowed. Returns 0, or an error that store_read_each gives on. */
typedef int store_each_fn(void *arg, size_t i, const redisReply *reply, struct merr *err);

/* Read the same of many in one go: fmt has one %llu, for each of the numbers. fn is given their replies in their order,
 * up to the first that it fails on. Returns 0, fn's error, -EIO (the store is away) or -ENOMEM; whatever it is, no
 * reply is left for the next read to take for its own. */
int store_read_each(struct store *s, const char *fmt, const uint64_t *numbers, size_t n, store_each_fn *fn, void *arg,
                    struct merr *err);

/* The rows of a reply of names and texts by turns, which is taken over; NULL: -EIO. */
int store_rows_take(redisReply *reply, struct store_rows *ret, struct merr *err);

#endif
