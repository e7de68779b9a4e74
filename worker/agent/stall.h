/* stall - what a rank's page says of its groups and of the order of its operations, as an agent reports it */
#ifndef MUSTER_WORKER_AGENT_STALL_H
#define MUSTER_WORKER_AGENT_STALL_H

#include "api/protocol/report.h"
#include "worker/flight/flight_read.h"

/* Groups, new, and order of *ret are set; without memory it has no groups. */
void stall_tell(const struct flight *f, struct report_stall *ret);

#endif
