/* job_record - a job as the store keeps it, and the parts of a job that its events write alike (job.c) */
#ifndef MUSTER_SERVER_JOB_RECORD_H
#define MUSTER_SERVER_JOB_RECORD_H

#include "server/cluster/job.h"

const char *job_intent_name(enum job_intent intent);
int job_intent_parse(const char *name); /* -EINVAL */

/* New; NULL: no memory. What is read has defaults for what is not there. */
json_t *job_places_json(const struct job_place *p, size_t n);
int job_read_places(const json_t *list, struct job_place **ret, size_t *ret_n); /* -EINVAL, -ENOMEM */
json_t *job_layout_json(const struct layout *l);
void job_read_layout(const json_t *o, struct layout *l);
json_t *job_past_json(const struct act_history *h);
void job_read_past(const json_t *o, struct act_history *h);

#endif
