/* plans - layouts: what the planner makes of a job and of the devices there are, and what measured runs teach it
 *
 * A waiting job whose spec leaves parts of its layout open is planned for what the cluster has, anew when that changes;
 * what its first run settles stays.
 */
#ifndef MUSTER_SERVER_PLANS_H
#define MUSTER_SERVER_PLANS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "server/control/entry.h"

struct core;

/* Plan jobs that wait anew where nodes have changed; where there are many, some are left for the next round. */
void plans_refresh(struct core *c);

/* Plan a waiting job for what the cluster has: then facts are what a run of it will have. 0; -EAGAIN: there is no node;
 * else as plan_search. */
int plans_prepare(struct core *c, struct entry *e, const struct job_spec *spec, struct merr *err);

/* The layout on these places, which are put into the order that suits the nodes' links best, and the plan as JSON, new;
 * NULL stays when none could be made. 0 or as plan_search. */
int plans_choose(struct core *c, struct entry *e, struct job_place *p, size_t n, struct layout *ret, json_t **ret_plan,
                 struct merr *err);

/* A loaded or newly assigned job keeps what its plan settled. */
void plans_adopt(struct entry *e);

/* A run's step took so long: what is predicted of its class follows. */
void plans_learn(struct core *c, struct entry *e, uint32_t generation, double step_ms);

/* How a job would run on what the cluster has: new, with layout and devices. */
json_t *plans_dry(struct core *c, const struct entry *e, const struct job_spec *spec);

/* The job's plan with what was measured; new, null: it has none. */
json_t *plans_view(const struct job *j);

struct call;

/* GET /v1/profiles */
void plans_profiles(struct core *c, struct call *call);

#endif
