/* predictions - how far planned steps were off from those that runs took
 *
 * When an attempt is over whose steps were measured, what was planned for its devices at its start is held against
 * them, and counted by class of devices, kind of job, and whether the class had a profile. Nothing else uses these
 * numbers. The newest of each are stored. Owned by the core's thread.
 */
#ifndef MUSTER_SERVER_PREDICTIONS_H
#define MUSTER_SERVER_PREDICTIONS_H

#include <stdint.h>

#include "base/merr.h"
#include "server/control/entry.h"

#define PREDICTIONS_KEPT 128 /* newest attempts of each kind */
#define PREDICTIONS_MAX 256  /* kinds */

struct call;
struct core;
struct predictions;

struct prediction { /* of an attempt */
    uint64_t job;
    uint32_t generation;
    double planned_ms, took_ms; /* took_ms 0: there is nothing to compare */
    bool measured;              /* by a profile of the class */
    char class_[SPEC_NAME_MAX];
};

struct predictions *predictions_new(void); /* NULL: no memory */
void predictions_free(struct predictions *s);

/* What is known of the job's attempt, before an event changes it. */
struct prediction predictions_look(const struct job *j);

/* The event is there: if that attempt is over, it counts. */
void predictions_note(struct core *c, const struct entry *e, const struct prediction *was);

/* GET /v1/reports/predictions */
void predictions_report(struct core *c, struct call *call);

void predictions_put(struct core *c); /* what has changed, into the batch */
int predictions_load(struct core *c, struct merr *err);

#endif
