/* spool_incidents - what was known of a job's runs as they stood still or failed, kept beside what they printed
 *
 *   j17/incident.g3.n1.json    incident 1 of generation 3: the verdict, and what it comes from
 *   j17/incident.g3.n1.parts   what machines told of it, a line each
 *
 * Either may come first; an incident is there once its verdict is. The newest INCIDENTS_MAX of a job are kept, of one
 * INCIDENT_BYTES, of a rank INCIDENT_RANK_BYTES. Threads as spool.h says.
 */
#ifndef MUSTER_SERVER_SPOOL_INCIDENTS_H
#define MUSTER_SERVER_SPOOL_INCIDENTS_H

#include <jansson.h>
#include <stdint.h>

#include "server/store/spool.h"

/* Keep a verdict (an incident without parts) in place of one before of the same number. 0, or a negative errno. */
int spool_incidents_put(const struct spool *s, uint64_t job, int generation, int number, const json_t *incident);

/* Keep what a machine told. Of a rank about which there is too much, its processes are left out of part, which is
 * changed so. -EFBIG: the incident is as large as it may be. */
int spool_incidents_add(const struct spool *s, uint64_t job, int generation, int number, json_t *part);

/* {"incidents"}, the newest first: what each is in short. New; NULL without memory. */
json_t *spool_incidents_list(const struct spool *s, uint64_t job);

/* One with its parts. New; NULL: there is none. */
json_t *spool_incidents_read(const struct spool *s, uint64_t job, int generation, int number);

#endif
