/* ship - what ranks leave in files, carried to the server by offset
 *
 * A stream is one file of a run: a rank's log, the run's metrics or its events. Its offset counts bytes of
 * the file and is moved by the server's acks alone, also backwards: what the server says is stored is the
 * truth, and after a restart of the agent its first ack tells where to go on. Nothing is kept in memory, so
 * nothing is lost while the server is away.
 */
#ifndef MUSTER_WORKER_AGENT_SHIP_H
#define MUSTER_WORKER_AGENT_SHIP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "worker/agent/ranks.h"

#define SHIP_PIECE_MAX (256 << 10) /* bytes of one piece */
#define SHIP_REPORT_MAX (4 << 20)  /* bytes of all pieces of a report, as JSON */
#define SHIP_REPORT_MIN (64 << 10)
#define SHIP_LINES_MAX (1ll << 30)   /* bytes of a run's events.jsonl that are followed */
#define SHIP_METRICS_MAX (4ll << 30) /* likewise of its metrics.jsonl */

struct ship;

struct ship *ship_new(const struct machine *h); /* borrowed; NULL: no memory */
void ship_free(struct ship *s);

/* Follow the files of every run in r, and of no other. */
void ship_sync(struct ship *s, const struct ranks *r);

/* Add "logs", "metrics" and "events" to a report: up to max bytes as JSON, each stream getting its turn.
 * *ret_more tells that something was left for the next report. Returns 0 or -ENOMEM. */
int ship_collect(struct ship *s, size_t max, json_t *report, bool *ret_more);

/* Why a file of a run could not be followed when ship_collect looked at it last: a user's program may have put anything
 * in its place. False: all can be. */
bool ship_trouble(const struct ship *s, const char *job, uint64_t generation, char *ret, size_t size);

/* Take the acks of an answer. Those of files that are not followed are ignored. Whether any moved. */
bool ship_ack(struct ship *s, const struct report_acks *acks);

/* Has the server everything of a run that is in its files now? */
bool ship_done(const struct ship *s, const char *job, uint64_t generation);

#endif
