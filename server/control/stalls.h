/* stalls - what the ranks of a run told last that show no sign of life
 *
 * Plain data for hangs.h: a page for each rank of a live run, made once one of them stands still.
 */
#ifndef MUSTER_SERVER_STALLS_H
#define MUSTER_SERVER_STALLS_H

#include <stddef.h>
#include <stdint.h>

#include "api/protocol/incident.h"
#include "server/cluster/job.h"

struct stall { /* of a rank; zeroed: it goes on */
    int64_t told_us;
    unsigned times;          /* told in a row, of one and the same stall */
    struct report_rank told; /* its groups are owned */
};

struct stalls { /* of a run, by rank */
    size_t n;
    struct stall of[];
};

/* What a report says of a rank of a run of n, at now (monotonic microseconds). *stalls is made when it is needed;
 * without memory the rank is not known to stand still. */
void stalls_take(struct stalls **stalls, size_t n, const struct report_rank *told, int64_t now_us);

/* Ranks as an incident has them, in a new list that borrows their groups. NULL: no memory. */
struct incident_rank *stalls_list(const struct stalls *stalls, const struct job_place *places);

void stalls_free(struct stalls *stalls);

#endif
