/* files - the thread on which calls wait for a disk, so that the core never does
 *
 * What jobs print and measure is taken in here, through the spool (server/store/spool.h); it is read back on the
 * threads of readers.h. The thread runs calls from a queue of its own, in their order; each then answers, or goes on to
 * the core. The place of a job's files is made on another one (places.h). Without a thread a call is run before
 * files_post() returns: so a simulation of the server has one thread.
 */
#ifndef MUSTER_SERVER_FILES_H
#define MUSTER_SERVER_FILES_H

#include <stdbool.h>

#include "base/merr.h"
#include "server/http/queue.h"
#include "server/store/spool.h"

struct files;

/* spool is borrowed; owner is given to the calls that are run. thread: run them on one. Returns 0 with *ret, which is
 * freed by files_free(), or a negative errno with words. */
int files_start(const struct spool *spool, bool thread, void *owner, struct files **ret, struct merr *err);
void files_stop(struct files *f); /* finishes what is queued; what comes later is answered 503. NULL is fine */
void files_free(struct files *f); /* stopped before. NULL is fine */

/* Any thread. Takes the call over; a full queue answers 503. */
void files_post(struct files *f, struct call *call);

bool files_threaded(const struct files *f);

/* In a call that is run: store a report's pieces (call->body), leave what was durable in call->acks and what was new in
 * call->fresh. What the disk does not take now is not acknowledged, and so comes again. The call is answered where a
 * piece is malformed. */
void files_take_report(struct files *f, struct call *call);

/* Why what came last is not stored, an errno; 0: it is. Any thread. */
int files_trouble(const struct files *f);

/* In a call that is run: answer GET .../logs and .../metrics from its query. flag: the logs are complete. */
void files_answer_logs(const struct files *f, struct call *call);
void files_answer_metrics(const struct files *f, struct call *call);
/* What a job told last of the metric that the call names: a number, or null. New. */
json_t *files_last_measured(const struct files *f, uint64_t job, const struct call *call);
void files_answer_series(const struct files *f, struct call *call);

#endif
