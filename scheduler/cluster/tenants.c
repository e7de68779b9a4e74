/* What tenants may hold: each within its own limit, within those of the tenants that it is within, and by type. */
#include <string.h>

#include "scheduler/cluster/tenants_priv.h"

/* Index + 1 of the next tenant up. */
static uint32_t up(const struct round *r, uint32_t t)
{
    return r->in->tenants[t - 1].within;
}

static int32_t most_of_type(const struct round *r, uint32_t t, int type)
{
    const int32_t *most = r->in->tenants[t - 1].type_most;

    return most && most[type] >= 0 ? most[type] : INT32_MAX;
}

static int32_t *used_of_type(const struct round *r, uint32_t t, int type)
{
    return &r->tenant_type_used[(t - 1) * RATES_TYPES_MAX + (uint32_t)type];
}

static int64_t power_of(const struct round *r, const struct sched_shape *s)
{
    int64_t watts = 0;

    for (int k = 0; k < 2 && s; k++)
        watts += s->type[k] >= 0 ? (int64_t)s->n[k] * r->in->power_w[s->type[k]] : 0;
    return watts;
}

/* Watts that may be drawn yet. */
static int64_t power_left(const struct round *r)
{
    return r->in->config.power_w > 0 ? r->in->config.power_w - r->power_used : INT64_MAX;
}

bool tenants_lacks_power(const struct round *r, const struct sched_job *job, int32_t devices)
{
    int64_t least = INT64_MAX;

    for (int t = 0; t < RATES_TYPES_MAX; t++)
        if ((sched_job_types(job) >> t & 1) && r->total[t] > 0 && (int64_t)r->in->power_w[t] * devices < least)
            least = (int64_t)r->in->power_w[t] * devices;
    return least < INT64_MAX && least > power_left(r);
}

void tenants_init(struct round *r)
{
    const struct sched_input *in = r->in;

    r->tenants_nest = in->config.power_w > 0;
    for (uint32_t t = 0; t < in->n_tenants; t++) {
        int64_t cap = (int64_t)in->tenants[t].quota + in->tenants[t].borrow;

        r->tenant_cap[t] = in->tenants[t].borrow < 0 || cap > INT32_MAX ? INT32_MAX : (int32_t)cap;
        r->tenants_nest = r->tenants_nest || in->tenants[t].within > 0 || in->tenants[t].type_most;
    }
    for (uint32_t i = 0; i < in->n_tenants; i++)
        for (uint32_t t = i + 1; t > 0; t = up(r, t))
            if (r->tenant_cap[t - 1] < INT32_MAX)
                r->tenant_cap[t - 1] -=
                    in->tenants[i].leaving < r->tenant_cap[t - 1] ? in->tenants[i].leaving : r->tenant_cap[t - 1];
}

static int32_t count_of(const struct sched_shape *s, int type)
{
    return !s ? 0 : (s->type[0] == type ? s->n[0] : 0) + (s->type[1] == type ? s->n[1] : 0);
}

bool tenants_nested_allow(const struct round *r, uint32_t tenant, const struct sched_shape *from,
                          const struct sched_shape *to)
{
    int32_t more = tenants_more(from, to);
    int64_t watts = power_of(r, to) - power_of(r, from);

    if (watts > 0 && watts > power_left(r))
        return false;
    for (uint32_t t = tenant + 1; t > 0; t = up(r, t)) {
        if (more > 0 && more > r->tenant_cap[t - 1] - r->tenant_used[t - 1])
            return false;
        for (int k = 0; k < 2 && to; k++) {
            int32_t n = to->type[k] < 0 ? 0 : to->n[k] - count_of(from, to->type[k]);

            if (n > 0 && n > most_of_type(r, t, to->type[k]) - *used_of_type(r, t, to->type[k]))
                return false;
        }
    }
    return true;
}

void tenants_nested_count(struct round *r, uint32_t tenant, const struct sched_shape *s, int sign)
{
    r->power_used += sign * power_of(r, s);
    for (uint32_t t = tenant + 1; t > 0; t = up(r, t)) {
        r->tenant_used[t - 1] += sign * shape_size(s);
        for (int k = 0; k < 2; k++)
            if (s->type[k] >= 0)
                *used_of_type(r, t, s->type[k]) += sign * s->n[k];
    }
}

bool tenants_nested_over(const struct round *r, uint32_t tenant, const struct sched_shape *s)
{
    if (power_left(r) < 0 && power_of(r, s) > 0)
        return true;
    for (uint32_t t = tenant + 1; t > 0; t = up(r, t)) {
        if (r->tenant_used[t - 1] > r->tenant_cap[t - 1])
            return true;
        for (int k = 0; k < 2; k++)
            if (s->type[k] >= 0 && *used_of_type(r, t, s->type[k]) > most_of_type(r, t, s->type[k]))
                return true;
    }
    return false;
}

/* What a change frees of one limit that is exceeded, added to *n. False: it would exceed it. */
static bool relieve(int32_t more, int32_t used, int32_t cap, int32_t *n)
{
    if (used > cap)
        *n -= more;
    else if (more > 0 && more > cap - used)
        return false;
    return true;
}

int32_t tenants_nested_relief(const struct round *r, uint32_t tenant, const struct sched_shape *from,
                              const struct sched_shape *to)
{
    int64_t watts = power_of(r, to) - power_of(r, from);
    int32_t n = 0;

    if (power_left(r) < 0)
        n += watts < 0 ? shape_size(from) - (to ? shape_size(to) : 0) : 0;
    else if (watts > 0 && watts > power_left(r))
        return INT32_MIN;
    for (uint32_t t = tenant + 1; t > 0; t = up(r, t)) {
        if (!relieve(tenants_more(from, to), r->tenant_used[t - 1], r->tenant_cap[t - 1], &n))
            return INT32_MIN;
        for (int type = 0; type < RATES_TYPES_MAX; type++)
            if (!relieve(count_of(to, type) - count_of(from, type), *used_of_type(r, t, type), most_of_type(r, t, type),
                         &n))
                return INT32_MIN;
    }
    return n;
}

int32_t tenants_room(const struct round *r, const struct sched_job *job)
{
    int32_t room = INT32_MAX;

    if (!r->tenants_nest && sched_job_types(job) != 0)
        return r->tenant_cap[job->tenant] - r->tenant_used[job->tenant];
    for (uint32_t t = job->tenant + 1; t > 0; t = up(r, t)) {
        int32_t here = r->tenant_cap[t - 1] - r->tenant_used[t - 1];
        int64_t of_types = 0;

        for (int type = 0; type < RATES_TYPES_MAX; type++)
            if (sched_job_types(job) >> type & 1)
                of_types += most_of_type(r, t, type) == INT32_MAX
                                ? INT32_MAX
                                : most_of_type(r, t, type) - *used_of_type(r, t, type);
        here = of_types < here ? (int32_t)of_types : here;
        room = here < room ? here : room;
    }
    return room;
}

/* --- guarantees ------------------------------------------------------------------------------------------ */

void tenants_fill_quotas(const struct round *r, int32_t *left)
{
    for (size_t t = 0; t < r->in->n_tenants; t++, left += RATES_TYPES_MAX + 1) {
        const struct sched_tenant *tenant = &r->in->tenants[t];

        for (int type = 0; type < RATES_TYPES_MAX; type++)
            left[type] = tenant->type_quota && tenant->type_quota[type] >= 0 ? tenant->type_quota[type] : INT32_MAX;
        left[RATES_TYPES_MAX] = tenant->quota;
    }
}

/* What is left of one; NULL: a tenant that others are within has no quota, and does not limit theirs. */
static int32_t *quota_of(const struct round *r, const struct sched_job *job, uint32_t t, int32_t *left, int type)
{
    return t != job->tenant + 1 && r->in->tenants[t - 1].quota <= 0
               ? NULL
               : &left[(t - 1) * (RATES_TYPES_MAX + 1) + (uint32_t)type];
}

static bool takes(const struct round *r, const struct sched_job *job, int32_t *left, int type)
{
    for (uint32_t t = job->tenant + 1; t > 0; t = up(r, t)) {
        const int32_t *at = quota_of(r, job, t, left, type);

        if (at && *at < job->min)
            return false;
    }
    return true;
}

static void take(const struct round *r, const struct sched_job *job, int32_t *left, int type)
{
    for (uint32_t t = job->tenant + 1; t > 0; t = up(r, t)) {
        int32_t *at = quota_of(r, job, t, left, type);

        if (at && *at < INT32_MAX)
            *at -= job->min;
    }
}

uint32_t tenants_take_quota(const struct round *r, const struct sched_job *job, int32_t *left)
{
    uint32_t types = 0, has = 0;
    int first = -1;

    if (!takes(r, job, left, RATES_TYPES_MAX))
        return 0;
    for (size_t p = 0; p < job->n_places; p++)
        has |= UINT32_C(1) << r->in->nodes[job->places[p].node].type;
    for (int type = 0; type < RATES_TYPES_MAX; type++)
        if ((sched_job_types(job) >> type & 1) && takes(r, job, left, type)) {
            types |= UINT32_C(1) << type;
            first = first < 0 || (has >> type & 1) ? type : first;
        }
    if (types == 0)
        return 0;
    take(r, job, left, RATES_TYPES_MAX);
    take(r, job, left, first);
    return types;
}
