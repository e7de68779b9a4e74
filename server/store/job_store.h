/* job_store - jobs in the store: their records, which of them have ended, and what is remembered with them
 *
 * Changes go into the store's batch (store.h); reads see what was committed. Owned by the thread that owns the store.
 * A job's events are in history.h.
 */
#ifndef MUSTER_SERVER_JOB_STORE_H
#define MUSTER_SERVER_JOB_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "server/store/store.h"

#define JOB_STORE_SUBMIT_S 86400     /* a submit's Idempotency-Key is remembered */
#define JOB_STORE_SUBMIT_KEY_MAX 320 /* bytes of it with the user's name, and its end */

/* --- records ----------------------------------------------------------------------------------------- */

/* Put a job's record, of this version. The batch only goes through if the stored one is of version `before`, 0: there
 * is none; then spec is its spec's text, else NULL. At most once a job and batch. */
void job_store_put(struct store *s, uint64_t job, uint64_t before, uint64_t version, const char *record,
                   const char *spec);

/* It has ended, in this state: it goes from the active ones to the ended ones and is counted. */
void job_store_end(struct store *s, uint64_t job, const char *state);

/* One that had ended so has not any more. */
void job_store_begin_again(struct store *s, uint64_t job, const char *state);

/* Forget a job that has ended, with its events. */
void job_store_drop(struct store *s, uint64_t job);

struct job_stored {
    const char *record; /* NULL: there is no such job */
    const char *spec;   /* NULL: not asked for, or not there */
    uint64_t version;
};

/* Take the i-th of those that were asked for; its texts are only borrowed. Returns 0, or an error that ends the reading
 * and is given on. */
typedef int job_store_fn(void *arg, size_t i, const struct job_stored *stored, struct merr *err);

/* Read jobs in one go, in the order of ids, up to the first that fn fails on. Returns 0, fn's error, -EIO (the store is
 * away) or -ENOMEM, with words. */
int job_store_read_each(struct store *s, const uint64_t *ids, size_t n, bool with_spec, job_store_fn *fn, void *arg,
                        struct merr *err);

/* Read one job, with its spec, and wait for a store that is away. As job_store_read_each. */
int job_store_read(struct store *s, uint64_t job, job_store_fn *fn, void *arg, struct merr *err);

/* The text of a job's spec: new; NULL: the store does not give it. */
char *job_store_read_spec(struct store *s, uint64_t job);

/* --- which there are --------------------------------------------------------------------------------- */

struct job_ids { /* owned: job_ids_clear() */
    uint64_t *v;
    size_t n;
};

void job_ids_clear(struct job_ids *ids);

/* Jobs that have not ended, growing. Returns 0; -EIO, -ENOMEM with words, and *ret is unchanged. So do the others. */
int job_store_active(struct store *s, struct job_ids *ret, struct merr *err);

/* Jobs that have ended with numbers below that, the newest first, at most `most`. */
int job_store_ended_below(struct store *s, uint64_t below, size_t most, struct job_ids *ret, struct merr *err);

/* The oldest of those that have ended, at most `most`, which is not 0. */
int job_store_ended_oldest(struct store *s, size_t most, struct job_ids *ret, struct merr *err);

/* How many that have ended are kept. */
int job_store_ended_count(struct store *s, uint64_t *ret, struct merr *err);

/* --- counters ---------------------------------------------------------------------------------------- */

struct job_counters {
    uint64_t next_job, next_event; /* 0: none was put yet */
    uint64_t ended[3];             /* succeeded, failed, cancelled: ever */
};

void job_store_put_counters(struct store *s, uint64_t next_job, uint64_t next_event);
int job_store_read_counters(struct store *s, struct job_counters *ret, struct merr *err);

/* --- what is remembered with jobs -------------------------------------------------------------------- */

/* Up to which byte the events that a node ships of a run have been taken in. */
void job_store_put_offset(struct store *s, uint64_t job, const char *node, uint32_t generation, int64_t offset);
void job_store_drop_offset(struct store *s, uint64_t job, const char *node, uint32_t generation);

/* Returns 0 with *ret, which is 0 where none was put; -ENOENT: no such job is stored; -EIO. */
int job_store_read_offset(struct store *s, uint64_t job, const char *node, uint32_t generation, int64_t *ret);

/* What a submit with this key made, and the hash of its body: for a day. The key holds the user's name. */
void job_store_put_submit(struct store *s, const char *key, uint64_t job, uint64_t hash);

/* Returns 0; -ENOENT: the key was not used; -EIO with words. */
int job_store_find_submit(struct store *s, const char *key, uint64_t *ret_job, uint64_t *ret_hash, struct merr *err);

#endif
