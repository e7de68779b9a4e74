/* The terms of the scheduler: names, what a job may have, what a priority weighs. */
#include <assert.h>

#include "scheduler/cluster/sched.h"

const char *const sched_policy_names[] = {
    [SCHED_POLICY_MUSTER] = "muster", [SCHED_POLICY_FIFO] = "fifo",     [SCHED_POLICY_BACKFILL] = "backfill",
    [SCHED_POLICY_LAS] = "las",       [SCHED_POLICY_MAXMIN] = "maxmin", [SCHED_POLICY_SRTF] = "srtf-oracle",
    [SCHED_POLICY_POLLUX] = "pollux", [SCHED_POLICY_SIA] = "sia",       [SCHED_POLICY_MAX] = NULL,
};

const char *const sched_objective_names[] = {"fair", "jct", "makespan", "throughput", NULL};

const char *sched_policy_name(enum sched_policy policy)
{
    assert((size_t)policy < SCHED_POLICY_MAX);
    return sched_policy_names[policy];
}

const char *sched_action_name(enum sched_action action)
{
    static const char *const name[] = {"keep", "stop", "shrink", "move", "grow", "start", "wait"};

    assert((size_t)action < sizeof(name) / sizeof(name[0]));
    return name[action];
}

const char *sched_reason_name(enum sched_reason reason)
{
    static const char *const name[] = {"runs",
                                       "insufficient-devices",
                                       "behind",
                                       "tenant-limit",
                                       "cluster-too-small",
                                       "fragmented",
                                       "reclaimed",
                                       "closing",
                                       "power-cap",
                                       "slow-device"};

    assert((size_t)reason < sizeof(name) / sizeof(name[0]));
    return name[reason];
}

void sched_job_range(const struct sched_job *job, int32_t *ret_least, int32_t *ret_most)
{
    int32_t step = job->replica > 1 ? job->replica : 1;
    int64_t least = ((int64_t)job->min + step - 1) / step * step, most = job->max - job->max % step;

    if (job->workers > 0 && most > (int64_t)job->workers * step)
        most = (int64_t)job->workers * step;
    *ret_least = least > RATES_COUNT_MAX ? RATES_COUNT_MAX : (int32_t)least;
    *ret_most = (int32_t)most;
}

int64_t sched_left_us(const struct sched_job *job, int64_t rate_ups)
{
    double s = job->remaining_us >= 0 && rate_ups > 0 ? (double)job->remaining_us / (double)rate_ups : 1e12;
    int64_t left = s >= 1e12 ? SCHED_LEFT_UNKNOWN : (int64_t)(s * 1e6);

    return job->limit_us > 0 && job->limit_us < left ? job->limit_us : left;
}

int64_t sched_weight_milli(int priority)
{
    static const int64_t fifth[] = {1000, 1149, 1320, 1516, 1741};
    int over = priority - 50 + 500, shift = over / 5 - 100;
    int64_t w = fifth[over % 5];

    w = shift >= 0 ? w << shift : w >> -shift;
    return w < 1 ? 1 : w;
}
