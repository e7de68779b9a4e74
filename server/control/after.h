/* after - jobs that wait for others to end or to start
 *
 * A job that is to come after others is given no devices until each of them is as wanted. How far each is, is part
 * of its state. Where one can never be, the job is cancelled, or held. Jobs that a job comes after have lower
 * numbers, so one pass over all, by rising number, settles what follows from what.
 */
#ifndef MUSTER_SERVER_CONTROL_AFTER_H
#define MUSTER_SERVER_CONTROL_AFTER_H

#include <stdbool.h>
#include <stddef.h>

#include "server/cluster/job.h"

struct call;
struct core;

/* Whether the jobs that a new one comes after are known, and the caller may see them; else the call is answered. */
bool after_check(struct core *c, struct call *call, const struct job *j);

/* Let jobs go on whose others are as wanted, and end those for which that cannot be, where something has changed. */
void after_follow(struct core *c);

#endif
