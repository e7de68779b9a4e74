/* limits - how long jobs may run and wait
 *
 * A job's running time is that of all its runs, from when a run is given devices until it is over. So many seconds
 * before it is used up the job is warned and told to save; then its run is drained, and the job fails with the code
 * 'time-limit'. One that waits too long for its first devices is cancelled. A clock that is set ends no job: what is
 * measured goes along with it (wall.h).
 */
#ifndef MUSTER_SERVER_CONTROL_LIMITS_H
#define MUSTER_SERVER_CONTROL_LIMITS_H

struct core;

/* Warn and end those whose time has come. */
void limits_tick(struct core *c);

#endif
