/* beats - how long a command goes between two steps, as its heartbeats tell it
 *
 * A heartbeat is looked at about once a second, so what lies between two looks is a mean of many short steps, or one
 * long step whole. Pure but for its state.
 */
#ifndef MUSTER_WORKER_AGENT_BEATS_H
#define MUSTER_WORKER_AGENT_BEATS_H

#include "worker/agent/program.h"

#define BEATS_WARM_STEPS 5 /* of a run: their times are no measure of later ones */
#define BEATS_WINDOW 100   /* steps */

struct beats_seen { /* zeroed: none was seen */
    struct program_beat last;
    int64_t steps; /* done since the first one that was seen */
    int64_t window;
    int64_t gap_us[2]; /* the longest of this window, and of the one before */
};

/* Take in a heartbeat. */
void beats_take(struct beats_seen *s, const struct program_beat *b);

/* The longest time between two steps of late, without sections; 0: not known yet. */
int64_t beats_gap_us(const struct beats_seen *s);

#endif
