/* flight_read - what a rank's page says of it, to those who watch: how far it is, and its last operations
 *
 * Reads while the rank writes, without a lock: what was being written is left out.
 */
#ifndef MUSTER_WORKER_FLIGHT_FLIGHT_READ_H
#define MUSTER_WORKER_FLIGHT_FLIGHT_READ_H

#include "worker/flight/flight.h"

#define FLIGHT_RING 256 /* last operations kept */

struct flight_op { /* one entry of the ring; version odd while it is written */
    uint64_t version, seq, bytes;
    int64_t enter_us, leave_us; /* monotonic; leave 0: still inside */
    uint32_t op, step;
    char group[16]; /* "tp", "dp", "pp", "world", … */
};

uint64_t flight_read_step(const struct flight *f);
enum exit_cause flight_read_cause(const struct flight *f); /* EXIT_CAUSE_UNTOLD: nobody has said */
enum flight_phase flight_read_phase(const struct flight *f, int64_t *ret_since_us);
const char *flight_read_phase_name(enum flight_phase phase);

/* Copy the newest up to n operations, newest first. Returns how many. Entries being written are left out. */
int flight_read_ops(const struct flight *f, struct flight_op *ops, int n);

#endif
