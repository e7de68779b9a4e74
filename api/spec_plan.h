/* spec_plan - a training spec as the planner sees it, and what the planner settled put into a spec
 *
 * Values only; nothing is kept of the spec.
 */
#ifndef MUSTER_API_SPEC_PLAN_H
#define MUSTER_API_SPEC_PLAN_H

#include "api/spec.h"
#include "scheduler/plan/search.h"

/* What the number of replicas depends on; a command's devices are replicas of one. */
struct plan_facts spec_plan_facts(const struct job_spec *spec);

/* The job and what its owner decided. The spec is of kind JOB_TRAIN. */
struct plan_job spec_plan_job(const struct job_spec *spec);
struct plan_wish spec_plan_wish(const struct job_spec *spec);

/* The same for the rest of a job's life once a plan was chosen: all as in the shape but the number of replicas, and of
 * the blocks that make activations again, where the shape has that by stages, as few as the devices then ask for. */
struct plan_wish spec_plan_kept(const struct plan_shape *shape);

/* What a plan chose of the job besides its shape. Plans that do not say leave it as it is. */
void spec_plan_keep(const json_t *plan, struct plan_job *job);

/* A plan as JSON (plan_print), new; NULL when memory is short. */
json_t *spec_plan_json(const struct plan_result *plan);

/* Merge what a plan's JSON settled into a spec's document, in place. Returns 0, -EINVAL when plan has none, -ENOMEM. */
int spec_settle(json_t *doc, const json_t *plan);

/* Read such a plan's shape back. -EINVAL when it is none; *ret is unchanged then. */
int spec_plan_shape(const json_t *plan, struct plan_shape *ret);

#endif
