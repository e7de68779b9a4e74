/* steps - what a rank's page says of its last steps, as an agent reports it
 *
 * A rank with very short steps tells more than a report shall hold: then a record sums 2, 4, 8 … consecutive steps,
 * from one multiple of that number to the next, so that the records of all agents fit together. No step is left out.
 */
#ifndef MUSTER_WORKER_AGENT_STEPS_H
#define MUSTER_WORKER_AGENT_STEPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/flight/flight_read.h"

struct steps_seen { /* of a rank; zeroed: nothing */
    uint64_t n;     /* steps of its page that were told, or passed over */
    int64_t at_us;
};

struct steps_lack { /* of the time since the last call, the shares in which the rank */
    double starved; /* could have run, and had no processor */
    double throttled;
};

/* Whether it is time to tell of steps again: about once a second. */
bool steps_due(const struct steps_seen *seen, int64_t now_us);

/* The steps since, as the numbers of struct report_rank: new, with their number, or NULL: there are none, without
 * memory, or it is not time. */
int *steps_tell(const struct flight *f, struct steps_seen *seen, int64_t now_us, const struct steps_lack *lack,
                size_t *ret_n);

#endif
