/* log_quota - the logs of all jobs keep within a limit: those of ended jobs go, of the user who has most, oldest first
 *
 * What the spool has is counted on the files' thread, of jobs of which something came since they were counted last.
 * Logs of jobs that have not ended stay, whatever they take. Owned by the core's thread.
 */
#ifndef MUSTER_SERVER_LOG_QUOTA_H
#define MUSTER_SERVER_LOG_QUOTA_H

struct core;

void log_quota_tick(struct core *c);

#endif
