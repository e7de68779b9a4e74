/* spool_read - what jobs printed, and the last that they measured, read back (all of that: metrics_read.h)
 *
 * Threads as spool.h says. All answers are new; NULL only without memory for them.
 */
#ifndef MUSTER_SERVER_SPOOL_READ_H
#define MUSTER_SERVER_SPOOL_READ_H

#include <jansson.h>
#include <stdint.h>

#include "server/store/spool.h"
#include "server/store/spool_search.h"

#define SPOOL_ANSWER_MAX (256 << 10) /* bytes of text in one answer of logs */

/* {"lines", "logs"} of a rank, -1: of the first ranks, of a generation, 0: the newest that has any: from an offset on,
 * or (tail > 0) that many lines at their end, or (since_s > 0) what came in so many seconds until now, and a few more
 * (spool_times.h). A log whose middle is not kept says so: "left_out": {"from", "to"}.
 * "attempts": the generations that have any, in order. search, if not NULL: only those lines that it finds, of a
 * stretch (spool_search.h) that goes from "offset" to "next_offset"; tail counts them then. */
json_t *spool_read_logs(const struct spool *s, uint64_t job, int rank, int generation, int64_t offset, int tail,
                        int since_s, const struct spool_search *search);

/* The last whole line of the newest metrics; NULL, too, where there is none. */
json_t *spool_read_last_metrics(const struct spool *s, uint64_t job);

#endif
