/* table - the working set: all jobs that have not ended, by number, and those of them that the store is to be told of
 *
 * Numbers are given in rising order. Owned by the core's thread.
 */
#ifndef MUSTER_SERVER_TABLE_H
#define MUSTER_SERVER_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "server/control/entry.h"

#define TABLE_JOBS_MAX 100000

struct table {
    struct entry **buckets; /* by job number, chained; n_buckets is a power of two */
    size_t n_buckets, n;
    uint64_t *order; /* numbers, growing; those that have left are dropped now and then */
    size_t n_order, order_cap;
    size_t by_state[JOB_STATES];
    uint64_t ended[3]; /* succeeded, failed, cancelled: ever */
    size_t ended_new;  /* since the oldest were forgotten */
    uint64_t next;     /* number of the next job */
    struct entry *dirty;
};

int table_init(struct table *t);   /* empty; 0 or -ENOMEM */
void table_clear(struct table *t); /* frees the entries */

/* Borrowed until the job has ended; NULL: it has, or there is none. */
struct entry *table_find(const struct table *t, uint64_t job);

/* The i-th of the working set, i below n_order; NULL: it has left. */
struct entry *table_at(const struct table *t, size_t i);

/* No job of its number is there. The entry is the table's. 0 or -ENOMEM: then it is not. */
int table_insert(struct table *t, struct entry *e);
void table_remove(struct table *t, struct entry *e); /* the entry is the caller's */

/* The store is to be told of the job with this turn. */
void table_dirty(struct table *t, struct entry *e);

/* A job has gone from one state to another. */
void table_moved(struct table *t, enum job_state from, enum job_state to);

#endif
