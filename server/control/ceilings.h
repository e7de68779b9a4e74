/* ceilings - how far the jobs of a round may go in projects with ceilings: runs of a project, devices of a user in it
 *
 * Those that have devices are counted first. Then waiting jobs are let in by their turn, each with what it may come to
 * use, so that a round never goes beyond; at last those that run may grow into what is left. Made for one round.
 */
#ifndef MUSTER_SERVER_CEILINGS_H
#define MUSTER_SERVER_CEILINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/control/entry.h"

struct ceilings;
struct core;

/* *ret is NULL where no project has ceilings of that kind, which all others take. 0 or -ENOMEM. */
int ceilings_new(const struct core *c, struct ceilings **ret);
void ceilings_free(struct ceilings *s);

/* A job has so many devices, or is getting them. */
void ceilings_hold(struct ceilings *s, const struct job *j, int32_t devices);

/* Whether a waiting job may have devices now; else e->wait says why not. */
bool ceilings_allow(const struct ceilings *s, struct entry *e);

/* It takes part in the round: returns the most devices that it may be given, at most max. */
int32_t ceilings_take(struct ceilings *s, const struct job *j, int32_t max);

/* A job that holds so many: the most that it may come to. */
int32_t ceilings_grow(struct ceilings *s, const struct job *j, int32_t held, int32_t max);

#endif
