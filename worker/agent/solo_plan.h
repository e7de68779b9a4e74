/* solo_plan - a spec and a number of devices as an assignment for one node */
#ifndef MUSTER_WORKER_AGENT_SOLO_PLAN_H
#define MUSTER_WORKER_AGENT_SOLO_PLAN_H

#include <jansson.h>
#include <stdint.h>

#include "api/spec.h"
#include "base/merr.h"

#define RUN_NODE "local"
#define RUN_JOB "run"

/* Read the spec in file. Every fault of it goes into f, other trouble into err. -EINVAL: see f. */
int solo_plan_read(const char *file, struct job_spec **ret, struct faults *f, struct merr *err);

/* The assignment of a generation, what the spec leaves open settled for these devices of so many threads; *ret is new,
 * *ret_world its ranks. dir is the job's folder, absolute. */
int solo_plan_assign(const struct job_spec *spec, int devices, int threads, uint64_t generation, const char *dir,
                     json_t **ret, int *ret_world, struct merr *err);

#endif
