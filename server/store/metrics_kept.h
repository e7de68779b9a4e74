/* metrics_kept - indexes of long metrics files, kept beside them
 *
 *   metrics.g2.jsonl.index
 *
 * So a file of hundreds of megabytes is not read again by a server that was started again, nor by one that had no room
 * for its index. One that is torn, or of another version, is as if it were not there. Beside a file that is shorter
 * than METRICS_KEPT_EACH there is none.
 */
#ifndef MUSTER_SERVER_METRICS_KEPT_H
#define MUSTER_SERVER_METRICS_KEPT_H

#include "server/store/metrics_index.h"

#define METRICS_KEPT_EACH (16 << 20) /* bytes of a file between two times that its index is written */

/* Fill an index that knows of nothing yet with what is kept of that generation's. */
void metrics_kept_load(struct metrics_index *x, const struct spool *s, uint64_t job, int generation);

/* Keep an index that has read METRICS_KEPT_EACH further than what is kept. */
void metrics_kept_save(struct metrics_index *x, const struct spool *s, uint64_t job, int generation);

#endif
