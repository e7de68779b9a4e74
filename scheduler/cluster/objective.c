/* What jobs are weighed by where it is not finish-time fairness: the other objectives of the policy muster, and the
 * published schedulers that compare configurations as it does. Both of these are solved by the search of prices of
 * muster, whose gap is reported, in place of a genetic search and of an integer program. */
#include <math.h>

#include "scheduler/cluster/sched_priv.h"

#define DAY_US 8.64e10
#define SIA_RUNS 1.1     /* worth of running at all; each configuration costs its goodput to the power of -1/2 */
#define POLLUX_RUNS 20.0 /* the same, where a configuration costs 1 over its speed-up: none is as a twentieth */

static double least_rate(const struct round *r, const struct rjob *j)
{
    int64_t best = 0;

    for (int t = 0; t < RATES_TYPES_MAX; t++)
        if ((sched_job_types(j->job) >> t & 1) && r->total[t] > 0 && j->job->profile->n[t] > 0) {
            int64_t rate = rates_at(j->job->profile, t, j->least, NULL);

            best = rate > best ? rate : best;
        }
    return (double)best;
}

/* How long a job has to go on its least devices, and a time slice; where nobody knows, as long as it has run. */
static double rest_of(const struct round *r, const struct rjob *j)
{
    double rest = sched_rest_us(j->job, (int64_t)least_rate(r, j));

    if (isinf(rest))
        rest = (double)j->job->attained_us / (j->least > 0 ? j->least : 1);
    return rest + (double)sched_slice_us(r, j->job);
}

double objective_weight(const struct round *r, const struct rjob *j, double own)
{
    double rest;

    if (r->in->config.policy == SCHED_POLICY_SIA || r->in->config.policy == SCHED_POLICY_POLLUX)
        return own;
    if (r->in->config.policy != SCHED_POLICY_MUSTER || r->in->config.objective == SCHED_FAIR)
        return 0;
    rest = rest_of(r, j) / DAY_US;
    switch (r->in->config.objective) {
    case SCHED_JCT: /* the shortest first; by more than this root, jobs stop each other too often */
        return own / sqrt(sqrt(rest));
    case SCHED_MAKESPAN: /* the longest first; by more, the last job is done no sooner and all others later */
        return own * sqrt(rest);
    default:
        return own;
    }
}

/* Its rate on so many devices of whatever type: the mean over those that it may use. */
static double blind_rate(const struct round *r, const struct sched_job *job, int32_t n)
{
    double sum = 0, devices = 0;

    for (int t = 0; t < RATES_TYPES_MAX; t++)
        if ((job->types >> t & 1) && r->total[t] > 0 && job->profile->n[t] > 0) {
            sum += r->total[t] * (double)rates_at(job->profile, t, n, NULL);
            devices += r->total[t];
        }
    return devices > 0 ? sum / devices : 0;
}

/* Speed-up over a fair share of the devices, the job's range allowing. */
static double speed_up(const struct round *r, const struct rjob *j, int32_t n)
{
    double devices = 0, share, fair;
    int32_t least, most, at;

    for (int t = 0; t < RATES_TYPES_MAX; t++)
        devices += r->total[t];
    sched_job_range(j->job, &least, &most);
    share = devices / (double)(r->n_jobs > 0 ? r->n_jobs : 1);
    at = share < least ? least : share > most ? most : (int32_t)share;
    fair = blind_rate(r, j->job, at) * (share < least ? share / least : 1);
    return fair > 0 ? blind_rate(r, j->job, n) / fair : 1;
}

bool objective_worth(const struct round *r, const struct rjob *j, const struct cand *cand, double base, double factor,
                     double *ret)
{
    const struct sched_config *cfg = &r->in->config;
    double x = (double)cand->shape.rate_ups * factor / base;

    x = x > 0.05 ? x : 0.05;
    if (cfg->policy == SCHED_POLICY_SIA)
        *ret = fmax(SIA_RUNS - 1 / sqrt(x * j->least), 0);
    else if (cfg->policy == SCHED_POLICY_POLLUX)
        *ret = fmax(POLLUX_RUNS - 1 / fmax(speed_up(r, j, shape_size(&cand->shape)) * factor, 1e-3), 0);
    else if (cfg->policy == SCHED_POLICY_MUSTER && cfg->objective == SCHED_THROUGHPUT)
        *ret = j->least * (x - (factor < 1 ? 0.02 : 0));
    else
        return false;
    *ret = *ret > 0 ? *ret : 0;
    return true;
}
