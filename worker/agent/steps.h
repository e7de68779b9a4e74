/* steps - what a rank's page says of its last steps, as an agent reports it
 *
 * A rank with very short steps tells more than a report shall hold: then only every second, fourth … stretch of
 * REPORT_STEPS_WINDOW steps is told. Which ones follows from the steps' numbers, so that all agents tell the same.
 */
#ifndef MUSTER_WORKER_AGENT_STEPS_H
#define MUSTER_WORKER_AGENT_STEPS_H

#include <stddef.h>
#include <stdint.h>

#include "worker/flight/flight_read.h"

struct steps_seen { /* of a rank; zeroed: nothing */
    uint64_t n;     /* steps of its page that were told, or passed over */
    int64_t at_us;
};

/* The steps since, as the numbers of struct report_rank: new, with their number, or NULL: there are none, without
 * memory, or less than a second after the last. */
int *steps_tell(const struct flight *f, struct steps_seen *seen, int64_t now_us, size_t *ret_n);

#endif
