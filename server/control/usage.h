/* usage - the device time that each user has had lately in each project, and what their jobs weigh by it
 *
 * A run is counted when it is over, with the turn in which that is stored; runs that go on count as they are. Use is
 * forgotten by half with each half-life (core_cfg.share_half_us; 0: nothing is counted, and all weigh the same). Owned
 * by the core's thread.
 */
#ifndef MUSTER_SERVER_USAGE_H
#define MUSTER_SERVER_USAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "server/control/entry.h"

#define USAGE_MOST 65536 /* users of projects that are told apart; of any more nothing is counted */

struct core;
struct usage;

struct usage *usage_new(void); /* NULL: no memory */
void usage_free(struct usage *u);
int usage_load(struct core *c, struct merr *err); /* 0; -EIO, -ENOMEM with words */

/* A run of the job on so many devices is over; so much device time is its. */
void usage_add(struct core *c, const struct job *j, size_t devices, int64_t device_us);

/* What users of a project had lately, in microseconds of a device; runs that go on are left out. */
double usage_of(const struct core *c, const char *project);

/* Set share_milli of the jobs of a round, where not all are due the same. 0 or -ENOMEM. */
int usage_share(const struct core *c, struct entry *const *entries, struct sched_job *jobs, size_t n);

#endif
