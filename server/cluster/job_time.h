/* job_time - what of a job depends on the time: its limits, and the moments that it keeps */
#ifndef MUSTER_SERVER_JOB_TIME_H
#define MUSTER_SERVER_JOB_TIME_H

#include <stdbool.h>
#include <stdint.h>

#include "server/cluster/job.h"

/* The wall clock was set by so much: what is measured with it goes along. */
void job_time_shift(struct job *j, int64_t by_us);

/* It failed and is not to start yet. A wait longer than any there is comes of a clock that was set back: it is over. */
bool job_time_backs_off(const struct job *j, int64_t now_us);

/* How long it has run in all; and may run yet by its limit, INT64_MAX: as long as it likes; and may wait yet. */
int64_t job_time_ran_us(const struct job *j, int64_t now_us);
int64_t job_time_left_us(const struct job *j, int64_t now_us);
int64_t job_time_ends_us(const struct job *j); /* wall: when its run will have used that up; 0: no limit, or no run */
int64_t job_time_queue_left_us(const struct job *j, int64_t now_us);

/* It has failed since its time was up: with more of it, it can go on. */
bool job_time_is_out(const struct job *j);

#endif
