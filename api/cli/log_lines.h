/* log_lines - the output of a job's ranks, put together from pieces
 *
 * A piece is text from a byte of one log on (a log is of one rank and one generation). Pieces of one log come in order,
 * but may come twice, overlap, and end in the middle of a line. Kept apart, as they are for many ranks, a line is
 * handed on once it is whole, so that the lines of two ranks are never mixed; one longer than LOG_LINES_HELD is broken
 * there, between two characters. Otherwise text is handed on as it comes. Where a piece begins after the one before has
 * ended, a line says how much is not kept.
 * Not thread safe.
 */
#ifndef MUSTER_API_CLI_LOG_LINES_H
#define MUSTER_API_CLI_LOG_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_LINES_HELD 65536 /* bytes of a line that wait for its end, at most */
#define LOG_LINES_LOGS 8192  /* logs told apart; beyond, the oldest generations are forgotten */

struct log_lines;

/* Text without a line feed, which follows it when ended is set; where it is not, the next text goes on with that line.
 * text is not terminated. */
typedef void log_lines_fn(void *arg, int64_t rank, const char *text, size_t len, bool ended);

/* NULL: no memory. */
struct log_lines *log_lines_new(bool apart, log_lines_fn *fn, void *arg);
void log_lines_free(struct log_lines *l);

/* The offset up to which a log has been taken; 0: nothing of it. */
int64_t log_lines_next(const struct log_lines *l, int64_t rank, int64_t generation);

/* What is before this byte of a log is not wanted; before anything of it is taken. Returns 0 or -ENOMEM. */
int log_lines_begin(struct log_lines *l, int64_t rank, int64_t generation, int64_t offset);

/* Take a piece: what is new of it is handed on or held. A piece of a newer generation of a rank ends the lines of
 * the older ones. Returns how many bytes were new, those at the piece's end, or -ENOMEM. */
int64_t log_lines_take(struct log_lines *l, int64_t rank, int64_t generation, int64_t offset, const char *text,
                       size_t len);

/* Nothing more will come: hand on what has no end yet. */
void log_lines_end(struct log_lines *l);

#endif
