/* files - logs and metrics that agents ship, kept in files, and the thread that reads and writes them
 *
 *   <state>/spool/j17/rank-00000.g2.log    what rank 0 of generation 2 printed
 *   <state>/spool/j17/metrics.g2.jsonl     its metrics, a line a step
 *
 * The length of a file is the offset up to which all is durable; a piece that does not begin there is left out and the
 * ack says where to go on. A file holds at most FILES_LOG_MAX bytes; what goes beyond is acknowledged and dropped. Of a
 * job's generations the newest FILES_GENERATIONS are kept.
 * The thread runs calls from its own queue, so that the core never waits for a disk.
 */
#ifndef MUSTER_SERVER_FILES_H
#define MUSTER_SERVER_FILES_H

#include <jansson.h>
#include <stdint.h>

#include "base/merr.h"
#include "server/http/queue.h"

#define FILES_LOG_MAX (64 << 20)
#define FILES_GENERATIONS 256
#define FILES_ANSWER_MAX (256 << 10) /* bytes of text in one answer of logs */
#define FILES_POINTS_MAX 200000      /* metrics lines looked at for one answer */

struct files;

/* Start the thread; spool is the folder. Returns 0 or a negative errno with words. */
int files_start(const char *spool, void *owner, struct files **ret, struct merr *err);
void files_stop(struct files *f); /* finishes what is queued; what comes later is answered 503 */
void files_free(struct files *f); /* stopped before */

/* Any thread. Takes the call over; a full queue answers 503. */
void files_post(struct files *f, struct call *call);

/* Make the folder of a job; without it nothing is kept. Any thread. */
int files_make_job(const struct files *f, uint64_t job, struct merr *err);

/* The last whole line of a job's newest metrics; NULL: none. New. Any thread. */
json_t *files_last_metrics(const struct files *f, uint64_t job);

/* Remove what was kept of a job, or of one generation of it; on the files' thread. */
void files_drop_job(const struct files *f, uint64_t job);
void files_drop_generation(const struct files *f, uint64_t job, uint32_t generation);

/* On the files' thread: store a report's pieces (call->body), leave what was durable in call->acks and what was new in
 * call->fresh. */
void files_take_report(struct files *f, struct call *call);

/* On the files' thread: answer GET …/logs and …/metrics from the call's query. */
void files_answer_logs(struct files *f, struct call *call);
void files_answer_metrics(struct files *f, struct call *call);

/* The same, on a spool folder, for tests: pieces of one kind ("logs" or "metrics"). Acks and fresh are appended. */
int files_take_piece(const char *spool, const json_t *piece, bool log, json_t *acks, json_t *fresh);
void files_remove_generation(const char *spool, uint64_t job, uint32_t generation);
json_t *files_read_logs(const char *spool, uint64_t job, int rank, int generation, int64_t offset, int tail);
json_t *files_read_metrics(const char *spool, uint64_t job, const char *names, int points);

#endif
