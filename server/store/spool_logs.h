/* spool_logs - all logs of a job: how much is kept of them, and removing them, which a reader is told
 *
 * On the thread that takes pieces in; whether they are removed, any. Metrics stay.
 */
#ifndef MUSTER_SERVER_SPOOL_LOGS_H
#define MUSTER_SERVER_SPOOL_LOGS_H

#include "server/store/spool.h"

uint64_t spool_logs_bytes(const struct spool *s, uint64_t job);

/* Remove them, and take in no more: what still comes is acknowledged and left out. 0, or a negative errno where this
 * could not be noted; the files are removed all the same. */
int spool_remove_logs(const struct spool *s, uint64_t job);
bool spool_logs_removed(const struct spool *s, uint64_t job);

#endif
