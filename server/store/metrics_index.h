/* metrics_index - where the lines of a metrics file lie, and where each number in them is least and most
 *
 * It grows with the file: each line is read once, however often the metrics are asked for. It knows each line's place
 * while there are at most METRICS_INDEX_LINES, and spans of lines after that: as many as METRICS_INDEX_SPANS, which
 * become twice as long when they are all used. So its size is limited, whatever a job writes; files of many attempts
 * share the limit. No thread of its own.
 */
#ifndef MUSTER_SERVER_METRICS_INDEX_H
#define MUSTER_SERVER_METRICS_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/store/spool_parts.h"

#define METRICS_INDEX_LINES 16384
#define METRICS_INDEX_SPANS 4096
#define METRICS_INDEX_COLUMNS 24          /* numbers whose extremes are known: the first ones that the file has */
#define METRICS_INDEX_NAME_MAX 64         /* bytes of their names, with the end */
#define METRICS_INDEX_LINE_MAX (16 << 10) /* a longer line is passed over, like one that is no object */

struct metrics_extreme {
    double least, most;
    int64_t least_at, most_at; /* offsets of lines; -1: no line has it */
    double sum;
    int64_t n; /* lines that have it */
};

struct metrics_span {
    int64_t at, step; /* of its first line */
    struct metrics_extreme of[METRICS_INDEX_COLUMNS];
};

struct metrics_line {
    int64_t at, step;
};

struct metrics_index {
    int64_t read; /* bytes of the file */
    int64_t kept; /* of them are known to what is kept of it on the disk (metrics_kept.h) */
    bool within;  /* of a line that is too long, or begins in the gap */
    uint64_t n_lines;
    int64_t first_step, last_at;
    int64_t last_step; /* the greatest */
    char column[METRICS_INDEX_COLUMNS][METRICS_INDEX_NAME_MAX];
    size_t n_columns;
    struct metrics_line *lines; /* NULL once there are more than METRICS_INDEX_LINES */
    size_t lines_cap;
    struct metrics_span *spans;
    size_t n_spans, spans_cap, per_span;
    size_t share; /* of METRICS_INDEX_SPANS, and of the lines; 0: all */
};

/* Whether to go on; asked now and then. */
typedef bool metrics_go_on(void *arg);

/* Read what has come since the last time. 0; -ECANCELED: told not to go on; another negative errno. What has been read
 * is known all the same. */
int metrics_index_update(struct metrics_index *x, const struct spool *s, uint64_t job, const char *name,
                         metrics_go_on *go_on, void *arg);

/* From now on it is one of so many files that share the limits. */
void metrics_index_share(struct metrics_index *x, size_t files);
size_t metrics_index_bytes(const struct metrics_index *x);
void metrics_index_clear(struct metrics_index *x);

#endif
