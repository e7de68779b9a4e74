/* admission - whether a job may come in, or change: within the ceilings of its project and what one user may have here
 *
 * An admin's jobs pass all but the server's own limits, of which the last part is kept for admins: so no user, and not
 * all of them together, can keep an admin out. Owned by the core's thread.
 */
#ifndef MUSTER_SERVER_ADMISSION_H
#define MUSTER_SERVER_ADMISSION_H

#include <stdbool.h>
#include <stddef.h>

#include "server/cluster/job.h"

struct call;
struct core;

#define ADMISSION_BYTES_MAX (UINT64_C(2) << 30) /* of the specs of all jobs that have not ended */
#define ADMISSION_RESERVE 20                    /* the last part of it, and of the jobs, is for admins: 1 in so many */

/* A job that is submitted, with a spec of so many bytes. False: the call is answered. */
bool admission_submit(struct core *c, struct call *call, const struct job *j, size_t bytes);

/* A change of a job to this priority, least number of devices and time limit. False: the call is answered. */
bool admission_change(struct core *c, struct call *call, const struct job *j, const struct job_cause *to);

/* One more stream, beside so many of this user's and of all who are no admins. False: the call is answered. */
bool admission_stream(struct core *c, struct call *call, size_t own, size_t others, size_t most);

#endif
