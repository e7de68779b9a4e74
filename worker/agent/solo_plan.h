/* solo_plan - what `muster run` decides: a spec as an assignment for one node, and what comes after a failure */
#ifndef MUSTER_WORKER_AGENT_SOLO_PLAN_H
#define MUSTER_WORKER_AGENT_SOLO_PLAN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/protocol/cause.h"
#include "api/spec.h"
#include "base/merr.h"
#include "scheduler/plan/profile.h"

#define RUN_NODE "local"
#define RUN_JOB "run"

/* Read the spec in file. Every fault of it goes into f, other trouble into err. -EINVAL: see f. */
int solo_plan_read(const char *file, struct job_spec **ret, struct faults *f, struct merr *err);

/* The profile of this machine's devices in file. -EINVAL it is none, -ERANGE its ranks had another number of threads,
 * or as io_read_file. */
int solo_plan_profile(const char *file, int threads, struct plan_profile *ret, struct merr *err);

/* The assignment of a generation, what the spec leaves open settled for these devices of so many threads, by their
 * profile where it is not NULL; *ret is new, *ret_world its ranks. dir is the job's folder, absolute. */
int solo_plan_assign(const struct job_spec *spec, int devices, int threads, const struct plan_profile *profile,
                     uint64_t generation, const char *dir, json_t **ret, int *ret_world, struct merr *err);

struct solo_retries { /* that there have been: after failures of the program, and after others */
    int user, other;
};

/* An attempt has failed, by whose fault: whether there is another one, which is counted, after *ret_wait_us. */
bool solo_plan_retry(struct solo_retries *r, const struct job_spec *spec, enum exit_cause fault, int64_t *ret_wait_us);

#endif
