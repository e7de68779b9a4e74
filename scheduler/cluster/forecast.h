/* forecast - when each job that waits is expected to start, on what that rests, and how many are before it
 *
 * Jobs that wait are served in thought, in the order of the queue: each takes the devices that come free first. Devices
 * are counted by type; how they lie on nodes is left out, and so is that small jobs pass large ones. So it costs little
 * enough for every round. Pure; not tied to a thread.
 */
#ifndef MUSTER_SCHEDULER_CLUSTER_FORECAST_H
#define MUSTER_SCHEDULER_CLUSTER_FORECAST_H

#include "scheduler/cluster/sched.h"

#define FORECAST_JOBS_MAX 512 /* of those that wait; of the others nobody knows when they start */

enum forecast_basis {
    FORECAST_UNKNOWN,     /* nobody can say when it starts */
    FORECAST_BY_WORK,     /* by the work left of what runs and its measured speed */
    FORECAST_BY_LIMITS,   /* by the time limit of what runs */
    FORECAST_BY_ROUND,    /* in a coming full round, for which elastic jobs give way */
    FORECAST_BY_CALENDAR, /* when a maintenance or a reservation begins or is over */
    FORECAST_RESERVED,    /* by the devices that are kept for it */
    FORECAST_BASES,
};

struct forecast {
    int64_t start_us;  /* when it is expected to start, -1: unknown */
    int64_t latest_us; /* and when it starts at the latest, since devices are kept for it; 0: nobody knows */
    uint64_t after;    /* the job whose end gives it the last devices; 0: none */
    enum forecast_basis basis;
    int32_t ahead,
        ahead_devices;  /* jobs before it that want devices of the same types, and the fewest that they take */
    int32_t of_project; /* jobs of its project before it */
};

/* Of all jobs of the snapshot; of one that does not wait all is 0. Returns 0 or -ENOMEM. */
int forecast_all(const struct sched_input *in, const struct sched_plan *plan, struct forecast *ret);

/* "time-limits" and so on; and back, FORECAST_UNKNOWN for any other word. */
const char *forecast_basis_name(enum forecast_basis basis);
enum forecast_basis forecast_basis_parse(const char *name);

#endif
