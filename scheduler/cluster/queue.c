/* Who of those that wait is looked at. The queue of an overloaded cluster is far longer than what could start, and a
 * round should not take the longer for it: jobs are taken up by their claim until these ask for several times what
 * there is, of each type and of each tenant's limit. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "scheduler/cluster/sched_priv.h"
#include "scheduler/cluster/closing_priv.h"

#define DEPTH 4     /* times the devices there are */
#define BUCKETS 512 /* of claims, eight to every doubling: within one by age */

struct intake {
    double type[RATES_TYPES_MAX]; /* devices asked for so far */
    int64_t tenant[SCHED_TENANTS_MAX];
};

/* The highest claims first. */
static size_t bucket_of(double claim)
{
    int exponent, k;
    double share = frexp(claim, &exponent); /* from a half to one */

    k = BUCKETS / 2 - (exponent * 8 + (int)(share * 16) - 8);
    return k < 0 ? 0 : k >= BUCKETS ? BUCKETS - 1 : (size_t)k;
}

/* Jobs that wait into r->order, by claim. Returns their number. */
static size_t line_up(struct round *r)
{
    size_t first[BUCKETS + 1] = {0};

    for (size_t i = 0; i < r->n_jobs; i++)
        if (r->jobs[i].job->n_places == 0)
            first[bucket_of(r->jobs[i].claim) + 1]++;
    for (size_t b = 0; b < BUCKETS; b++)
        first[b + 1] += first[b];
    for (size_t i = 0; i < r->n_jobs; i++)
        if (r->jobs[i].job->n_places == 0)
            r->order[first[bucket_of(r->jobs[i].claim)]++] = i;
    return first[BUCKETS - 1];
}

/* Types that the job could run on; 0: none holds its minimum, and it is told so elsewhere. */
static uint32_t types_of(const struct round *r, const struct rjob *j, int32_t least)
{
    const struct sched_job *job = j->job;
    uint32_t types = 0;
    int64_t sum = 0;
    bool one = false;

    for (int t = 0; t < RATES_TYPES_MAX; t++) {
        int32_t total = closing_total(r, j, t);

        if (!(sched_job_types(job) >> t & 1) || total == 0 || job->profile->n[t] == 0)
            continue;
        types |= UINT32_C(1) << t;
        sum += total;
        one = one || total >= least;
    }
    return one || (job->hetero_ok && sum >= least) ? types : 0;
}

/* Whether one of the types, and the job's tenant, is not asked for enough yet; then it is the more so. */
static bool take_up(const struct round *r, struct intake *in, const struct sched_job *job, uint32_t types,
                    int32_t least)
{
    int32_t cap = r->tenant_cap[job->tenant];
    double all = 0;
    bool wanted = false;

    if (cap < INT32_MAX && in->tenant[job->tenant] >= (int64_t)DEPTH * cap)
        return false;
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        if (types >> t & 1) {
            wanted = wanted || in->type[t] < (double)DEPTH * r->total[t];
            all += r->total[t];
        }
    for (int t = 0; wanted && t < RATES_TYPES_MAX; t++)
        in->type[t] += types >> t & 1 ? least * (r->total[t] / all) : 0;
    in->tenant[job->tenant] += wanted ? least : 0;
    return wanted;
}

void queue_cut(struct round *r)
{
    struct intake in; /* zeroed as far as there are tenants */
    size_t n = line_up(r);

    memset(&in, 0, offsetof(struct intake, tenant) + r->in->n_tenants * sizeof(in.tenant[0]));
    for (size_t i = 0; i < n; i++) {
        struct rjob *j = &r->jobs[r->order[i]];
        uint32_t types = types_of(r, j, j->least);

        if (types != 0)
            j->crowded = !take_up(r, &in, j->job, types, j->least);
    }
}
