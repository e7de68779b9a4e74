/* finish - whether a job that should have ended at some time makes it, and how it is put before others for that
 *
 * Pure; not tied to a thread.
 */
#ifndef MUSTER_SCHEDULER_CLUSTER_FINISH_H
#define MUSTER_SCHEDULER_CLUSTER_FINISH_H

#include "scheduler/cluster/forecast.h"

#define FINISH_TEXT_MAX 200

enum finish_verdict {
    FINISH_NONE,     /* nobody says when it should have ended */
    FINISH_WILL,     /* it has its devices, or gets them in time for sure, and its time limit ends it before */
    FINISH_LIKELY,   /* by what is expected of its start and its speed */
    FINISH_UNLIKELY, /* by the same it ends later */
    FINISH_CANNOT,   /* not even if it started now, on the most devices that it may have */
    FINISH_UNKNOWN,  /* nobody knows how long it takes, or when it starts */
    FINISH_VERDICTS,
};

struct finish {
    enum finish_verdict verdict;
    int64_t by_us;
    int64_t needs_us;          /* how long it takes yet; -1: unknown */
    bool by_limit;             /* that is its time limit; false: what it has left, at its speed */
    int32_t devices;           /* on so many */
    int64_t start_us;          /* when it is expected to have them, now when it has; -1: unknown */
    int64_t end_us;            /* and to have ended; -1: unknown */
    enum forecast_basis basis; /* of the start */
};

/* Of a job of a round, whose forecast is known. */
struct finish finish_of(const struct sched_input *in, const struct sched_plan *plan, size_t job,
                        const struct forecast *forecast);

/* So many times a job weighs what it would without its wish: from 1 with time enough to 8 when it must begin now; 1 for
 * one that cannot make it any more. */
double finish_urgency(const struct sched_job *job, int64_t now_us);

/* Whether it makes it only if it begins within so long. */
bool finish_presses(const struct sched_job *job, int64_t now_us, int64_t within_us);

const char *finish_verdict_name(enum finish_verdict verdict);

/* "needs 3.2 h on 4 devices; earliest start in 20 min", cut to size. */
void finish_text(const struct finish *f, int64_t now_us, char *ret, size_t size);

#endif
