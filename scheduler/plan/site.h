/* site - what is assumed of devices and links until runs were measured, and what a run teaches
 *
 * The figures are of no particular machine and only set the scale; a measured run corrects them by one factor for its
 * class and precision. Pure.
 */
#ifndef MUSTER_SCHEDULER_PLAN_SITE_H
#define MUSTER_SCHEDULER_PLAN_SITE_H

#include "scheduler/plan/cost.h"

/* A device of a kind ("cpu", "gpu") with so many threads; memory as given. */
struct plan_device plan_device_assumed(const char *kind, int threads, bool bf16, uint64_t memory_bytes);

/* The links that such devices have. */
void plan_links_assumed(const char *kind, struct plan_site *ret);

/* The same device, and links in a node, as measured, where anything was; p is borrowed. The memory that p has goes
 * before none. */
struct plan_device plan_device_measured(struct plan_device d, const struct plan_profile *p, bool bf16);
void plan_links_measured(struct plan_site *site, const struct plan_profile *p);

/* Bytes of a rank of no model there; 0: not measured. */
uint64_t plan_site_program(const struct plan_site *site);

/* How many times as fast as assumed for this plan the devices were, from a step that took so long; what of it were
 * messages and waits for them is left out. From 1/100 to 100. */
double plan_site_speed(const struct plan_cost *predicted, double measured_s);

#endif
