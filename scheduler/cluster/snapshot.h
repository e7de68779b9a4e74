/* snapshot - what a round saw, as text: any decision can be kept and taken again elsewhere
 *
 * One line an item; the first says the format. Numbers are whole, times in microseconds, prices with all their digits:
 * parsing what was printed gives a snapshot with the same plan. Not tied to a thread.
 *
 *   muster-snapshot 2
 *   config POLICY MODE now round starve grace las hold spread
 *   prices P0 .. P15
 *   type NAME                      in their order, from 0
 *   tenant quota borrow weight_milli [leaving [within]]    leaving where runs of it are on their way out
 *   of type quota most                                     limits of a type, of the tenant before it
 *   node type devices leaf drained silent [slow_milli slow_since]      the last two where its devices are slow
 *   profile                        followed by its rates
 *   rate type count rate_ups
 *   job id tenant class submit min max replica workers types hetero fixed home weight_milli restart restarts changed
 *       waiting attained remaining rho_milli profile [node:devices]...                               (one line)
 *   limit time                                             that the job before it may run yet
 *   wish finish_by within prefer                           of the job before it
 *   avoid barred node...                                   nodes that the job before it does not get, barred ones never
 */
#ifndef MUSTER_SCHEDULER_CLUSTER_SNAPSHOT_H
#define MUSTER_SCHEDULER_CLUSTER_SNAPSHOT_H

#include "scheduler/cluster/sched.h"

#define SNAPSHOT_NAME_MAX 64
#define SNAPSHOT_PROFILES_MAX 8192
#define SNAPSHOT_PLACES_MAX (1 << 20)

struct snapshot_of { /* limits of types of a tenant */
    size_t tenant;
    int32_t quota[RATES_TYPES_MAX], most[RATES_TYPES_MAX];
};

struct snapshot { /* as parsed; in points into it, and may be changed for a what-if */
    struct sched_input in;
    char types[RATES_TYPES_MAX][SNAPSHOT_NAME_MAX];
    size_t n_types;
    struct sched_node *nodes;
    struct sched_tenant *tenants;
    struct sched_job *jobs;
    struct sched_place *places;
    uint32_t *avoid;
    struct rates_profile *profiles;
    struct snapshot_of *of;
    size_t n_profiles, n_places, n_of, n_avoid;
    size_t nodes_cap, tenants_cap, jobs_cap, places_cap, profiles_cap, of_cap, avoid_cap;
};

/* Print a snapshot whose types have these names (without blanks). Returns 0, -EMSGSIZE of the buffer, -ENOMEM. */
int snapshot_print(const struct sched_input *in, const char *const *types, size_t n_types, struct buf *out);

/* Read one. Returns 0 with *ret for snapshot_clear(); -EINVAL naming the line; -ENOMEM. */
int snapshot_parse(const char *text, size_t len, struct snapshot *ret, struct merr *err);
void snapshot_clear(struct snapshot *s);

/* A further node. -ENOSPC, -ENOMEM with *s unchanged. */
int snapshot_add_node(struct snapshot *s, struct sched_node node);

#endif
