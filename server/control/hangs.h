/* hangs - runs that stand still: which rank holds up the others, told and acted upon in seconds
 *
 * An agent tells of each training rank that has shown no sign of life for a second what it waits in. Once that holds
 * for all ranks of a run, and for as long as their phases may take, scheduler/diagnose/hang.h names the rank; the
 * job's event "hang" has the verdict with what each rank told, and the run ends by it like by a rank that failed.
 */
#ifndef MUSTER_SERVER_HANGS_H
#define MUSTER_SERVER_HANGS_H

#include "server/control/entry.h"

struct core;

/* All that a report says of the run's ranks is taken in (stalls.h): judge the run. */
void hangs_look(struct core *c, struct entry *e);

/* Rank `rank` has failed by a fault of Muster's own programs: where a rank has called something else than its peers,
 * that is why. Then the run fails by that rank, and true is returned. */
bool hangs_blame(struct core *c, struct entry *e, int rank);

#endif
