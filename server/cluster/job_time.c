#include "server/cluster/job_time.h"

#include <string.h>

bool job_time_backs_off(const struct job *j, int64_t now_us)
{
    return j->retry_us > now_us && j->retry_us - now_us <= ACT_WAIT_MAX_US;
}

void job_time_shift(struct job *j, int64_t by_us)
{
    j->retry_us += j->retry_us > 0 ? by_us : 0;
    j->waiting_us += by_us;
    j->changed_us += by_us;
    j->estimate.made_us += j->estimate.made_us > 0 ? by_us : 0;
    j->estimate.start_us += j->estimate.made_us > 0 ? by_us : 0;
    j->past.infra_since_us += j->past.infra_since_us > 0 ? by_us : 0;
    j->past.moves.since_us += j->past.moves.since_us > 0 ? by_us : 0;
    j->past.link_moves.since_us += j->past.link_moves.since_us > 0 ? by_us : 0;
}

int64_t job_time_ran_us(const struct job *j, int64_t now_us)
{
    return j->ran_us + (j->live && now_us > j->changed_us ? now_us - j->changed_us : 0);
}

int64_t job_time_left_us(const struct job *j, int64_t now_us)
{
    return j->time_s > 0 ? j->time_s * INT64_C(1000000) - job_time_ran_us(j, now_us) : INT64_MAX;
}

int64_t job_time_ends_us(const struct job *j)
{
    return j->live && j->time_s > 0 ? j->changed_us + job_time_left_us(j, j->changed_us) : 0;
}

int64_t job_time_queue_left_us(const struct job *j, int64_t now_us)
{
    if (j->queue_s == 0 || j->state != JOB_QUEUED || job_is_held_back(j) || j->generation > 0)
        return INT64_MAX;
    return j->queue_s * INT64_C(1000000) - (now_us > j->waiting_us ? now_us - j->waiting_us : 0);
}

bool job_time_is_out(const struct job *j)
{
    return j->state == JOB_FAILED && strcmp(j->reason_code, "time-limit") == 0;
}
