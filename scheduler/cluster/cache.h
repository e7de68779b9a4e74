/* cache - candidates of jobs that ask alike and hold alike, kept from round to round; for scheduler/cluster only
 *
 * What is found depends on nothing but the key and the cluster's devices: when those change the cache empties itself.
 * It grows up to CACHE_CANDS_MAX candidates and then begins anew.
 */
#ifndef MUSTER_SCHEDULER_CLUSTER_CACHE_H
#define MUSTER_SCHEDULER_CLUSTER_CACHE_H

#include "scheduler/cluster/sched_priv.h"

#define CACHE_CANDS_MAX (1u << 20)

struct cache_key {
    const struct rates_profile *profile;
    int32_t min, max, replica, stage, workers, n[2];
    uint32_t types;
    int8_t home, type[2];
    uint8_t hetero_ok, fixed, lost, within, nothing; /* no padding: keys are compared as bytes */
};

struct cache_key cache_key_of(const struct sched_job *job, const struct sched_shape *now, bool lost);

/* A round begins: what was found for another cluster or policy is forgotten. */
void cache_enter(struct sched_cache *c, const struct round *r);

/* The candidates of a key and what each is worth to a job that waits, both good until the next cache_keep(). Returns
 * their number, or -ENOENT. */
int cache_find(const struct sched_cache *c, const struct cache_key *key, const struct cand **ret,
               const double **ret_worth);

/* Keep n candidates; the one of rate x times the least is worth lambda - 1/sqrt(x). As cache_find, or -ENOMEM. */
int cache_keep(struct sched_cache *c, const struct cache_key *key, const struct cand *v, int n, double lambda,
               const struct cand **ret, const double **ret_worth);

#endif
