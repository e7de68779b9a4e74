/* stats - counts and durations of the server, printed for Prometheus. Safe from any thread. */
#ifndef MUSTER_SERVER_STATS_H
#define MUSTER_SERVER_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

enum stats_timer { STATS_REQUEST, STATS_COMMIT, STATS_ROUND, STATS_QUEUE_WAIT, STATS_TIMERS };

struct stats;

struct stats *stats_new(void); /* NULL when memory is short */
void stats_free(struct stats *s);
void stats_observe(struct stats *s, enum stats_timer timer, int64_t us);
void stats_answer(struct stats *s, int status);     /* an answer with this status went out */
void stats_limited(struct stats *s, bool by_token); /* somebody was told to come less often */
void stats_calls(struct stats *s, uint64_t calls);

/* Append the text format. */
void stats_print(struct stats *s, struct buf *out);

#endif
