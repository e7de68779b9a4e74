/* stalls - what the ranks of a run told last that show no sign of life
 *
 * Plain data for hangs.h: a page for each rank of a live run, made once one of them stands still.
 */
#ifndef MUSTER_SERVER_STALLS_H
#define MUSTER_SERVER_STALLS_H

#include <stddef.h>
#include <stdint.h>

#include "api/protocol/report.h"
#include "scheduler/diagnose/hang.h"

struct stall { /* of a rank; zeroed: it goes on */
    int64_t told_us;
    unsigned times; /* told in a row, of one and the same stall */
    char op[16], phase[16];
    uint64_t step;
    struct hang_rank rank; /* its groups are owned */
    char (*name)[16];      /* of the groups */
};

struct stalls { /* of a run, by rank */
    size_t n;
    struct stall of[];
};

/* What a report says of a rank of a run of n, at now (monotonic microseconds). *stalls is made when it is needed;
 * without memory the rank is not known to stand still. */
void stalls_take(struct stalls **stalls, size_t n, const struct report_rank *told, int64_t now_us);

/* The name of the group whose operation it waits in; "?": it told none. */
const char *stalls_group_name(const struct stall *p);

void stalls_free(struct stalls *stalls);

#endif
