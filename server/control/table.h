/* table - the working set: all jobs that have not ended, by number, and those of them that the store is to be told of;
 * and the catalog of all that are known
 *
 * Numbers are given in rising order. Owned by the core's thread.
 */
#ifndef MUSTER_SERVER_TABLE_H
#define MUSTER_SERVER_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "server/cluster/array.h"
#include "server/cluster/catalog.h"
#include "server/control/entry.h"

#define TABLE_JOBS_MAX 100000

struct table {
    struct entry **buckets; /* by job number, chained; n_buckets is a power of two */
    size_t n_buckets, n;
    uint64_t *order; /* numbers, growing; those that have left are dropped now and then */
    size_t n_order, order_cap;
    size_t by_state[JOB_STATES];
    uint64_t ended[3]; /* succeeded, failed, cancelled: ever */
    uint64_t next;     /* number of the next job */
    struct entry *dirty;
    struct catalog catalog;
};

int table_init(struct table *t);   /* empty; 0 or -ENOMEM */
void table_clear(struct table *t); /* frees the entries */

/* Borrowed until the job has ended; NULL: it has, or there is none. */
struct entry *table_find(const struct table *t, uint64_t job);

/* The i-th of the working set, i below n_order; NULL: it has left. */
struct entry *table_at(const struct table *t, size_t i);

/* The bytes that an active job counts as: of its spec, and of its tasks. */
uint64_t table_bytes(const struct entry *e);

/* No job of its number is there. The entry is the table's, and in the catalog. 0 or -ENOMEM: it is not. */
int table_insert(struct table *t, struct entry *e);
/* One that has ended and that the catalog knows comes back. 0, -ENOENT, -ENOMEM. */
int table_insert_ended(struct table *t, struct entry *e);
void table_remove(struct table *t, struct entry *e); /* the entry is the caller's; the catalog knows its job still */

/* The store is to be told of the job with this turn. */
void table_dirty(struct table *t, struct entry *e);

/* A job has gone from one state to another. 0 or -ENOMEM: the catalog does not know it. */
int table_moved(struct table *t, const struct entry *e, enum job_state from);

#endif
