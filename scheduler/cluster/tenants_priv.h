/* tenants_priv - limits of tenants, of those that they are within, by type, and in power of all (tenants.c) */
#ifndef MUSTER_SCHEDULER_CLUSTER_TENANTS_PRIV_H
#define MUSTER_SCHEDULER_CLUSTER_TENANTS_PRIV_H

#include "scheduler/cluster/sched_priv.h"

/* from, to: what the job has and would have; NULL: nothing. */
bool tenants_nested_allow(const struct round *r, uint32_t tenant, const struct sched_shape *from,
                          const struct sched_shape *to);
void tenants_nested_count(struct round *r, uint32_t tenant, const struct sched_shape *s, int sign);
bool tenants_nested_over(const struct round *r, uint32_t tenant, const struct sched_shape *s);
int32_t tenants_nested_relief(const struct round *r, uint32_t tenant, const struct sched_shape *from,
                              const struct sched_shape *to);

static inline int32_t tenants_more(const struct sched_shape *from, const struct sched_shape *to)
{
    return (to ? shape_size(to) : 0) - (from ? shape_size(from) : 0);
}

static inline bool tenants_allow(const struct round *r, uint32_t tenant, const struct sched_shape *from,
                                 const struct sched_shape *to)
{
    int32_t more = tenants_more(from, to);

    return r->tenants_nest ? tenants_nested_allow(r, tenant, from, to)
                           : more <= 0 || more <= r->tenant_cap[tenant] - r->tenant_used[tenant];
}

static inline void tenants_count(struct round *r, uint32_t tenant, const struct sched_shape *s, int sign)
{
    if (r->tenants_nest)
        tenants_nested_count(r, tenant, s, sign);
    else
        r->tenant_used[tenant] += sign * shape_size(s);
}

/* Over a limit that s counts for. */
static inline bool tenants_over(const struct round *r, uint32_t tenant, const struct sched_shape *s)
{
    return r->tenants_nest ? tenants_nested_over(r, tenant, s) : r->tenant_used[tenant] > r->tenant_cap[tenant];
}

/* Devices that the change frees within limits that are exceeded; INT32_MIN: it would exceed one. */
static inline int32_t tenants_relief(const struct round *r, uint32_t tenant, const struct sched_shape *from,
                                     const struct sched_shape *to)
{
    if (r->tenants_nest)
        return tenants_nested_relief(r, tenant, from, to);
    if (r->tenant_used[tenant] > r->tenant_cap[tenant])
        return -tenants_more(from, to);
    return tenants_allow(r, tenant, from, to) ? 0 : INT32_MIN;
}

/* Quotas in which guaranteed jobs count on their minimum: what is left of each, (RATES_TYPES_MAX + 1) a tenant. */
void tenants_fill_quotas(const struct round *r, int32_t *left);
uint32_t tenants_take_quota(const struct round *r, const struct sched_job *job, int32_t *left); /* types; 0: none */
int32_t tenants_room(const struct round *r, const struct sched_job *job); /* devices that it may have yet */
/* Whether so many devices would draw more than is left. */
bool tenants_lacks_power(const struct round *r, const struct sched_job *job, int32_t devices);
void tenants_init(struct round *r); /* caps of the round, from its input */

#endif
