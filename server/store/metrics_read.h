/* metrics_read - what jobs measured, as columns: all of it, or thinned so that no peak is lost
 *
 * A read looks at the index of each of a job's metrics files (metrics_index.h), which is kept for the next one, and
 * reads the lines that it chooses from there. Any thread; no two wait for each other but to take an index.
 */
#ifndef MUSTER_SERVER_METRICS_READ_H
#define MUSTER_SERVER_METRICS_READ_H

#include <jansson.h>

#include "server/store/metrics_index.h"

#define METRICS_POINTS_MAX 10000  /* of one answer */
#define METRICS_VALUES_MAX 200000 /* all columns of it together */
#define METRICS_BUCKETS_MAX 2000
#define METRICS_CACHE_BYTES (64 << 20) /* of indexes that are kept for the next read */

struct metrics_cache;

struct metrics_cache *metrics_cache_new(void);    /* NULL: no memory */
void metrics_cache_free(struct metrics_cache *m); /* NULL is fine */

/* {"metrics", "points", "steps", "left_out_bytes"}: columns of numbers by name, those named (NULL or "": all), of at
 * most so many points (0 or more than METRICS_POINTS_MAX: of as many). Of more steps those are chosen at which a column
 * is least or most within its part of the curve, and the last; with few points, some that are evenly apart. A
 * generation that repeats steps replaces them. left_out_bytes are not kept any more. New; NULL: go_on said no, or there
 * is no memory. */
json_t *metrics_read(struct metrics_cache *m, const struct spool *s, uint64_t job, const char *names, int points,
                     metrics_go_on *go_on, void *arg);

struct metrics_range {
    const char *names; /* NULL or "": all */
    int64_t from, to;  /* steps, both included */
    int buckets;       /* 1 to METRICS_BUCKETS_MAX, at most */
};

/* A part of the curves as JSON; GET /v1/jobs/{id}/series of api/openapi.yaml says what is in it. Of many steps each
 * bucket holds whole spans of the index: one that a later generation replaces in part counts whole. New; NULL: go_on
 * said no, or there is no memory. */
char *metrics_series(struct metrics_cache *m, const struct spool *s, uint64_t job, const struct metrics_range *range,
                     metrics_go_on *go_on, void *arg);

/* Much has come of a job's metrics: read it now, so that nobody who looks at them waits for that. */
void metrics_note(struct metrics_cache *m, const struct spool *s, uint64_t job);

#endif
