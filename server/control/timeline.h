/* timeline - the calls that read events: of a job, of all, its checkpoints, its output as it comes
 *
 * A caller sees the events of jobs that are its own, or of all with a role for that. Each call answers, or turns into a
 * stream (events.h).
 */
#ifndef MUSTER_SERVER_TIMELINE_H
#define MUSTER_SERVER_TIMELINE_H

#include <jansson.h>
#include <stdbool.h>

struct call;
struct core;

void timeline_of_job(struct core *c, struct call *call); /* GET /v1/jobs/{id}/events */
void timeline_of_all(struct core *c, struct call *call); /* GET /v1/events */

/* The checkpoints that the call's job told of, oldest first. New; NULL: the call is answered. */
json_t *timeline_checkpoints(struct core *c, struct call *call);

/* The output of a job's rank, -1: all of them, from now on; ended: the job has, and nothing will come. */
void timeline_follow_logs(struct core *c, struct call *call, int rank, bool ended);

#endif
