/* calendar - times in which a device is not for everybody: maintenance, reservations, and a node that is to go
 *
 * Each of these is a span. What they say together of a device now is a state, to which spans are added in any order.
 * A job with a time limit is not put where that runs into the next span. One without a limit may be put there, where
 * there is no other way, until shortly before; it is told to save and leave CALENDAR_LEAD_US before the span begins.
 * Pure; times are of the wall clock.
 */
#ifndef MUSTER_SCHEDULER_CLUSTER_CALENDAR_H
#define MUSTER_SCHEDULER_CLUSTER_CALENDAR_H

#include <stdbool.h>
#include <stdint.h>

#define CALENDAR_LEAD_US INT64_C(300000000)
#define CALENDAR_NEVER_US (INT64_MAX / 4) /* the end of a span that has none: a node goes for good */

struct calendar_span {
    int64_t from_us, to_us;
    uint64_t holder; /* for whose jobs the device is kept; 0: it is for nobody */
};

struct calendar_state { /* of a device; all 0: it is for everybody, for ever */
    bool shut;          /* for nobody now */
    uint64_t holder;    /* for whose jobs alone it is now; 0: for everybody's */
    int64_t closes_us;  /* when the next span begins that has not begun yet; 0: never */
    int64_t opens_us;   /* when it is for everybody again, as far as is known; 0: it is, or never */
};

void calendar_add(struct calendar_state *s, const struct calendar_span *span, int64_t now_us);

/* The span as it is next, now or to come, where it is repeated every so many microseconds (0: it is not). */
struct calendar_span calendar_next(struct calendar_span span, int64_t every_us, int64_t now_us);

/* Whether some of the two is at the same time. */
bool calendar_overlap(const struct calendar_span *a, const struct calendar_span *b);

/* Whether a job that starts now is not to be put on a device that closes then (0: never). limit_us: how long it runs at
 * most; 0: nobody says. */
bool calendar_bars(int64_t now_us, int64_t limit_us, int64_t closes_us);

/* Whether a job that runs, and may for so long yet (INT64_MAX: nobody says how long), has to leave the device now. */
bool calendar_clears(int64_t now_us, int64_t left_us, int64_t closes_us);

#endif
