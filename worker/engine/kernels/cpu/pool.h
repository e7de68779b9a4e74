/* pool - the threads of one stream of CPU kernels
 *
 * Runs numbered items on the caller and threads - 1 helpers; who takes which item is up to chance, so an item's
 * result must not depend on it. Between two calls helpers look out for the next one for some microseconds and then
 * sleep on a condition: a core that waits is a core for the neighbour rank. A helper that is late for a call, as others
 * have its core, misses it. One owner thread calls pool_run; items must not.
 */
#ifndef MUSTER_WORKER_KERNELS_CPU_POOL_H
#define MUSTER_WORKER_KERNELS_CPU_POOL_H

#include "base/merr.h"

#define POOL_THREADS_MAX 256

struct pool;

typedef void (*pool_fn)(void *arg, int item, int worker); /* worker: 0 .. threads-1, 0 is the caller */

/* threads is cut to POOL_THREADS_MAX. Returns 0, -ENOMEM, -EAGAIN (no thread to be had). */
int pool_new(int threads, struct pool **ret, struct merr *err);
void pool_free(struct pool *p);
int pool_threads(const struct pool *p);

/* Run items 0 .. items-1; back when all are done. */
void pool_run(struct pool *p, int items, pool_fn fn, void *arg);

#endif
