/* shares - how a job's virtual workers lie on its replicas when these are not equally fast
 *
 * Ranks measure how long one virtual worker takes on each replica; by these times, kept by class of device, the workers
 * are laid so that the slowest replica is as fast as can be (scheduler/cluster/rates.h). A device that is known to be
 * slower than its class counts as that much slower (server/cluster/stragglers.c).
 */
#ifndef MUSTER_SERVER_SHARES_H
#define MUSTER_SERVER_SHARES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/cluster/cluster.h"
#include "server/cluster/pace.h"

/* Workers of each of n replicas that take ms[i] for one, into ret[n]. False, and ret is unchanged: all are equally
 * fast, or the times are not known; then they are shared out evenly. Each replica has one at least. */
bool shares_divide(const double *ms, size_t n, int workers, int *ret);

/* Take in "leaf_ms" of a line of metrics. What devices took that are known to be slow says nothing of their class. */
void shares_learn(const struct cluster *cl, const struct job *j, struct pace *pace, uint32_t generation,
                  const json_t *leaf_ms);

/* Lay the workers of a job that trains on the places of a layout. */
void shares_set(const struct cluster *cl, const struct pace *pace, const struct layout *l, struct job_place *p,
                size_t n);

/* How many times as long as it must a step takes as they lie on the devices of a running job; 1: not known either. */
double shares_off_by(const struct cluster *cl, const struct job *j, const struct pace *pace);

/* --- when to lay them anew: pace->shares, which shares_learn() keeps --- */

/* A run begins on these devices with its work laid so (hashes); the rest is of a run before. */
void shares_begin(struct shares_watch *w, uint32_t generation, uint64_t devices, uint64_t laid);

/* A step took so many times as long as it must. */
void shares_watch(struct shares_watch *w, double times);

/* Whether it is time to, for a run of that generation: by more than 10 % in eight steps in a row, so it is no
 * chance. Who was laid anew on the same devices before must gain twice as much each time: how long a worker takes also
 * depends on how many are beside it. */
bool shares_are_off(const struct shares_watch *w, uint32_t generation);

/* Which replica a rank belongs to. */
size_t shares_replica(const struct layout *l, size_t rank);
size_t shares_first(const struct layout *l, size_t replica); /* its first rank */

/* How many workers the replica of a rank of a live run has. */
int shares_workers(const struct job *j, const struct pace *pace, size_t rank);

#endif
